import assert from "node:assert/strict";
import { mock, test } from "node:test";
import type { TestContext } from "node:test";
import {
  BufferFullError, ClosedError, ConnectionError, HostError, LostError, MuxClient, TerminalError, UnauthorizedError, isFrame,
} from "@muxhost/client";
import type { ClientOptions, Frame, State } from "@muxhost/client";
import { MockError, MockTransport } from "@muxhost/client/mock";

/** Lets everything run that waits for no clock. */
async function settled(): Promise<void> {
  for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
}

interface Scene {
  host: MockTransport;
  client: MuxClient;
  states: string[];
  /** Frames so far. */
  seen: Frame[];
  /** Moves the clock. */
  pass: (ms: number) => Promise<void>;
  /** Stops and starts taking frames. */
  take: (on: boolean) => void;
}

/** A client of a host in memory, in fake time, whose frames are taken. */
async function scene(t: TestContext, options: Partial<ClientOptions> = {}): Promise<Scene> {
  mock.timers.enable({ apis: ["setTimeout"] });
  t.after(() => mock.timers.reset());
  t.mock.method(Math, "random", () => 1);
  const host = new MockTransport();
  const states: string[] = [];
  const onState = (s: State, cause?: Error): void => void states.push(cause ? `${s}: ${cause.message}` : s);
  const client = new MuxClient({ url: "http://host:1", token: "secret", WebSocket: host.WebSocket, onState, ...options });
  t.after(() => client.close());
  const seen: Frame[] = [];
  let gate: Promise<void> = Promise.resolve();
  let release = (): void => {};
  const take = (on: boolean): void => {
    release();
    if (!on) gate = new Promise((resolve) => (release = resolve));
  };
  void (async () => {
    for await (const f of client.frames()) {
      seen.push(f);
      await gate;
    }
  })().catch((err) => states.push(`frames: ${err.name}`));
  await settled();
  const pass = async (ms: number): Promise<void> => {
    await settled();
    mock.timers.tick(ms);
    await settled();
  };
  return { host, client, states, seen, pass, take };
}

const message = (text: string): { type: string; data: object } => ({ type: "user/message", data: { content: [{ type: "text", text }] } });

const seqs = (frames: Frame[]): number[] => frames.flatMap((f) => (isFrame(f, "session/event") ? [f.params.event.seq ?? 0] : []));

// A subscription comes back at its cursor after each cut: every durable event once, in order.
test("events are neither lost nor repeated over cuts", async (t) => {
  const { host, client, seen, pass } = await scene(t);
  host.session("s");
  const results = await client.subscribe({ sessions: [{ sessionId: "s", since: 0 }] });
  assert.deepEqual(results, [{ sessionId: "s", head: 0, epoch: "epoch" }]);
  for (let cut = 0; cut < 4; cut++) {
    host.append("s", message("while connected"));
    await settled();
    host.drop([1006, 1001, 4008, 1011][cut]);
    await settled();
    host.append("s", message("while away"));
    await pass(100);
    assert.ok(host.connected, `after cut ${cut}`);
  }
  assert.deepEqual(seqs(seen), [1, 2, 3, 4, 5, 6, 7, 8]);
  assert.deepEqual(host.calls.filter((c) => c.method === "mux.subscribe").map((c) => (c.params as { sessions: object[] }).sessions[0]), [
    { sessionId: "s", since: 0 },
    ...[1, 3, 5, 7].map((since) => ({ sessionId: "s", since, epoch: "epoch" })),
  ]);
});

// What a host repeats, whatever it is, reaches the consumer once.
test("a repeated event is dropped", async (t) => {
  const { host, client, seen } = await scene(t);
  host.session("s");
  await client.subscribe({ sessions: [{ sessionId: "s", since: 0 }] });
  for (const seq of [1, 1, 2, 1, 2, 3, 3]) host.push("session/event", { sessionId: "s", event: { seq, ts: "2026-01-01T00:00:00Z", ...message(`${seq}`) } });
  await settled();
  assert.deepEqual(seqs(seen), [1, 2, 3]);
  assert.equal(host.connections, 1);
});

