import type { Presented } from "./presented.ts";

/** One configuration of a group, compiled: whether a request satisfies it. Never throws. */
export type Check = (presented: Presented) => boolean;
