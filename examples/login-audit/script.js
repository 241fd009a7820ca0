// @description Writes one log line per login attempt, then lets the login service answer.

/** @type {import("interpose/hook").HookScript} */
module.exports = async (req, res, metadata) => {
  const { hook } = metadata;
  if (hook === undefined) {
    return { usage: "Store rule.json for a service; this script then sees its logins." };
  }

  const startedAt = Date.now();
  await hook.forward(req, res);

  // The answer is under way by now, so writing the line costs the client nothing.
  console.log(
    JSON.stringify({
      event: "login",
      auditId: hook.auditId,
      clientIp: metadata.clientIp,
      path: hook.origPath,
      userAgent: req.headers["user-agent"] ?? null,
      status: res.statusCode,
      tookMs: Date.now() - startedAt,
    }),
  );
};
