#!/usr/bin/env node
// Plain JavaScript that any Node can parse, so that a runtime which is too old is told so in one sentence.
const [major = 0, minor = 0, patch = 0] = process.versions.node.split(".").map(Number);
if (major < 24 || (major === 24 && (minor < 18 || (minor === 18 && patch < 1)))) {
  process.stderr.write(`interpose needs Node 24.18.1 or later, this is ${process.version}.\n`);
  process.exit(1);
}
await import("../dist/proxy/main.js");
