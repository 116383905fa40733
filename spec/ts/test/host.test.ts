import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import type { TestContext } from "node:test";
import { HostError, MuxClient, UnauthorizedError, isFrame } from "@muxhost/client";
import type { ApprovalRequested, ClientOptions, EventEnvelope, Frame, Methods, SubscribeParams } from "@muxhost/client";
import { durableView, Folder, newView } from "@muxhost/client/fold";
import type { SessionView } from "@muxhost/client/fold";
import { NodeWebSocket } from "@muxhost/client/node";
import { kill, startHost } from "./process.js";
import { startProxy } from "./proxy.js";

/** A client that folds all it gets, and can wait for what it sees. */
class Watcher {
  readonly client: MuxClient;
  readonly folder = new Folder();
  readonly events: EventEnvelope[] = [];
  readonly frames: Frame[] = [];
  private wake = (): void => {};

  constructor(t: TestContext, options: Pick<ClientOptions, "url" | "token"> & Partial<ClientOptions>) {
    const { url, token, ...rest } = options;
    this.client = new MuxClient({ url, token: token ?? "", WebSocket: NodeWebSocket, label: "test", minBackoffMs: 5, maxBackoffMs: 50, ...rest });
    t.after(() => this.client.close());
    void this.watch();
  }

  private async watch(): Promise<void> {
    for await (const f of this.client.frames()) {
      this.frames.push(f);
      const { issue } = this.folder.apply(f);
      assert.equal(issue, undefined);
      if (isFrame(f, "session/event")) this.events.push(f.params.event);
      this.wake();
    }
  }

  view(session: string): SessionView {
    return this.folder.views.get(session) ?? newView();
  }

  /** Waits until something is seen; a test that waits for what never comes ends by its timeout. */
  async until(seen: () => boolean): Promise<void> {
    while (!seen()) await new Promise<void>((resolve) => (this.wake = resolve));
  }

  /** Seqs of the durable events so far. */
  seqs(): number[] {
    return this.events.flatMap((e) => e.seq ?? []);
  }
}

const timeout = 60_000;

const upTo = (n: number): number[] => Array.from({ length: n }, (_, i) => i + 1);

/** Creates a session, subscribes it from its start, and sends a prompt. */
async function begin(w: Watcher, create: Methods["session.create"]["params"], text: string, subscribe: Partial<SubscribeParams> = {}): Promise<string> {
  const { session } = await w.client.call("session.create", create);
  const { sessionId } = session;
  await w.client.subscribe({ ...subscribe, sessions: [{ sessionId, since: 0 }] });
  const { accepted } = await w.client.call("session.prompt", { sessionId, content: [{ type: "text", text }] });
  assert.ok(accepted);
  return sessionId;
}

const ended = (w: Watcher, session: string): (() => boolean) => () => w.view(session).turns.at(-1)?.reason !== undefined;

/** What the host folds and what the client folded are the same. */
async function sameView(w: Watcher, sessionId: string): Promise<void> {
  const { view, seq } = await w.client.call("session.get", { sessionId, view: true });
  await w.until(() => w.view(sessionId).seq >= (seq ?? 0));
  assert.equal(w.view(sessionId).seq, seq);
  assert.deepEqual(durableView(w.view(sessionId)), durableView(newView(view)));
}

