import { defineConfig } from "vitest/config";

// Real sockets, files and processes: process tests fork and so run one file at a time, after the rest.
export default defineConfig({
  test: {
    root: new URL("..", import.meta.url).pathname,
    include: ["test/**/*.test.ts"],
    testTimeout: 20_000,
    hookTimeout: 30_000,
    maxWorkers: 2,
  },
});
