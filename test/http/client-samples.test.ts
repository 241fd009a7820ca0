import { test } from "vitest";
import { ApiError, HoodyClient } from "../../client/client.ts";
import { startCli } from "../support/cli-run.ts";
import { CONTAINER, PROJECT, TOKEN } from "../support/policy-api.ts";

/*
 * The calls that the source documents show for the typed client, against a running control API. Method names,
 * argument order and the shape of what comes back are theirs; only the address differs.
 */

test("hook rules are managed with the documented calls", async ({ expect }) => {
  const { baseURL } = await startCli();
  const client = new HoodyClient({ baseURL, token: TOKEN });
  const hooks = client.api.proxy.hooks;

  const created = await hooks.create(
    CONTAINER,
    "terminal",
    {
      match: { method: ["POST"], path: "/api/login*" },
      script: { path: "/login-audit" },
      timeout: 500,
    },
    { ifMatch: "file:v0" },
  );
  expect(created).toMatchObject({ statusCode: 201, data: { etag: "file:v1", file_version: 1 } });
  const hookId = created.data.hook.id;
  await hooks.create(
    CONTAINER,
    "terminal",
    { match: { method: "*", path: "*" }, script: { path: "/identity-gate" }, timeout: 3000 },
    { ifMatch: created.data.etag },
  );

  const { data } = await hooks.listByService(CONTAINER, "terminal");
  expect(data.hooks.map((hook) => hook.script.path)).toEqual(["/login-audit", "/identity-gate"]);

  const moved = await hooks.move(
    CONTAINER,
    "terminal",
    data.hooks[1]?.id ?? "",
    { position: 0 },
    { ifMatch: "file:v2" },
  );
  expect(moved.data.hook.position).toBe(0);
  const set = await hooks.set(
    CONTAINER,
    "terminal",
    hookId,
    { match: {}, script: { path: "/other" } },
    { ifMatch: "file:v3" },
  );
  expect(set.data.hook).toMatchObject({ id: hookId, position: 1, script: { path: "/other" } });
  expect((await hooks.get(CONTAINER, "terminal", hookId)).data.hook).toEqual(set.data.hook);
  expect(Object.keys((await hooks.list(CONTAINER)).data.hooks)).toEqual(["terminal"]);

  const gone = await hooks.delete(CONTAINER, "terminal", hookId, { ifMatch: "file:v4" });
  expect(gone.data).toEqual({ file_version: 5, etag: "file:v5" });
  const cleared = await hooks.clear(CONTAINER, "terminal", { ifMatch: "file:v5" });
  expect(cleared.data.removed).toBe(1);
});

test("a stale version rejects with the server's code, and nothing changes", async ({ expect }) => {
  const { baseURL } = await startCli();
  const client = new HoodyClient({ baseURL, token: TOKEN });
  const rule = { match: {}, script: { path: "/a" } };
  const error: unknown = await client.api.proxy.hooks
    .create(CONTAINER, "files", rule, { ifMatch: "file:v7" })
    .catch((cause: unknown) => cause);
  expect(error).toBeInstanceOf(ApiError);
  expect(error).toMatchObject({ status: 412, code: "PRECONDITION_FAILED" });
  expect((await client.api.proxy.hooks.list(CONTAINER)).data).toEqual({
    hooks: {},
    file_version: 0,
    etag: "file:v0",
  });
});

test("containerPermissions.set() carries an empty hooks member only", async ({ expect }) => {
  const { baseURL } = await startCli();
  const client = new HoodyClient({ baseURL, token: TOKEN });
  const permissions = client.api.proxy.containerPermissions;
  const document = {
    groups: { staff: { type: "ip", range: "10.0.0.0/8" } },
    permissions: { staff: { terminal: true } },
    default: "deny",
    hooks: {},
  } as const;
  const { data } = await permissions.set(CONTAINER, document, { ifMatch: "file:v0" });
  expect(data).toMatchObject({ project: PROJECT, container: CONTAINER, default: "deny" });
  const withHooks = { ...document, hooks: { terminal: [{}] } } as unknown as typeof document;
  await expect(permissions.set(CONTAINER, withHooks, { ifMatch: "file:v1" })).rejects.toMatchObject(
    { status: 422 },
  );
});

test("the rest of the control API answers its typed calls", async ({ expect }) => {
  const { baseURL } = await startCli();
  const { api } = new HoodyClient({ baseURL, token: TOKEN });
  expect((await api.containers.list()).data.count).toBe(2);
  expect((await api.containers.get(CONTAINER)).data).toMatchObject({ project_id: PROJECT });
  expect((await api.meta.limits()).data.limits.length).toBeGreaterThan(0);
  expect((await api.meta.publicKey()).data.keys).toEqual([]);
  expect((await api.proxy.settings.get(CONTAINER)).data.enable_proxy).toBe(true);
  expect((await api.proxy.groups.list(CONTAINER)).data.groups).toEqual([]);
  expect((await api.proxy.services.list(CONTAINER)).data.services).toEqual([]);
  expect((await api.proxy.services.get(CONTAINER, "files")).data.service).toBe("files");
  expect((await api.proxy.projectPermissions.get(PROJECT)).data.project).toBe(PROJECT);
  expect((await api.proxy.audit.list(CONTAINER)).data.records).toEqual([]);
  const explained = await api.proxy.explain(CONTAINER, {
    service: "files",
    method: "GET",
    path: "/",
  });
  expect(explained.data.outcome).toBe("forward");
  const alias = await api.proxy.aliases.create({ container_id: CONTAINER, program: "files" });
  expect((await api.proxy.aliases.list({ container_id: CONTAINER })).data.count).toBe(1);
  await api.proxy.aliases.delete(alias.data.id);
});