// A host that leaves out a durable event, or sends a live one too early, is left and taken up at the cursor.
test("a hole makes the client come back", async (t) => {
  const { host, client, seen, states, pass } = await scene(t);
  host.session("s");
  await client.subscribe({ sessions: [{ sessionId: "s", since: 0 }] });
  host.append("s", message("1"));
  host.session("s", [1, 2, 3].map((seq) => ({ seq, ts: "2026-01-01T00:00:00Z", ...message(`${seq}`) })));
  host.push("session/event", { sessionId: "s", event: { seq: 3, ts: "2026-01-01T00:00:00Z", ...message("3") } });
  await pass(100);
  assert.deepEqual(seqs(seen), [1, 2, 3]);
  host.push("session/event", { sessionId: "s", event: { after: 5, ts: "2026-01-01T00:00:00Z", type: "assistant/delta", data: { block: 0, from: 0, to: 1, text: "x" } } });
  await pass(100);
  assert.deepEqual(states.filter((s) => s.startsWith("disconnected")), [
    "disconnected: the host left out a durable event: session s, got 3 after 1",
    "disconnected: the host left out a durable event: session s, a live event after 5, the last was 3",
  ]);
  assert.deepEqual(seqs(seen), [1, 2, 3]);
});

// Where the host cannot resume, a reset says so and the session comes from its first event.
test("a log that was replaced starts anew after a reset", async (t) => {
  const { host, client, seen, pass } = await scene(t);
  host.session("s", [], "old");
  host.session("other", [], "o");
  await client.subscribe({ sessions: [{ sessionId: "s", since: 0 }, { sessionId: "other", since: 0 }] });
  host.append("s", message("1"));
  host.append("other", message("1"));
  await settled();
  host.session("s", [1, 2].map((seq) => ({ seq, ts: "2026-01-01T00:00:00Z", ...message(`new ${seq}`) })), "new");
  host.drop();
  await pass(100);
  const of = (id: string): string[] => seen.filter((f) => (f.params as { sessionId: string }).sessionId === id).map((f) => f.method);
  assert.deepEqual(of("s").slice(-5), ["client/reset", "session/subscribed", "session/event", "session/event", "session/live"]);
  assert.deepEqual(of("other").filter((m) => m !== "session/live"), ["session/subscribed", "session/event", "session/subscribed"]);
});

// A session that is gone meanwhile ends; the others go on.
test("a session that was deleted meanwhile is unsubscribed", async (t) => {
  const { host, client, seen, pass } = await scene(t);
  host.session("a");
  await client.subscribe({ sessions: [{ sessionId: "a" }] });
  host.handle("mux.subscribe", () => {
    throw new MockError("session-not-found");
  });
  host.drop();
  await pass(100);
  assert.deepEqual(seen.at(-1), { method: "session/unsubscribed", params: { sessionId: "a", reason: "deleted" } });
  host.drop();
  await pass(100);
  assert.equal(host.calls.filter((c) => c.connection === 3).length, 0, "it is not asked for again");
});

// The wait doubles, with jitter, up to its bound; a connection that resumed starts it over.
test("attempts back off", async (t) => {
  const { host, pass } = await scene(t, { minBackoffMs: 100, maxBackoffMs: 1000 });
  assert.equal(host.connections, 1);
  host.refuse = 0;
  host.drop();
  for (const [ms, n] of [[99, 1], [1, 2], [199, 2], [1, 3], [399, 3], [1, 4], [799, 4], [1, 5], [999, 5], [1, 6], [999, 6], [1, 7]] as const) {
    await pass(ms);
    assert.equal(host.connections, n);
  }
  host.refuse = undefined;
  await pass(1000);
  assert.ok(host.connected);
  host.drop();
  await pass(100);
  assert.ok(host.connected, "the first wait is short again");
});

// The jitter takes up to half of the wait.
test("the wait has jitter", async (t) => {
  const { host, pass } = await scene(t);
  t.mock.method(Math, "random", () => 0);
  host.drop();
  await pass(49);
  assert.equal(host.connections, 1);
  await pass(1);
  assert.equal(host.connections, 2);
});

