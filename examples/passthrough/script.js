// @rawBody
// @description Passes everything through untouched and notes that it was there.

// With @rawBody the body is never held in memory: it goes up as it comes in, whatever its size.
/** @type {import("interpose/hook").HookScript} */
module.exports = async (req, res, { hook }) => {
  if (hook === undefined) {
    res.status(404).send("This script only runs as a hook.");
    return;
  }
  console.log(`${hook.origMethod} ${hook.origPath} -> ${hook.service}`);
  await hook.forward(req, res);
};
