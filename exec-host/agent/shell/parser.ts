import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { systemClock } from "../../../policy/kernel/clock.ts";
import type { Timer } from "../../../policy/kernel/clock.ts";
import type { ShellLine } from "./syntax.ts";

interface Waiting {
  readonly text: string;
  readonly resolve: (line: ShellLine | null) => void;
}

/** Longest time for one line. What takes longer is not understood. */
const PARSE_MS = 3000;
/** Longest time for the thread to come up; it loads a large package. */
const START_MS = 20_000;
const MAX_WAITING = 1000;

const waiting: Waiting[] = [];
let running: Waiting | null = null;
let worker: Worker | null = null;
let isReady = false;
let timer: Timer | null = null;

/**
 * Parses a bash command line, in a thread that is ended and replaced when it does not come back in time. One thread
 * serves the process; it starts with the first line and keeps nothing alive.
 *
 * @returns null when the text cannot be parsed with certainty.
 */
export function parseShell(text: string): Promise<ShellLine | null> {
  if (waiting.length >= MAX_WAITING) {
    return Promise.resolve(null);
  }
  return new Promise((resolve) => {
    waiting.push({ text, resolve });
    pump();
  });
}

function pump(): void {
  if (running !== null || waiting.length === 0) {
    return;
  }
  if (worker === null) {
    start();
    return;
  }
  const next = isReady ? waiting.shift() : undefined;
  if (next === undefined) {
    return;
  }
  running = next;
  worker.ref(); // until the answer is there
  timer = systemClock.after(PARSE_MS, replace);
  worker.postMessage(next.text);
}

function start(): void {
  const extension = fileURLToPath(import.meta.url).endsWith(".ts") ? ".ts" : ".js";
  const started = new Worker(new URL(`./parser-worker${extension}`, import.meta.url), {
    env: {},
    execArgv: [],
    resourceLimits: { maxOldGenerationSizeMb: 256, maxYoungGenerationSizeMb: 32 },
  });
  worker = started;
  isReady = false;
  timer = systemClock.after(START_MS, replace);
  started.on("message", (message: "ready" | ShellLine | null) => {
    if (worker !== started) {
      return;
    }
    timer?.cancel();
    started.unref();
    if (message === "ready") {
      isReady = true;
    } else {
      answer(message);
    }
    pump();
  });
  started.on("error", () => {}); // an exit follows
  started.on("exit", () => {
    if (worker === started) {
      replace();
    }
  });
}

/** Ends the thread and answers what it was at, or what waited for it to come up, with "not understood". */
function replace(): void {
  const ended = worker;
  const wasReady = isReady;
  worker = null;
  isReady = false;
  timer?.cancel();
  void ended?.terminate();
  if (running !== null) {
    answer(null);
  } else if (!wasReady) {
    for (const one of waiting.splice(0)) {
      one.resolve(null);
    }
  }
  pump();
}

function answer(line: ShellLine | null): void {
  const done = running;
  running = null;
  done?.resolve(line);
}
