import { requireMembers, send } from "./agent-transport.ts";
import type {
  AgentScope,
  GuardedWrite,
  HookAnswer,
  HookDelete,
  HookRun,
  HookSummary,
  HookSwitch,
  HookUpsert,
  ReloadAnswer,
  RulesBlock,
  RulesWrite,
  RulesWritten,
  SettingsScope,
  ShippedTest,
  WriteIntent,
  WriteOperation,
} from "./agent-types.ts";
import type { Transport } from "./transport.ts";

/**
 * Lifecycle hooks and tool-call rules: `client.agent.hooks`. Guarded writes spend a nonce of
 * `createWriteIntent`, minted for the same session, operation and scope.
 */
export interface AgentHooksApi {
  list(query: { readonly session_id: string }, options?: AgentScope): Promise<HookSummary>;
  /** With a session it alone reloads, and the answer has its summary. */
  reload(body?: { readonly session_id?: string }, options?: AgentScope): Promise<ReloadAnswer>;
  /** The rules of the settings files, without a session. */
  getRules(options?: AgentScope): Promise<{ readonly rules: RulesBlock }>;
  createWriteIntent(
    body: {
      readonly session_id: string;
      readonly op: WriteOperation;
      readonly scope: SettingsScope;
    },
    options?: AgentScope,
  ): Promise<WriteIntent>;
  /** Replaces the rules of one scope (`op: "rules_set"`). */
  setRules(body: RulesWrite, options?: AgentScope): Promise<RulesWritten>;
  upsert(body: HookUpsert, options?: AgentScope): Promise<HookAnswer>;
  delete(body: HookDelete, options?: AgentScope): Promise<HookAnswer>;
  enable(body: HookSwitch, options?: AgentScope): Promise<HookAnswer>;
  disable(body: HookSwitch, options?: AgentScope): Promise<HookAnswer>;
  /** Clears the switch that stops every hook of a scope. */
  enableAll(body: GuardedWrite, options?: AgentScope): Promise<HookAnswer>;
  disableAll(body: GuardedWrite, options?: AgentScope): Promise<HookAnswer>;
  /** Runs a hook's command now. */
  run(body: HookRun, options?: AgentScope): Promise<HookAnswer>;
  /** Asks a shipped hook's trigger; nothing runs. */
  test(body: ShippedTest, options?: AgentScope): Promise<HookAnswer>;
  /** Acknowledges the hooks and rules as reviewed under that hash. */
  trust(
    body: { readonly session_id: string; readonly hash: string; readonly high_risk?: boolean },
    options?: AgentScope,
  ): Promise<HookAnswer>;
}

/** The hook methods over a transport. */
export function createAgentHooksApi(transport: Transport): AgentHooksApi {
  const post = <T>(path: string, body: unknown, scope: AgentScope | undefined): Promise<T> =>
    send<T>(transport, { method: "POST", path: `/hooks${path}`, body, scope });
  // One route switches both kinds of hook; which member carries the new state follows from how the hook is named.
  const toggle = (body: HookSwitch, on: boolean, scope: AgentScope | undefined) =>
    post<HookAnswer>(
      "/toggle",
      "shipped_id" in body ? { ...body, enabled: on } : { ...body, disabled: !on },
      scope,
    );
  return {
    list: ({ session_id }, scope) =>
      send(transport, { method: "GET", path: "/hooks", query: { session_id }, scope }),
    reload: (body, scope) => post("/reload", body, scope),
    getRules: (scope) => send(transport, { method: "GET", path: "/hooks/rules", scope }),
    createWriteIntent: (body, scope) => post("/begin-write", body, scope),
    setRules: (body, scope) => post("/rules", body, scope),
    upsert: (body, scope) => send(transport, { method: "PUT", path: "/hooks", body, scope }),
    delete: (body, scope) => send(transport, { method: "DELETE", path: "/hooks", body, scope }),
    enable: (body, scope) => toggle(body, true, scope),
    disable: (body, scope) => toggle(body, false, scope),
    enableAll: (body, scope) => post("/disable-all", { ...body, value: false }, scope),
    disableAll: (body, scope) => post("/disable-all", { ...body, value: true }, scope),
    run: async (body, scope) => {
      requireMembers(body, "run", ["event"], ["shipped_id"]);
      return post("/test", body, scope);
    },
    test: async (body, scope) => {
      requireMembers(body, "test", ["shipped_id"]);
      return post("/test", body, scope);
    },
    trust: (body, scope) => post("/trust/ack", body, scope),
  };
}