// A prompt asks, a second client answers, the command runs, and everybody folds to what the host folds.
test("a prompt, its approval, its output", { timeout }, async (t) => {
  const host = await startHost(t);
  const asker = new Watcher(t, host);
  const judge = new Watcher(t, { ...host, label: "judge" });
  await judge.client.subscribe({ host: true });
  const session = await begin(asker, { agent: "shell", cwd: host.cwd }, "echo out; exit 3");
  const card = (): ApprovalRequested | undefined => judge.frames.map((f) => (isFrame(f, "approval/requested") ? f.params : undefined)).find((p) => p);
  await judge.until(() => card() !== undefined);
  const { id, inputHash, input } = card() as ApprovalRequested;
  assert.match(JSON.stringify(input), /echo out; exit 3/);
  await assert.rejects(judge.client.call("approval.respond", { sessionId: session, id, outcome: "allowed-once", inputHash: "0".repeat(64) }), (err) => {
    return err instanceof HostError && err.kind === "input-hash-mismatch";
  });
  assert.deepEqual(await judge.client.call("approval.respond", { sessionId: session, id, outcome: "allowed-once", inputHash }), { accepted: true });
  await asker.until(ended(asker, session));
  const tool = asker.view(session).items.find((i) => i.tool)?.tool;
  assert.equal(tool?.isError, true);
  assert.deepEqual(tool?.decisions?.map((d) => [d.outcome, d.by?.label]), [["allowed-once", "judge"]]);
  assert.deepEqual(asker.view(session).pending, []);
  assert.deepEqual(asker.seqs(), upTo(asker.view(session).seq));
  await sameView(asker, session);
  await assert.rejects(judge.client.call("approval.respond", { sessionId: session, id, outcome: "rejected" }), (err) => {
    return err instanceof HostError && err.kind === "approval-not-pending" && (err.details as { outcome: string }).outcome === "allowed-once";
  });
});

// The connection is cut over and over while text streams: no event is lost or repeated, and no chunk in the end.
test("cut again and again while a turn streams", { timeout }, async (t) => {
  const host = await startHost(t);
  const proxy = await startProxy(t, host.url);
  const w = new Watcher(t, { ...proxy, token: host.token });
  const calm = new Watcher(t, host);
  const config = { role: "stream", chunks: 300, size: 200, everyMs: 3, durableEvery: 10 };
  const session = await begin(w, { agent: "demo", cwd: host.cwd, config }, "go");
  await calm.client.subscribe({ sessions: [{ sessionId: session, since: 0 }] });
  for (let cuts = 1; cuts <= 8 && !ended(w, session)(); cuts++) {
    const from = w.events.length;
    await w.until(() => w.events.length > from + 10 || ended(w, session)());
    proxy.cut();
    await w.until(() => proxy.connections() > cuts || ended(w, session)());
  }
  await w.until(ended(w, session));
  await calm.until(ended(calm, session));
  assert.ok(proxy.connections() > 2, `${proxy.connections()} connections: nothing was cut`);
  assert.deepEqual(w.seqs(), upTo(w.view(session).seq));
  await sameView(w, session);
  await calm.until(() => calm.view(session).seq === w.view(session).seq);
  assert.deepEqual(durableView(w.view(session)), durableView(calm.view(session)));
  assert.equal(w.view(session).gaps, false);
});

// Who joins in the middle of a turn sees the open text as who was there from the start.
test("late is equal", { timeout }, async (t) => {
  const host = await startHost(t);
  const early = new Watcher(t, host);
  const session = await begin(early, { agent: "demo", cwd: host.cwd, config: { role: "stream", chunks: 100, size: 50, everyMs: 5 } }, "go");
  const text = (w: Watcher): string => w.view(session).live?.blocks?.[0]?.text ?? "";
  await early.until(() => text(early).length > 1000);
  const late = new Watcher(t, host);
  const { view, seq } = await late.client.call("session.get", { sessionId: session, view: true });
  late.folder.views.set(session, newView(view));
  await late.client.subscribe({ sessions: [{ sessionId: session, ...(seq !== undefined && { since: seq }) }] });
  await late.until(() => text(late).length > 2000);
  assert.equal(late.view(session).gaps, false);
  const n = Math.min(text(late).length, text(early).length);
  assert.equal(text(late).slice(0, n), text(early).slice(0, n));
  await early.until(ended(early, session));
  await late.until(() => late.view(session).seq === early.view(session).seq);
  assert.deepEqual(durableView(late.view(session)), durableView(early.view(session)));
});

// A host that is killed and started again: what was seen is still there, the open request was settled, the subscription goes on.
test("the host is killed", { timeout }, async (t) => {
  const host = await startHost(t);
  const w = new Watcher(t, host);
  const session = await begin(w, { agent: "shell", cwd: host.cwd }, "touch ran");
  await w.until(() => w.view(session).pending.some((p) => p.card));
  const head = w.view(session).seq;
  await kill(host);
  await startHost(t, host);
  await w.until(ended(w, session));
  assert.equal(w.view(session).turns.at(-1)?.reason, "interrupted");
  assert.deepEqual(w.view(session).pending, []);
  assert.ok(w.view(session).seq > head);
  assert.deepEqual(w.seqs(), upTo(w.view(session).seq));
  await sameView(w, session);
});

