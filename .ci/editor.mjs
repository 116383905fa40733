// An editor made of the official client library: it starts `muxhost acp` and uses it as
// editors do. The library checks what it reads; beside it every line of the program is
// held against the protocol's own schema.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable, Transform, Writable } from "node:stream";
import { after, before, test } from "node:test";
import * as acp from "@agentclientprotocol/sdk/unstable";
import Ajv from "ajv/dist/2020.js";

const bin = process.env.MUXHOST;
const dir = mkdtempSync(join(tmpdir(), "muxhost-editor-"));
const state = join(dir, "state");
const cwd = mkdtempSync(join(dir, "cwd-"));
const env = { ...process.env, MUXHOST_STATE_DIR: state };
const cli = (...args) => execFileSync(bin, args, { env, encoding: "utf8" });
const { agent: ask, client: answer } = acp.methods;

const require = createRequire(import.meta.url);
const entry = require.resolve("@agentclientprotocol/sdk/unstable");
const root = entry.slice(0, entry.lastIndexOf("/dist/"));
const schemas = Object.fromEntries(
  ["schema", "schema.unstable"].map((name) => {
    const ajv = new Ajv({ strict: false, validateFormats: false, allErrors: false });
    ajv.addSchema(JSON.parse(readFileSync(join(root, "schema/v1", name + ".json"), "utf8")), "acp");
    return [name, (def, value) => {
      const check = ajv.getSchema(`acp#/$defs/${def}`);
      assert.ok(check, `the schema has no ${def}`);
      assert.ok(check(value), `${def}: ${JSON.stringify(value).slice(0, 500)}: ${JSON.stringify(check.errors)?.slice(0, 500)}`);
    }];
  }),
);
const params = {
  "session/update": "SessionNotification", "session/request_permission": "RequestPermissionRequest",
  "elicitation/create": "CreateElicitationRequest", "$/cancel_request": "CancelRequestNotification",
};
const results = {
  initialize: "InitializeResponse", "session/new": "NewSessionResponse", "session/load": "LoadSessionResponse",
  "session/resume": "ResumeSessionResponse", "session/list": "ListSessionsResponse", "session/prompt": "PromptResponse",
  "session/close": "CloseSessionResponse", "session/set_mode": "SetSessionModeResponse", "session/fork": "ForkSessionResponse",
};

// Editor is one editor with its own `muxhost acp`.
class Editor {
  constructor({ args = [], capabilities = {}, permit, elicit, name = "test-editor" } = {}) {
    this.updates = [];
    this.permissions = [];
    this.withdrawn = [];
    this.faults = [];
    this.calls = new Map();
    this.capabilities = capabilities;
    this.strict = schemas[capabilities.subagents ? "schema.unstable" : "schema"];
    this.name = name;
    this.child = spawn(bin, ["acp", ...args], { env, stdio: ["pipe", "pipe", "pipe"] });
    this.log = "";
    this.child.stderr.on("data", (d) => (this.log += d));
    this.exit = new Promise((done) => this.child.on("exit", (code) => done(code)));
    const editor = this;
    const out = new Transform({ transform(line, _, next) { editor.wrote(line); next(null, line); } });
    const inn = new Transform({ transform(part, _, next) { editor.read(part); next(null, part); } });
    out.pipe(this.child.stdin);
    this.leave = () => { out.unpipe(this.child.stdin); this.child.stdin.end(); }; // what is said later is lost
    this.child.stdout.pipe(inn);
    this.rest = "";
    this.app = acp.client({ name })
      .onNotification(answer.session.update, ({ params }) => { this.updates.push(params); this.stir(); })
      .onRequest(answer.session.requestPermission, async ({ params, signal }) => {
        const p = { params, done: false };
        this.permissions.push(p);
        this.stir();
        const gone = new Promise((done) => signal.addEventListener("abort", () => { this.withdrawn.push(params); this.stir(); done({ outcome: { outcome: "cancelled" } }); }));
        return Promise.race([gone, (permit ?? (() => new Promise(() => {})))(params)]);
      })
      .onRequest(answer.elicitation.create, async ({ params }) => (elicit ?? (() => ({ action: "cancel" })))(params));
    this.connection = this.app.connect(acp.ndJsonStream(Writable.toWeb(out), Readable.toWeb(inn)));
    this.agent = this.connection.agent;
    this.stirred = [];
  }
  wrote(line) {
    for (const l of line.toString().split("\n")) {
      if (!l) continue;
      const m = JSON.parse(l);
      if (m.method && m.id !== undefined) this.calls.set(m.id, m.method);
    }
  }
  read(part) {
    const lines = (this.rest + part).split("\n");
    this.rest = lines.pop();
    for (const l of lines) {
      try {
        const m = JSON.parse(l);
        if (m.method) {
          assert.ok(params[m.method], `the program sends ${m.method}`);
          this.strict(params[m.method], m.params);
        } else if (m.result !== undefined) {
          const def = results[this.calls.get(m.id)];
          (def === "ForkSessionResponse" ? schemas["schema.unstable"] : this.strict)(def, m.result);
        }
      } catch (err) {
        this.faults.push(err.message);
      }
    }
  }
  stir() {
    for (const f of this.stirred.splice(0)) f();
  }
  // until waits until ok() is true.
  async until(what, ok) {
    const late = setTimeout(() => { this.late = what; this.stir(); }, 30_000);
    for (let v; ; ) {
      if ((v = ok())) { clearTimeout(late); return v; }
      assert.ok(!this.late, `${this.late} did not come: ${JSON.stringify(this.updates).slice(-3000)}\n${this.log}`);
      await new Promise((done) => this.stirred.push(done));
    }
  }
  start(protocolVersion = 1) {
    return this.agent.request(ask.initialize, { protocolVersion, clientCapabilities: this.capabilities, clientInfo: { name: this.name, version: "1" } });
  }
  async open() {
    await this.start();
    return (await this.agent.request(ask.session.new, { cwd, mcpServers: [] })).sessionId;
  }
  say(sessionId, text) {
    return this.agent.request(ask.session.prompt, { sessionId, prompt: [{ type: "text", text }] });
  }
  of(sessionId, kind) {
    return this.updates.filter((u) => u.sessionId === sessionId && (!kind || u.update.sessionUpdate === kind)).map((u) => u.update);
  }
  text(sessionId, kind = "agent_message_chunk") {
    return this.of(sessionId, kind).map((u) => u.content.text).join("");
  }
  async end() {
    this.leave();
    assert.equal(await this.exit, 0, this.log);
    assert.deepEqual(this.faults, []);
  }
}

