import assert from "node:assert/strict";
import { test } from "node:test";
import { BufferFullError, LostError } from "@muxhost/client";
import { MockError } from "@muxhost/client/mock";
import { message, scene, seqs, settled } from "./scene.js";

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

// A log that is shorter than what was seen lost its end; it starts anew too.
test("a log that lost its end starts anew after a reset", async (t) => {
  const { host, client, seen, pass } = await scene(t);
  host.session("s");
  await client.subscribe({ sessions: [{ sessionId: "s", since: 0 }] });
  host.append("s", message("1"));
  host.append("s", message("2"));
  await settled();
  host.session("s", [{ seq: 1, ts: "2026-01-01T00:00:00Z", ...message("1") }]);
  host.drop();
  await pass(100);
  assert.deepEqual(seen.slice(-4).map((f) => f.method), ["client/reset", "session/subscribed", "session/event", "session/live"]);
});

// A baseline may tell that the log is another, or bring a base where events were folded: a reset comes before it.
test("a baseline that replaces what was folded comes after a reset", async (t) => {
  const { host, client, seen } = await scene(t);
  host.session("s");
  await client.subscribe({ sessions: [{ sessionId: "s", since: 0 }] });
  host.append("s", message("1"));
  const begin = (rest: object): void =>
    host.push("session/subscribed", { sessionId: "s", since: 0, head: 9, first: 1, epoch: "epoch", state: "idle", pending: 0, ...rest });
  begin({ epoch: "another" });
  begin({ epoch: "another", first: 8, base: { seq: 7 } });
  host.push("session/event", { sessionId: "s", event: { seq: 8, ts: "2026-01-01T00:00:00Z", ...message("8") } });
  begin({ epoch: "another", first: 6, base: { seq: 5 } });
  await settled();
  assert.deepEqual(seen.map((f) => f.method).slice(2), [
    "session/event", "client/reset", "session/subscribed", "session/subscribed", "session/event", "client/reset", "session/subscribed",
  ]);
  assert.equal(host.connections, 1);
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
  await client.subscribe({ sessions: [{ sessionId: "s" }] });
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