// A request that waits is shown again after a cut, and one that was settled meanwhile is not.
test("cards over a cut", { timeout }, async (t) => {
  const host = await startHost(t);
  const proxy = await startProxy(t, host.url);
  const w = new Watcher(t, { ...proxy, token: host.token });
  const other = new Watcher(t, host);
  await w.client.subscribe({ host: true });
  const sessions = await Promise.all([1, 2].map((n) => begin(other, { agent: "shell", cwd: host.cwd }, `echo ${n}`)));
  const [a = "", b = ""] = sessions;
  const cards = (): string[] => sessions.filter((s) => w.view(s).pending.some((p) => p.card));
  await w.until(() => cards().length === 2);
  const id = w.view(a).pending[0]?.id ?? "";
  const from = w.frames.length;
  proxy.shut(true);
  proxy.cut();
  await other.client.call("approval.respond", { sessionId: a, id, outcome: "rejected", feedback: "no" });
  proxy.shut(false);
  await w.until(() => w.frames.slice(from).some((f) => f.method === "host/live"));
  assert.deepEqual(cards(), [b]);
  const { pending } = await w.client.call("pending.list", {});
  assert.deepEqual(pending.map((p) => p.approval?.sessionId), [b]);
});

// Subagents of a tree are subscribed as they are born, and resumed with it.
test("a tree over a cut", { timeout }, async (t) => {
  const host = await startHost(t);
  const proxy = await startProxy(t, host.url);
  const w = new Watcher(t, { ...proxy, token: host.token });
  const session = await begin(w, { agent: "demo", cwd: host.cwd, config: { speed: 0, role: "spawns", count: 2, depth: 2 } }, "go", { tree: true });
  await w.until(() => w.folder.views.size > 2);
  proxy.cut();
  await w.until(ended(w, session));
  const { sessions } = await w.client.call("sessions.list", { tree: session });
  assert.equal(sessions.length, 7, "the root, two children, four grandchildren");
  for (const s of sessions) {
    await w.until(ended(w, s.sessionId));
    await sameView(w, s.sessionId);
  }
});

// As browsers do: the token beside the subprotocol, no headers, no status; a refused token is found out nevertheless.
test("a WebSocket without headers", { timeout }, async (t) => {
  const host = await startHost(t);
  class Plain extends NodeWebSocket {
    static override readonly headers = false as unknown as true;
    constructor(url: string, protocols?: string[]) {
      super(url, protocols);
      Object.defineProperty(this, "status", { get: () => undefined, set: () => {} });
    }
  }
  const good = new MuxClient({ ...host, WebSocket: Plain });
  t.after(() => good.close());
  const { you, protocolVersion } = await good.call("host.describe");
  assert.equal(protocolVersion, "1.0");
  assert.ok(you.scopes.includes("admin"));
  const bad = new MuxClient({ url: host.url, token: "x".repeat(43), WebSocket: Plain });
  await assert.rejects(bad.ready(), (err) => err instanceof UnauthorizedError && err.status === 401);
  const worse = new MuxClient({ url: host.url, token: "x".repeat(43), WebSocket: NodeWebSocket });
  await assert.rejects(worse.call("host.describe"), (err) => err instanceof UnauthorizedError && err.status === 401);
});

// A host that ends says so, and the client waits for it.
test("the host goes down and comes back", { timeout }, async (t) => {
  const host = await startHost(t);
  const states: string[] = [];
  const w = new Watcher(t, { ...host, onState: (s) => states.push(s) });
  await w.client.subscribe({ host: true });
  host.child.kill("SIGTERM");
  await w.until(() => w.frames.some((f) => f.method === "host/draining"));
  await once(host.child, "exit");
  const called = w.client.call("sessions.list", {});
  await startHost(t, host);
  assert.deepEqual((await called).sessions, []);
  assert.ok(states.includes("disconnected"));
});
