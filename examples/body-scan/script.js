// @description Looks at uploads before they reach the service and refuses what it knows to be bad.

/** What is looked for: a file's first bytes, or a text anywhere in it. */
const SIGNATURES = [
  { name: "windows-executable", at: 0, bytes: Buffer.from("MZ") },
  { name: "elf-executable", at: 0, bytes: Buffer.from([0x7f, 0x45, 0x4c, 0x46]) },
  // The harmless string that every virus scanner takes for a virus, in two halves so that this file is none.
  { name: "eicar-test", bytes: Buffer.from("EICAR-STANDARD-" + "ANTIVIRUS-TEST-FILE") },
];

function findBad(data) {
  for (const { name, at, bytes } of SIGNATURES) {
    const isFound =
      at === undefined ? data.includes(bytes) : data.subarray(at, at + bytes.length).equals(bytes);
    if (isFound) {
      return name;
    }
  }
  return null;
}

/** @type {import("interpose/hook").HookScript} */
module.exports = async (req, res, { hook }) => {
  if (hook === undefined) {
    res.status(404).send("This script only runs as a hook.");
    return;
  }
  // Without @rawBody the host has read the whole body: `files` for forms, `rawBody` for everything else.
  const candidates = req.files?.map((file) => file.data) ?? [req.rawBody ?? Buffer.alloc(0)];
  for (const data of candidates) {
    const found = findBad(data);
    if (found !== null) {
      console.warn(`refused an upload: ${found}`, { auditId: hook.auditId, bytes: data.length });
      res.status(422).json({ error: "This file was refused.", reason: found });
      return;
    }
  }
  await hook.forward(req, res);
};
