import assert from "node:assert/strict";
import { test } from "node:test";
import { HostError, MuxClient } from "@muxhost/client";
import { Folder } from "@muxhost/client/fold";
import type { Frame, View } from "@muxhost/client/fold";
import { MockError, MockTransport } from "@muxhost/client/mock";
import { comparable, vectors } from "./vectors.js";

// Code that shows sessions is tested like this: a vector replayed through a real client ends in the vector's view.
test("a vector is replayed through a client", async () => {
  const vector = vectors<{ name: string; frames: Frame[]; session: string; view: View }>("fold").find((v) => v.name === "a-whole-session")?.vector;
  assert.ok(vector, "the vector a-whole-session is there");
  const host = new MockTransport();
  const client = new MuxClient({ url: "http://mock", WebSocket: host.WebSocket });
  await client.ready();
  host.push("session/subscribed", { sessionId: vector.session, since: 0, head: 0, first: 1, epoch: "", state: "idle", pending: 0 });
  host.replay(vector);
  host.push("end");
  const folder = new Folder();
  for await (const f of client.frames()) {
    if (f.method === "end") break;
    folder.apply(f);
  }
  await client.close();
  const view = JSON.parse(JSON.stringify(folder.views.get(vector.session))) as View;
  const { subscribed: _, ...rest } = view;
  const { subscribed: __, ...want } = vector.view;
  assert.deepEqual(comparable(rest), comparable(want));
});

// The mock answers as a host does where it can, and says what it lacks where it cannot.
test("the mock serves subscriptions and handlers", async () => {
  const host = new MockTransport();
  host.session("trimmed", [{ type: "session/renamed", seq: 8, ts: "2026-01-01T00:00:00Z", data: { title: "x" } }], "e", 8);
  host.session("s");
  host.handle("tasks.cancel", () => {
    throw new MockError("task-not-found");
  });
  const client = new MuxClient({ url: "http://mock", WebSocket: host.WebSocket });
  const fails = (p: Promise<unknown>, kind: string, code = -32000): Promise<void> =>
    assert.rejects(p, (err) => err instanceof HostError && err.kind === kind && err.code === code);
  await fails(client.subscribe({ sessions: [{ sessionId: "none" }] }), "session-not-found");
  await fails(client.subscribe({ sessions: [{ sessionId: "trimmed", since: 3 }] }), "cursor-expired");
  await fails(client.subscribe({ sessions: [{ sessionId: "trimmed", since: 7, epoch: "other" }] }), "cursor-expired");
  await fails(client.subscribe({ sessions: [{ sessionId: "s", since: 1 }] }), "cursor-ahead");
  await fails(client.call("tasks.cancel", { sessionId: "s", taskId: "t" }), "task-not-found");
  await fails(client.call("session.fork", { sessionId: "s" }), "", -32601);
  const [first, second] = await client.subscribe({ sessions: [{ sessionId: "trimmed", since: 7 }, { sessionId: "none" }] });
  assert.deepEqual(first, { sessionId: "trimmed", head: 8, epoch: "e" });
  assert.equal(second?.error?.code, -32000);
  assert.throws(() => host.append("none", { type: "x", data: {} }), /give it one/);
  await client.close();
});
