import assert from "node:assert/strict";
import { test } from "node:test";
import { ClosedError, ConnectionError, HostError, LostError, MuxClient, TerminalError, UnauthorizedError } from "@muxhost/client";
import { MockError } from "@muxhost/client/mock";
import type { MockTransport } from "@muxhost/client/mock";
import { scene, settled } from "./scene.js";

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

// What opens but does not speak muxhost.v1 is no host.
test("another protocol is no host", async (t) => {
  const { host } = await scene(t);
  class Other extends host.WebSocket {
    constructor(url: string) {
      super(url);
      Object.defineProperty(this, "protocol", { get: () => "chat", set: () => {} });
    }
  }
  const causes: string[] = [];
  const client = new MuxClient({ url: "http://host:1", WebSocket: Other, onState: (s, cause) => causes.push(`${s}: ${cause?.message}`) });
  t.after(() => client.close());
  await settled();
  assert.deepEqual(causes, ["disconnected: http://host:1 does not speak muxhost.v1"]);
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