const pick = (kind) => (p) => ({ outcome: { outcome: "selected", optionId: p.options.find((o) => o.kind === kind).optionId } });
// fill chooses the first option of every field.
const fill = (p) => ({ action: "accept", content: Object.fromEntries(Object.entries(p.requestedSchema.properties)
  .filter(([, f]) => f.oneOf || f.items).map(([k, f]) => [k, f.items ? [f.items.anyOf[0].const] : f.oneOf[0].const])) });
const approvals = () => cli("inbox", "--json").split("\n").filter(Boolean).map((l) => JSON.parse(l));

before(() => assert.ok(bin, "MUXHOST names the program"));
after(() => { cli("stop"); rmSync(dir, { recursive: true, force: true }); });

test("initialize starts a host and says what is offered, also to another version", async () => {
  const e = new Editor();
  const got = await e.start(7);
  assert.equal(got.protocolVersion, 1);
  assert.equal(got.agentCapabilities.loadSession, true);
  assert.deepEqual(Object.keys(got.agentCapabilities.sessionCapabilities).sort(), ["close", "fork", "list", "resume"]);
  await assert.rejects(e.agent.request("session/delete", { sessionId: "x" }), /not offered/);
  await e.end();
});

test("an allowed call runs, a rejected one does not, and the prompt ends with its turn", async () => {
  let kind = "allow_once";
  const e = new Editor({ permit: (p) => pick(kind)(p) });
  const sid = await e.open();
  assert.equal((await e.say(sid, "echo hello > allowed; cat allowed")).stopReason, "end_turn");
  assert.equal(readFileSync(join(cwd, "allowed"), "utf8"), "hello\n");
  assert.match(e.permissions[0].params.toolCall.rawInput.command, /echo hello > allowed/);
  const call = e.of(sid, "tool_call")[0], result = e.of(sid, "tool_call_update").at(-1);
  assert.equal(call.toolCallId, e.permissions[0].params.toolCall.toolCallId);
  assert.equal(result.status, "completed");
  assert.match(result.content[0].content.text, /hello/);
  kind = "reject_once";
  await e.say(sid, "echo no > rejected");
  assert.ok(!existsSync(join(cwd, "rejected")));
  assert.equal(e.of(sid, "tool_call_update").at(-1).status, "failed");
  await e.end();
});

test("a request that is settled elsewhere is withdrawn, and the answer counts", async () => {
  const e = new Editor();
  const sid = await e.open();
  const turn = e.say(sid, "echo there > elsewhere");
  const { params } = await e.until("the request", () => e.permissions[0]);
  cli("approve", params._meta.muxhost.id);
  assert.equal((await turn).stopReason, "end_turn");
  await e.until("the withdrawal", () => e.withdrawn.length === 1);
  assert.equal(readFileSync(join(cwd, "elsewhere"), "utf8"), "there\n");
  await e.end();
});

test("session/cancel ends the turn, and what it asked is withdrawn", async () => {
  const e = new Editor();
  const sid = await e.open();
  const turn = e.say(sid, "echo x > cancelled");
  await e.until("the request", () => e.permissions[0]);
  await e.agent.notify(ask.session.cancel, { sessionId: sid });
  assert.equal((await turn).stopReason, "cancelled");
  await e.until("the withdrawal", () => e.withdrawn.length === 1);
  assert.ok(!existsSync(join(cwd, "cancelled")));
  await e.end();
});

