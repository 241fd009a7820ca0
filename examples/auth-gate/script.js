// @description Lets the service judge the credentials, and replaces its refusals by one of our own.

/** @type {import("interpose/hook").HookScript} */
module.exports = async (req, res, { hook }) => {
  if (hook === undefined) {
    res.status(404).send("This script only runs as a hook.");
    return;
  }

  let answer;
  try {
    answer = await hook.fetchUpstream(req);
  } catch (error) {
    // Unreachable, too slow: a sentence for the client, the reason for our own log.
    if (error instanceof HookUpstreamError && error.kind !== "unforwardable-path") {
      console.warn(`${hook.service}: ${error.kind}`);
      res.status(502).json({ error: "The service does not answer. Please try again." });
      return;
    }
    throw error;
  }

  if (answer.status === 401 || answer.status === 403) {
    res.status(answer.status).json({
      error: "Please sign in with an account of this workspace.",
      reference: hook.auditId,
    });
    return;
  }
  await hook.pipeResponse(answer, res);
};
