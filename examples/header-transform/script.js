// @description Takes telling fields out of the service's answers and adds security fields.

const REMOVED = ["server", "x-powered-by", "x-debug-token"];
const ADDED = {
  "content-security-policy": "default-src 'self'; frame-ancestors 'none'",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
};

/** @type {import("interpose/hook").HookScript} */
module.exports = async (req, res, { hook }) => {
  if (hook === undefined) {
    res.status(404).send("This script only runs as a hook.");
    return;
  }
  const answer = await hook.fetchUpstream(req);
  for (const name of REMOVED) {
    answer.headers.delete(name);
  }
  for (const [name, value] of Object.entries(ADDED)) {
    answer.headers.set(name, value);
  }
  // Status, cookies, coding and bytes go out as the service sent them.
  await hook.pipeResponse(answer, res);
};