test("an editor that ends while it is asked leaves the request to others", async () => {
  const e = new Editor();
  const sid = await e.open();
  e.say(sid, "echo later > after").catch(() => {});
  const { params } = await e.until("the request", () => e.permissions[0]);
  await e.end();
  assert.ok(approvals().some((a) => JSON.stringify(a).includes(params._meta.muxhost.id)));

  const next = new Editor({ permit: pick("allow_once") });
  await next.start();
  await next.agent.request(ask.session.load, { sessionId: sid, cwd, mcpServers: [] });
  await next.until("the result", () => next.of(sid, "tool_call_update").some((u) => u.status === "completed"));
  assert.equal(next.permissions.length, 1);
  assert.equal(readFileSync(join(cwd, "after"), "utf8"), "later\n");
  await next.end();
});

test("everything that an agent can show is shown, subagents under their own ids", async () => {
  const e = new Editor({
    args: ["--agent", "demo"], capabilities: { subagents: {}, elicitation: { form: {} }, session: { notices: {} } },
    permit: pick("allow_once"), elicit: fill,
  });
  const sid = await e.open();
  assert.equal((await e.say(sid, "show me")).stopReason, "end_turn");
  assert.ok(e.text(sid).length > 100 && e.text(sid, "agent_thought_chunk").length > 10);
  assert.ok(e.of(sid, "plan").length > 0 && e.of(sid, "tool_call").length > 0);
  const children = new Set(e.of(sid, "subagent_update").map((u) => u.sessionId));
  assert.equal(children.size >= 1, true);
  for (const child of children) {
    assert.ok(e.of(child).length > 0, "a subagent says something");
    const first = e.updates.findIndex((u) => u.sessionId === child);
    assert.ok(e.updates.findIndex((u) => u.update.sessionUpdate === "subagent_update" && u.update.sessionId === child) < first);
  }
  assert.equal(e.of(sid, "subagent_update").at(-1).state.state, "idle");
  assert.ok(e.permissions.some((p) => p.params.sessionId !== sid));
  await e.end();
});

test("without subagents a child is a tool call, and its request is the session's", async () => {
  const e = new Editor({ args: ["--agent", "demo"], permit: pick("reject_once") });
  const sid = await e.open();
  const turn = e.say(sid, "show me");
  const id = (await e.until("the question", () => /muxhost answer (\S+)/.exec(e.text(sid))))[1];
  cli("answer", id, "--cancel");
  assert.equal((await turn).stopReason, "end_turn");
  assert.ok(e.updates.every((u) => u.sessionId === sid));
  assert.ok(e.permissions.every((p) => p.params.sessionId === sid));
  const digest = e.of(sid).filter((u) => u.toolCallId?.startsWith("subagent:"));
  assert.equal(digest[0].sessionUpdate, "tool_call");
  assert.equal(digest.at(-1).status, "completed");
  await e.end();
});

test("list, load, resume, fork and close; a loaded session reads as it was seen", async () => {
  const e = new Editor({ args: ["--agent", "demo"] });
  const sid = await e.open();
  await e.say(sid, "one");
  await e.say(sid, "two");
  const seen = e.text(sid);
  const list = await e.agent.request(ask.session.list, { cwd });
  assert.equal(list.sessions[0].sessionId, sid);
  await e.agent.request(ask.session.close, { sessionId: sid });
  await e.end();

  const next = new Editor({ args: ["--agent", "demo"] });
  await next.start();
  await next.agent.request(ask.session.load, { sessionId: sid, cwd, mcpServers: [] });
  assert.equal(next.text(sid), seen);
  assert.equal(next.text(sid, "user_message_chunk"), "onetwo");
  const fork = await next.agent.request("session/fork", { sessionId: sid, cwd, mcpServers: [] });
  assert.equal(next.of(fork.sessionId, "agent_message_chunk").length, 0);
  await next.say(fork.sessionId, "three");
  assert.match(next.text(fork.sessionId), /three/);
  assert.equal(next.text(sid), seen);
  await next.end();

  const third = new Editor();
  await third.start();
  await third.agent.request(ask.session.resume, { sessionId: sid, cwd, mcpServers: [] });
  assert.equal(third.text(sid), "");
  await third.end();
});

test("what others say is shown, with their names; modes are the policy's", async () => {
  const e = new Editor({ args: ["--agent", "demo"] });
  const sid = await e.open();
  cli("send", sid, "from a terminal");
  await e.until("the prompt of others", () => e.text(sid, "user_message_chunk") === "from a terminal");
  await e.until("the answer", () => /from a terminal/.test(e.text(sid)));
  assert.ok(e.of(sid, "user_message_chunk")[0]._meta.muxhost.by.label);
  await e.agent.request(ask.session.setMode, { sessionId: sid, modeId: "deny" });
  await e.until("the mode", () => e.of(sid, "current_mode_update").at(-1)?.currentModeId === "deny");
  await e.end();
});

test("--session opens that session, with its history after the answer", async () => {
  const sid = cli("run", "--agent", "demo", "--detach", "before").trim();
  const e = new Editor({ args: ["--session", sid] });
  await e.start();
  assert.equal((await e.agent.request(ask.session.new, { cwd, mcpServers: [] })).sessionId, sid);
  await e.until("the history", () => /before/.test(e.text(sid)) && e.text(sid, "user_message_chunk") === "before");
  await e.say(sid, "and after");
  await e.end();
});
