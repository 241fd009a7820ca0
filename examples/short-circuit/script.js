// @description Answers by itself; the service is never asked.

// A file whose top level returns runs once per request, and what it returns is the answer.
res.setHeader("Cache-Control", "no-store");
return {
  status: "ok",
  answeredBy: metadata.hook === undefined ? "script" : "hook",
  path: metadata.path,
  checkedAt: new Date().toISOString(),
};
