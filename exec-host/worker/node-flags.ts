/**
 * Flags of Node that the worker's own code needs, beside the permission flags that the pool adds.
 *
 * `--experimental-vm-modules` gives the loader real ES modules per deployment: a helper written with `import` and
 * `export` is instantiated from our own cache, so that a changed file replaces exactly the modules that depend
 * on it and old versions can be collected. The runtime's own module cache can do neither.
 *
 * The others keep what calls leave behind cheap. `--no-allocation-site-pretenuring`: the engine else places literals of busy
 * lines among long-lived objects, where each dead one keeps its call alive (8 us of a hook's 60). Young objects get 8 MiB at
 * once and no more: less costs collections, more costs every worker memory (150 MiB at 16, 235 without a limit).
 */
export const WORKER_NODE_FLAGS = [
  "--experimental-vm-modules",
  "--disable-warning=ExperimentalWarning",
  "--min-semi-space-size=8",
  "--max-semi-space-size=8",
  "--no-allocation-site-pretenuring",
] as const;