// 4008 is no fault of the network: the client comes back at once.
test("too slow comes back at once", async (t) => {
  const { host } = await scene(t);
  host.drop(4008, "too slow");
  await settled();
  assert.equal(host.connections, 2);
});

// 4001 and 4029 say that coming back is of no use.
for (const code of [4001, 4029]) {
  test(`${code} ends the client`, async (t) => {
    const { host, client, states, pass } = await scene(t);
    host.drop(code, "because");
    await pass(60_000);
    assert.equal(host.connections, 1);
    assert.equal(client.state, "closed");
    assert.deepEqual(states.slice(-2), [`closed: the host closed the connection for good: ${code} because`, "frames: TerminalError"]);
    await assert.rejects(client.call("host.describe"), (err) => err instanceof TerminalError && err.code === code && err.reason === "because");
  });
}

// A token that is refused, at first or later, ends the client; other refusals do not.
for (const status of [401, 403]) {
  test(`${status} ends the client`, async (t) => {
    const { host, client, pass } = await scene(t);
    host.refuse = 503;
    host.drop();
    await pass(100);
    assert.equal(client.state, "disconnected");
    host.refuse = status;
    await pass(200);
    assert.equal(client.state, "closed");
    await assert.rejects(client.ready(), (err) => err instanceof UnauthorizedError && err.status === status);
  });
}

// A host that says nothing for 2.5 heartbeats is given up, not sooner.
test("silence is noticed", async (t) => {
  const { host, pass, states } = await scene(t, { heartbeat: 20 });
  await pass(49_000);
  host.push("mux/heartbeat", { ts: "2026-01-01T00:00:00Z" });
  await pass(49_999);
  assert.equal(host.connections, 1);
  await pass(1);
  assert.ok(states.includes("disconnected: the host is silent"));
  await pass(100);
  assert.equal(host.connections, 2);
});

// A call that only reads is made again on the next connection; one that changes something is not.
test("reads are repeated, changes are lost", async (t) => {
  const { host, client, pass } = await scene(t);
  host.handle("sessions.list", () => undefined);
  host.handle("session.prompt", () => undefined);
  const list = client.call("sessions.list", { limit: 1 });
  const prompt = client.call("session.prompt", { sessionId: "s", content: [] });
  const lost = assert.rejects(prompt, (err) => err instanceof LostError && err.method === "session.prompt" && err.cause instanceof ConnectionError);
  await settled();
  host.handle("sessions.list", () => ({ sessions: [] }));
  host.drop();
  await lost;
  await pass(100);
  assert.deepEqual(await list, { sessions: [] });
  assert.deepEqual(host.calls.map((c) => c.method), ["sessions.list", "session.prompt", "sessions.list"]);
});

// A call made between connections waits for the next one.
test("calls wait for a connection", async (t) => {
  const { host, client, pass } = await scene(t);
  host.handle("session.cancel", () => ({ cancelled: true }));
  host.drop();
  await settled();
  const call = client.call("session.cancel", { sessionId: "s" });
  await pass(100);
  assert.deepEqual(await call, { cancelled: true });
});

// What the host answers as an error tells its kind and details.
test("errors of the host have kinds", async (t) => {
  const { host, client } = await scene(t);
  host.handle("approval.respond", () => {
    throw new MockError("approval-not-pending", { outcome: "rejected" });
  });
  host.handle("session.get", () => {
    throw new MockError("bad", { at: 1 }, -32602);
  });
  await assert.rejects(client.call("approval.respond", { sessionId: "s", id: "a", outcome: "rejected" }), (err) => {
    return err instanceof HostError && err.kind === "approval-not-pending" && err.code === -32000 && (err.details as { outcome: string }).outcome === "rejected";
  });
  await assert.rejects(client.call("session.get", { sessionId: "s" }), (err) => err instanceof HostError && err.kind === "" && err.code === -32602);
});

