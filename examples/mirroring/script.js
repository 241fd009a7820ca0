// @description Sends a copy of each request to a second service, without the client waiting for it.

/** Set it in mirroring.env beside this file; without it nothing is copied. */
const MIRROR_URL = process.env.MIRROR_URL ?? "";
const MIRROR_TIMEOUT_MS = 2000;

async function sendCopy(req, hook) {
  const { query = "" } = /^[^?]*\??(?<query>.*)$/s.exec(req.url).groups;
  const copy = await fetch(MIRROR_URL, {
    method: "POST",
    headers: {
      "content-type": req.headers["content-type"] ?? "application/octet-stream",
      "x-original-method": hook.origMethod,
      "x-original-path": encodeURI(hook.origPath),
      "x-original-query": query,
      "x-audit-id": hook.auditId,
    },
    body: req.rawBody ?? "",
    signal: AbortSignal.timeout(MIRROR_TIMEOUT_MS),
  });
  await copy.body?.cancel();
}

/** @type {import("interpose/hook").HookScript} */
module.exports = async (req, res, { hook }) => {
  if (hook === undefined) {
    res.status(404).send("This script only runs as a hook.");
    return;
  }
  if (MIRROR_URL !== "") {
    // Not awaited: the copy may fail or take its time, and must not be felt by the client.
    sendCopy(req, hook).catch((error) => console.warn("mirror:", error.message));
  }
  await hook.forward(req, res);
};
