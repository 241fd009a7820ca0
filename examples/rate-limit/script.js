// @rawBody
// @description Ten requests per client and ten seconds; more are told when to come back.

const LIMIT = 10;
const WINDOW_MS = 10_000;
/** Addresses remembered at a time: a flood from many must not fill the memory. */
const MAX_CLIENTS = 10_000;

/** @type {import("interpose/hook").HookScript} */
module.exports = async (req, res, { hook, clientIp }, shared) => {
  if (hook === undefined) {
    res.status(404).send("This script only runs as a hook.");
    return;
  }

  // `shared` lives as long as the worker does, and is the same object for all scripts of this deployment.
  const clients = (shared.rateLimit ??= new Map());
  const now = Date.now();
  let window = clients.get(clientIp);
  if (window === undefined || now >= window.endsAt) {
    window = { endsAt: now + WINDOW_MS, count: 0 };
    clients.delete(clientIp);
    clients.set(clientIp, window);
    if (clients.size > MAX_CLIENTS) {
      clients.delete(clients.keys().next().value); // the window that was opened first
    }
  }
  window.count += 1;

  if (window.count > LIMIT) {
    res.setHeader("Retry-After", Math.ceil((window.endsAt - now) / 1000));
    res.status(429).json({ error: "Too many requests. Please wait a moment." });
    return;
  }
  await hook.forward(req, res);
};