// A consumer that takes no frames costs bounded memory: the connection is dropped, and comes back at the cursor once the frames are taken.
test("a full buffer drops the connection and loses nothing", async (t) => {
  const { host, client, seen, states, take } = await scene(t, { bufferSize: 4000 });
  host.session("s");
  await client.subscribe({ sessions: [{ sessionId: "s", since: 0 }] });
  take(false);
  for (let i = 0; i < 50; i++) host.append("s", message("x".repeat(200)));
  await settled();
  assert.ok(states.some((s) => s.startsWith("disconnected: the buffer of frames is full")), `${states}`);
  assert.equal(host.connected, false);
  assert.equal(host.connections, 1, "it does not come back before the frames are taken");
  while (seqs(seen).length < 50) {
    take(true);
    await settled();
  }
  assert.deepEqual(seqs(seen), Array.from({ length: 50 }, (_, i) => i + 1));
  assert.ok(host.connections > 1 && host.connections < 12, `${host.connections} connections`);
});

// A consumer that awaits a call takes no frames meanwhile; the buffer grows for it, up to a bound, past which the call fails instead of waiting for ever.
test("calls get through a full buffer, within a bound", async (t) => {
  const { host, client, take } = await scene(t, { bufferSize: 4000 });
  host.session("s");
  await client.subscribe({ sessions: [{ sessionId: "s", since: 0 }] });
  take(false);
  const flood = (n: number): void => {
    for (let i = 0; i < n; i++) host.append("s", message("x".repeat(200)));
  };
  host.handle("host.describe", () => (flood(20), { name: "h" }));
  flood(1);
  assert.deepEqual(await client.call("host.describe"), { name: "h" });
  host.handle("host.describe", () => (flood(100), undefined));
  await assert.rejects(client.call("host.describe"), (err) => err instanceof LostError && err.cause instanceof BufferFullError);
  await assert.rejects(client.call("host.describe"), BufferFullError);
});

// Two subscriptions of one session: without since the second keeps the cursor, and the baseline comes again.
test("a delivery changes without moving the cursor", async (t) => {
  const { host, client, seen, pass } = await scene(t);
  host.session("s", [1, 2].map((seq) => ({ seq, ts: "2026-01-01T00:00:00Z", ...message(`${seq}`) })));
  await client.subscribe({ sessions: [{ sessionId: "s", since: 0 }] });
  await client.subscribe({ sessions: [{ sessionId: "s" }], delivery: { text: "final" } });
  host.append("s", message("3"));
  host.drop();
  await pass(100);
  assert.deepEqual(seqs(seen), [1, 2, 3]);
  assert.deepEqual(host.calls.at(-1)?.params, { sessions: [{ sessionId: "s", since: 2, epoch: "epoch" }], delivery: { text: "final" } });
});

// A tree is resumed as one, its root first, each member from its own cursor; who left it stays out.
test("trees are resumed with their members", async (t) => {
  const { host, client, pass } = await scene(t);
  const subscribed = (sessionId: string): object => ({ sessionId, since: 0, head: 0, first: 1, epoch: "e", state: "idle", pending: 0 });
  const results = [{ sessionId: "z", head: 0, epoch: "e" }];
  host.handle("mux.subscribe", () => results);
  await client.subscribe({ sessions: [{ sessionId: "z", since: 0 }], tree: true, host: true });
  host.push("session/subscribed", subscribed("z"));
  for (const [id, parent] of [["b", "z"], ["a", "b"]] as const) {
    host.push("host/session-added", { sessionId: id, session: { sessionId: id, parentSessionId: parent } });
    host.push("session/subscribed", subscribed(id));
    host.push("session/event", { sessionId: id, event: { seq: 1, ts: "2026-01-01T00:00:00Z", ...message(id) } });
  }
  await client.unsubscribe({ sessions: ["b"] });
  host.drop();
  await pass(100);
  assert.deepEqual(host.calls.filter((c) => c.connection === 2).map((c) => c.params), [
    { host: true, sessions: [{ sessionId: "z", since: 0, epoch: "e", tree: true }, { sessionId: "a", since: 1, epoch: "e" }] },
    { sessions: ["b"] },
  ]);
});

