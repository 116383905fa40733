import assert from "node:assert/strict";
import { test } from "node:test";
import { applyEvent, applyFrame, byteLength, durableView, Folder, newView } from "@muxhost/client/fold";
import type { View } from "@muxhost/client/fold";

const ts = "2026-01-01T00:00:00.000Z";

/** Applies durable events, numbered on. */
function fold(v: ReturnType<typeof newView>, ...events: { type: string; data: object; turnId?: string }[]): void {
  for (const e of events) assert.equal(applyEvent(v, { ts, turnId: "t", seq: v.seq + 1, ...e }), undefined);
}

const start = { type: "turn/start", data: { trigger: "prompt" } };
const call = (callId: string): { type: string; data: object } => ({ type: "tool/call", data: { callId, name: "sh" } });

// What changes is a new object, what does not is the same: a screen draws by ===.
test("items that change are replaced, others stay", () => {
  const v = newView();
  fold(v, start, call("a"), call("b"));
  const [a, b] = v.items;
  fold(v, { type: "tool/result", data: { callId: "b", content: [{ type: "text", text: "x" }], isError: false, durationMs: 1 } });
  assert.equal(v.items[0], a);
  assert.notEqual(v.items[1], b);
  assert.deepEqual(b?.tool, { callId: "b", name: "sh", running: true }, "the old one did not change");
  fold(v, { type: "approval/asked", data: { id: "p", callId: "a", tool: { name: "sh" } } });
  assert.notEqual(v.items[0], a);
  assert.equal(a?.tool?.decisions, undefined, "nor did this one");
});

// The JSON of a view shares nothing with it.
test("toJSON is a copy", () => {
  const v = newView();
  fold(v, start, call("a"));
  const before = v.toJSON();
  const text = JSON.stringify(before);
  fold(v, { type: "turn/end", data: { reason: "completed" } }, { type: "todo/write", data: { todos: [{ content: "x", status: "pending" }] } });
  assert.equal(JSON.stringify(before), text);
  assert.equal(JSON.stringify(newView(before)), text);
});

// Malformed input is returned as an issue, whatever it is; it never throws, and the view goes on.
test("nothing throws", () => {
  for (const params of [null, 1, "x", [], {}, { event: null }, { event: [] }, { event: { type: "turn/start" } }, { event: { type: "x", data: {}, seq: 1.5 } }, { event: { type: 1, data: {} } }]) {
    const v = newView();
    assert.equal(applyFrame(v, { method: "session/event", params })?.kind, "malformed", JSON.stringify(params));
    assert.equal(v.seq, 0);
    fold(v, start);
    assert.equal(v.status, "running");
  }
  assert.throws(() => newView({ items: [null] } as unknown as View), /item 0/);
  assert.throws(() => newView([] as unknown as View), /want an object/);
});

// The tail of a tool's progress is cut by bytes, at a character, wherever the cut falls.
test("progress keeps its last 64 KiB", () => {
  for (const unit of ["x", "é", "€", "😀", "a😀", "é€x"]) {
    const v = newView();
    fold(v, start, call("c"));
    let whole = "";
    for (let from = 0; whole.length < 200_000; from++) {
      const text = unit.repeat(997);
      whole += text;
      assert.equal(applyEvent(v, { type: "tool/progress", after: v.seq, ts, turnId: "t", data: { callId: "c", from, to: from + 1, text } }), undefined);
    }
    const kept = v.live?.tools?.[0]?.text ?? "";
    assert.ok(whole.endsWith(kept) && !kept.startsWith("\uDE00"), unit);
    assert.ok(byteLength(kept) <= 65536 && byteLength(kept) > 65532, `${unit}: ${byteLength(kept)} bytes`);
    assert.equal(v.gaps, false);
  }
});

// An event late in a long session costs what an early one does.
test("the cost of an event does not grow with the log", () => {
  const v = newView();
  const round = (n: number): bigint => {
    const from = process.hrtime.bigint();
    for (let i = 0; i < n; i++) {
      const id = `${v.seq}`;
      const turn = { turnId: id };
      fold(
        v, { ...start, ...turn }, { ...call(id), ...turn }, { type: "approval/asked", ...turn, data: { id, callId: id, tool: { name: "sh" } } },
        { type: "approval/decided", ...turn, data: { id, outcome: "rejected", origin: "reply" } },
        { type: "tool/result", ...turn, data: { callId: id, content: [], isError: false, durationMs: 0 } },
        { type: "assistant/message", ...turn, data: { content: [{ type: "text", text: "x" }], blocks: [0] } }, { type: "turn/end", ...turn, data: { reason: "completed" } },
      );
    }
    return process.hrtime.bigint() - from;
  };
  round(500);
  const early = Array.from({ length: 5 }, () => round(100)).reduce((a, b) => (a < b ? a : b));
  round(6000);
  const late = Array.from({ length: 5 }, () => round(100)).reduce((a, b) => (a < b ? a : b));
  assert.ok(late < early * 8n, `100 turns took ${early} ns after 1000 turns, ${late} ns after 7500`);
});

// The durable view is what the log alone gives, whatever came beside it.
test("the durable view forgets what is live", () => {
  const log = newView();
  const v = newView();
  applyFrame(v, { method: "session/subscribed", params: { sessionId: "s", since: 0, head: 0, first: 1, epoch: "e", state: "running", pending: 1 } });
  applyFrame(v, { method: "question/requested", params: { sessionId: "s", id: "q", questions: [], askedAt: ts } });
  for (const view of [log, v]) fold(view, start, call("a"), { type: "approval/asked", data: { id: "p", tool: { name: "sh" } } });
  applyEvent(v, { type: "assistant/delta", after: 3, ts, turnId: "t", data: { block: 0, from: 0, to: 1, text: "x" } });
  assert.notDeepEqual(v.toJSON(), log.toJSON());
  assert.deepEqual(durableView(v), durableView(log));
  assert.deepEqual(durableView(log), log.toJSON());
});

// A folder keeps one view for each session, and forgets what was reset or deleted.
test("a folder keeps views", () => {
  const folder = new Folder();
  const event = (sessionId: string): { method: string; params: object } => ({ method: "session/event", params: { sessionId, event: { ts, seq: 1, type: "session/renamed", data: { title: sessionId } } } });
  assert.deepEqual(folder.apply(event("a")), { session: "a", issue: undefined });
  folder.apply(event("b"));
  folder.apply({ method: "question/requested", params: { sessionId: "b", id: "q", questions: [], askedAt: ts } });
  assert.equal(folder.views.get("b")?.status, "idle", "until a subscription says otherwise the log decides");
  folder.apply({ method: "host/subscribed", params: {} });
  assert.deepEqual([folder.views.get("a")?.title, folder.views.get("b")?.pending.length], ["a", 0]);
  folder.apply({ method: "client/reset", params: { sessionId: "a" } });
  folder.apply({ method: "host/session-removed", params: { sessionId: "b", reason: "deleted" } });
  assert.equal(folder.views.size, 0);
});
