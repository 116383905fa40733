import assert from "node:assert/strict";
import { test } from "node:test";
import { MuxClient } from "@muxhost/client";
import type { Frame } from "@muxhost/client";
import { applyEvent, applyFrame, newView } from "@muxhost/client/fold";
import { MockTransport } from "@muxhost/client/mock";
import { eventShapes, frameShapes, shapes } from "@muxhost/client/protocol";
import { Random } from "./random.js";
import { vectors } from "./vectors.js";

const ts = "2026-01-01T00:00:00.000Z";

const seeds = Array.from({ length: 40 }, (_, i) => i + 1);

// Whatever a newer host or an agent of its own says arrives as it was sent: unknown frames, unknown events, unknown members at any depth.
test("unknown frames, events and fields pass through the client", async () => {
  for (const seed of seeds) {
    const r = new Random(seed);
    const host = new MockTransport();
    host.session("s");
    const client = new MuxClient({ url: "http://h", WebSocket: host.WebSocket });
    await client.subscribe({ sessions: [{ sessionId: "s", since: 0 }] });
    const sent: string[] = [];
    const push = (method: string, params: unknown): void => {
      sent.push(JSON.stringify({ method, params }));
      host.push(method, params);
    };
    for (let seq = 1; seq <= 30; seq++) {
      const event = { type: `vendor.${r.name()}/x`, seq, ts, ...r.object(), data: r.object() };
      push("session/event", { ...r.object(), sessionId: "s", event: { ...event, seq, type: event.type } });
      push(`vendor.${r.name()}/frame`, r.pick<unknown>(r.object(), [r.json()]));
      push("session/lagging", { ...r.object(), sessionId: "s" });
    }
    const got: string[] = [];
    for await (const f of client.frames()) {
      if (f.method === "session/subscribed" || f.method === "session/live") continue;
      got.push(JSON.stringify({ method: f.method, params: f.params }));
      if (got.length === sent.length) break;
    }
    assert.deepEqual(got, sent, `seed ${seed}`);
    await client.close();
  }
});

// An event of an unknown type moves seq on and changes nothing else.
test("unknown events leave the view as it is", () => {
  for (const seed of seeds) {
    const r = new Random(seed);
    const v = newView();
    applyEvent(v, { type: "turn/start", seq: 1, ts, turnId: "t", data: { trigger: "prompt" } });
    for (let seq = 2; seq < 50; seq++) {
      const before = { ...v.toJSON(), seq };
      assert.equal(applyEvent(v, { ...r.object(), type: r.pick("constructor", "toString", "__proto__", `vendor.${r.name()}/x`), seq, ts, turnId: "t", data: r.object() }), undefined);
      assert.equal(applyEvent(v, { type: "vendor/live", after: seq, ts, turnId: "t", data: r.object() }), undefined);
      assert.equal(applyFrame(v, { method: r.pick("constructor", "hasOwnProperty", "vendor/x"), params: r.json() }), undefined);
      assert.deepEqual(v.toJSON(), before, `seed ${seed}`);
    }
  }
});

/** The value of a shape with unknown members put in at every depth of it. */
function extended(r: Random, word: string, v: unknown): unknown {
  if (word.startsWith("[]")) return Array.isArray(v) ? v.map((e) => extended(r, word.slice(2), e)) : v;
  const fields = shapes[word.replaceAll(/[*?]/g, "")];
  if (!fields || typeof v !== "object" || v === null || Array.isArray(v)) return v;
  const out: { [name: string]: unknown } = { "x-new": r.json() };
  for (const [name, value] of Object.entries(v)) out[name] = fields[name] ? extended(r, fields[name].replace("?", ""), value) : value;
  return out;
}

// Members that the contract does not know, at any depth of what it knows, change no view: every vector folds to the same with them.
test("unknown fields leave the fold as it is", () => {
  let frames = 0;
  for (const { name, vector } of vectors<{ session: string; frames: Frame[] }>("fold")) {
    const r = new Random(name.length);
    const [plain, more] = [newView(), newView()];
    for (const f of vector.frames) {
      const p = f.params as { event?: { type: string; data: unknown } } | undefined;
      let params: unknown = p;
      if (p?.event && Object.hasOwn(eventShapes, p.event.type)) {
        params = { ...p, x: r.json(), event: { "x-new": r.json(), ...p.event, data: extended(r, eventShapes[p.event.type as keyof typeof eventShapes], p.event.data) } };
      } else if (Object.hasOwn(frameShapes, f.method)) params = extended(r, frameShapes[f.method as keyof typeof frameShapes], p);
      assert.equal(applyFrame(plain, f)?.kind, applyFrame(more, { ...f, params })?.kind, name);
      assert.deepEqual(more.toJSON(), plain.toJSON(), name);
      frames++;
    }
  }
  assert.ok(frames > 500, `${frames} frames`);
});