// A base in parts counts once it is whole: a cut in between resumes from 0.
test("half a base is asked for again", async (t) => {
  const { host, client, seen, pass } = await scene(t);
  const since: unknown[] = [];
  host.handle("mux.subscribe", (p: { sessions: { since: number }[] }) => {
    since.push(p.sessions[0]?.since);
    return [{ sessionId: "s", head: 9, epoch: "e" }];
  });
  const start = (): void => {
    host.push("session/subscribed", { sessionId: "s", since: 0, head: 9, first: 10, epoch: "e", baseParts: 2, state: "idle", pending: 0 });
    host.push("session/base", { sessionId: "s", part: 0, parts: 2, text: "{}" });
  };
  await client.subscribe({ sessions: [{ sessionId: "s", since: 0 }] });
  start();
  await settled();
  host.drop();
  await pass(100);
  start();
  host.push("session/base", { sessionId: "s", part: 1, parts: 2, text: "" });
  await settled();
  host.drop();
  await pass(100);
  assert.deepEqual(since, [0, 0, 9]);
  assert.deepEqual(seen.filter((f) => f.method === "session/base").map((f) => (f.params as { part: number }).part), [0, 0, 1]);
});

// The token travels in a header where the WebSocket can send one; else beside the subprotocol, as browsers must.
test("the token travels as the WebSocket allows", async (t) => {
  const { host } = await scene(t, { token: async () => "sécret", label: "my phone", heartbeat: 500 });
  assert.deepEqual(host.headers, { Authorization: "Bearer sécret" });
  const args: unknown[][] = [];
  const plain = class extends host.WebSocket {
    static override readonly headers = false;
    constructor(...a: ConstructorParameters<MockTransport["WebSocket"]>) {
      super(...a);
      args.push(a);
    }
  };
  const client = new MuxClient({ url: "https://mux.example:8/?x=1", token: "sécret", label: "my phone", heartbeat: 500, WebSocket: plain });
  t.after(() => client.close());
  await client.ready();
  assert.deepEqual(args, [["wss://mux.example:8/v1/ws?x=1&heartbeat=120&label=my+phone", ["muxhost.v1", "muxhost.token.c8OpY3JldA"]]]);
});

// Closing ends everything: calls, frames, and the wait for a connection.
test("close ends calls and frames", async (t) => {
  const { host, client, states } = await scene(t);
  host.handle("session.close", () => undefined);
  const call = client.call("session.close", { sessionId: "s" });
  const lost = assert.rejects(call, (err) => err instanceof LostError && err.cause instanceof ClosedError);
  await settled();
  await client.close();
  await lost;
  await assert.rejects(client.ready(), ClosedError);
  for await (const f of client.frames()) assert.fail(`a frame after the end: ${f.method}`);
  assert.equal(states.at(-1), "closed: the client is closed");
  assert.equal(host.connected, false);
});

// A signal ends the client, a call's waiting, a loop's waiting.
test("signals end what they were given to", async (t) => {
  const stop = new AbortController();
  const { host, client } = await scene(t, { signal: stop.signal });
  host.handle("host.describe", () => undefined);
  const one = new AbortController();
  const call = client.call("host.describe", {}, { signal: one.signal });
  const given = assert.rejects(call, { name: "AbortError" });
  await settled();
  one.abort();
  await given;
  stop.abort();
  await settled();
  assert.equal(client.state, "closed");
});

// The wait before an attempt can be cut short, such as when a browser says that it is online again.
test("retry comes back at once", async (t) => {
  const { host, client } = await scene(t);
  host.drop();
  await settled();
  client.retry();
  await settled();
  assert.equal(host.connections, 2);
});

// What a host sends that is no message of the protocol costs the connection, not the client.
for (const text of ["{", "[]", '{"jsonrpc":"1.0","method":"x"}', '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}', '{"jsonrpc":"2.0","method":"session/event","params":{"sessionId":"s"}}']) {
  test(`the message ${text} makes the client come back`, async (t) => {
    const { host, client, pass } = await scene(t);
    host.session("s");
    await client.subscribe({ sessions: [{ sessionId: "s" }] });
    host.pushRaw(text);
    await settled();
    assert.equal(host.connected, false);
    await pass(100);
    assert.equal(host.connections, 2);
  });
}
