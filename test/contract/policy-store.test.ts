import { describe, expect, test } from "vitest";
import { systemClock } from "../../policy/kernel/clock.ts";
import { createFileStore } from "../../policy/store/file-store.ts";
import { createMemoryStore } from "../../policy/store/memory-store.ts";
import type { DocumentKey, PolicyStore } from "../../policy/store/store.ts";
import { policyTempDir } from "../support/policy-api.ts";

const KEY: DocumentKey = "containers/890abcdef12345678901cdef";
const OTHER: DocumentKey = "projects/67e89abc123def456789abcd";

const STORES: readonly (readonly [string, () => PolicyStore])[] = [
  ["file store", () => createFileStore({ clock: systemClock }, { dataDir: policyTempDir() })],
  ["memory store", () => createMemoryStore()],
];

const next = (_: string | null, version: number) => ({
  text: JSON.stringify({ file_version: version + 1 }),
  value: version + 1,
});

describe.for(STORES)("%s", ([, create]) => {
  test("a document that is not there is null, at version 0", async () => {
    const store = create();
    expect((await store.read(KEY)).text).toBeNull();
    expect(
      await store.update(KEY, 0, (text, version) => ({ text: null, value: [text, version] })),
    ).toEqual({
      kind: "done",
      value: [null, 0],
    });
    expect(await store.ids("containers")).toEqual([]);
  });

  test("update() writes, read() and stamp() show it", async () => {
    const store = create();
    const before = store.stamp(KEY);
    expect(await store.update(KEY, 0, next)).toEqual({ kind: "done", value: 1 });
    const { text, stamp } = await store.read(KEY);
    expect(text).toBe('{"file_version":1}');
    expect(stamp).toBe(store.stamp(KEY));
    expect(stamp).not.toBe(before);
    expect((await store.read(OTHER)).text).toBeNull();
    expect(await store.ids("containers")).toEqual(["890abcdef12345678901cdef"]);
    expect(await store.ids("projects")).toEqual([]);
  });

  test("update() with another version changes nothing and tells the stored one", async () => {
    const store = create();
    await store.update(KEY, 0, next);
    const stamp = store.stamp(KEY);
    expect(await store.update(KEY, 0, next)).toEqual({ kind: "stale", version: 1 });
    expect(await store.update(KEY, -1, next)).toEqual({ kind: "stale", version: 1 });
    expect(store.stamp(KEY)).toBe(stamp);
    expect(await store.update(KEY, null, next)).toEqual({ kind: "done", value: 2 });
  });

  test("update() lets what the change throws out, changes nothing and goes on", async () => {
    const store = create();
    const failing = store.update(KEY, 0, () => {
      throw new Error("no");
    });
    await expect(failing).rejects.toThrow("no");
    expect((await store.read(KEY)).text).toBeNull();
    expect(await store.update(KEY, 0, next)).toEqual({ kind: "done", value: 1 });
  });

  test("update() refuses a text that is no document", async () => {
    const store = create();
    await store.update(KEY, 0, () => ({ text: "{", value: null }));
    expect(await store.update(KEY, null, next)).toMatchObject({ kind: "unreadable" });
    expect((await store.read(KEY)).text).toBe("{");
  });

  test("one of twenty writers with the same version wins", async () => {
    const store = create();
    const results = await Promise.all(Array.from({ length: 20 }, () => store.update(KEY, 0, next)));
    expect(results.filter((result) => result.kind === "done")).toHaveLength(1);
    expect(results.filter((result) => result.kind === "stale")).toHaveLength(19);
  });

  test("concurrent writers lose no write", async () => {
    const store = create();
    await Promise.all(Array.from({ length: 50 }, () => store.update(KEY, null, next)));
    expect((await store.read(KEY)).text).toBe('{"file_version":50}');
  });

  test("watch() hears of writes until it is stopped", async () => {
    const store = create();
    const heard: string[] = [];
    const stop = store.watch((key) => heard.push(key));
    await store.update(KEY, 0, next);
    await store.update(KEY, 0, next);
    await store.update(OTHER, 0, (text) => ({ text, value: null }));
    expect(heard).toEqual([KEY]);
    stop();
    await store.update(KEY, null, next);
    expect(heard).toEqual([KEY]);
    await store.close();
  });
});
