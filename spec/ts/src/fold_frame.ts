import { Stream } from "./bytes.js";
import { durable } from "./fold_event.js";
import { freshLive, over } from "./fold_turn.js";
import { eventShapes, frameShapes } from "./gen.js";
import type {
  AssistantDelta, Events, Frames, LiveTurn, SessionBase, SessionLive, SessionSubscribed, ToolProgress, View, ViewPending,
} from "./gen.js";
import { isObject, read } from "./shape.js";
import { defined, reindex, SessionView, settle } from "./view.js";
import { readEvent } from "./wire.js";
import type { Envelope, Frame } from "./wire.js";

/** What was wrong with a frame or an event. */
export class FoldIssue extends Error {
  override name = "FoldIssue";
  /**
   * `gap`: a durable event was missed; this one was applied, and the view lacks what came between. `malformed`: it is not what the contract says; an
   * event with a readable envelope moved `seq` on, nothing else changed.
   */
  readonly kind: "gap" | "malformed";

  constructor(kind: FoldIssue["kind"], message: string) {
    super(message);
    this.kind = kind;
  }
}

/** The view of a session before its first event, or one that goes on from the JSON of a view. A view that is none throws. */
export function newView(json?: View): SessionView {
  const v = new SessionView();
  if (json !== undefined) restore(v, json);
  return v;
}

/**
 * Applies the next frame of the view's session, or `host/subscribed`, to the view, in place. Which frames are this session's is the caller's to pick out;
 * frames of other kinds and unknown ones change nothing. It returns what was wrong, undefined for nothing, and never throws. The frame is not changed; the
 * view may keep parts of it.
 */
export function applyFrame(v: SessionView, frame: Frame): FoldIssue | undefined {
  const apply = Object.hasOwn(frameFolds, frame.method) ? frameFolds[frame.method as keyof Frames] : undefined;
  if (!apply) return undefined;
  return guarded(() => {
    const params = frame.params === undefined ? {} : frame.params;
    return (apply as (v: SessionView, p: unknown) => FoldIssue | undefined)(v, read(frameShapes[frame.method as keyof Frames], params));
  });
}

/**
 * Applies the session's next event to the view, in place. An event that was applied before is ignored, one of an unknown type moves `seq` on. It returns what
 * was wrong, undefined for nothing, and never throws. Applying n events costs O(n) in all.
 */
export function applyEvent(v: SessionView, event: object): FoldIssue | undefined {
  return guarded(() => takeEvent(v, event));
}

function guarded(f: () => FoldIssue | undefined): FoldIssue | undefined {
  try {
    return f();
  } catch (err) {
    return new FoldIssue("malformed", err instanceof Error ? err.message : String(err));
  }
}

const frameFolds: { readonly [T in keyof Frames]?: (v: SessionView, p: Frames[T]) => FoldIssue | undefined } = {
  "session/event": (v, p) => takeEvent(v, p.event),
  "session/subscribed": subscribe,
  "session/base": takeBase,
  "session/live": (v, p) => void snapshot(v, p),
  "session/lagging": (v) => void (v.lagging = true),
  "host/subscribed": (v) => void voidCards(v),
  "host/session-status": (v, p) => void (v.status = p.state),
  "approval/requested": (v, p) => void request(v, { ...p, kind: "approval" }),
  "question/requested": (v, p) => void request(v, { ...p, kind: "question" }),
  "approval/resolved": (v, p) => void resolve(v, p.id),
  "question/resolved": (v, p) => void resolve(v, p.id),
};

function takeEvent(v: SessionView, event: unknown): FoldIssue | undefined {
  const e = readEvent(event);
  if (e.seq === 0) return applyLive(v, e), undefined;
  if (e.seq <= v.seq) return undefined;
  const before = v.seq;
  v.seq = e.seq;
  if (Object.hasOwn(eventShapes, e.type)) {
    const type = e.type as keyof Events;
    const payload = read<never>(eventShapes[type], e.data);
    durable[type]?.(v, e, payload);
  }
  if (before > 0 && e.seq !== before + 1) return new FoldIssue("gap", `a durable event was missed: got seq ${e.seq} after ${before}`);
  return undefined;
}

/** Applies a delta to the open turn. */
function applyLive(v: SessionView, e: Envelope): void {
  if (e.type !== "assistant/delta" && e.type !== "reasoning/delta" && e.type !== "tool/progress") return;
  const payload = read<AssistantDelta & ToolProgress>(eventShapes[e.type], e.data);
  const live = v.index.live;
  if (!live || (e.turnId !== "" && e.turnId !== live.id)) {
    if (e.turnId !== "" && !over(v, e.turnId)) v.gaps = true; // a turn whose start was not seen
    return;
  }
  const whole = e.type === "tool/progress" ? live.progress(payload) : live.delta(e.type === "assistant/delta" ? "assistant" : "reasoning", payload);
  if (!whole) v.gaps = true;
}

/**
 * Begins a baseline: it voids all cards, and a base replaces the view, at once or when its last part came. So does a log of another epoch, when it comes from
 * its start.
 */
function subscribe(v: SessionView, p: SessionSubscribed): undefined {
  const parts = p.baseParts ?? 0;
  if (p.base !== undefined && p.base !== null) replace(v, newView(p.base));
  else if (parts <= 0 && p.since === 0 && v.epoch !== "" && p.epoch !== v.epoch) replace(v, new SessionView());
  v.epoch = p.epoch;
  v.subscribed = true;
  v.index.more = false;
  v.partialBase = parts > 0 ? { part: 0, parts, text: "" } : undefined;
  voidCards(v);
  v.status = p.state;
}

/** Takes the next part of a base; the last one replaces the view, but for what the subscription said. */
function takeBase(v: SessionView, p: SessionBase): FoldIssue | undefined {
  const so = v.partialBase;
  v.partialBase = undefined;
  if (!so || p.part !== so.part || p.parts !== so.parts) {
    const want = so ? `${so.part} of ${so.parts}` : "a session/subscribed that announces it";
    return new FoldIssue("malformed", `base: part ${p.part} of ${p.parts} came, want ${want}: subscribe again`);
  }
  const next = { part: so.part + 1, parts: so.parts, text: so.text + p.text };
  if (next.part < next.parts) {
    v.partialBase = next;
    return undefined;
  }
  const base = newView(JSON.parse(next.text) as View);
  for (const { id } of base.pending) resolve(base, id);
  base.epoch = v.epoch;
  base.status = v.status;
  base.subscribed = v.subscribed;
  base.partialBase = undefined;
  replace(v, base);
  return undefined;
}

function replace(v: SessionView, by: SessionView): void {
  Object.assign(v, by);
}

/** Takes every card away; a baseline repeats those that still wait. */
function voidCards(v: SessionView): void {
  for (const id of [...v.index.pending.keys()]) resolve(v, id);
  settle(v);
}

/** Shows a card. What its audit event said stands. */
function request(v: SessionView, p: object): void {
  const asked = read<ViewPending>("ViewPending", p);
  const old = v.index.pending.get(asked.id);
  v.index.putPending({ ...(old?.seq ? old : asked), card: true });
  settle(v);
}

/** Takes a card away. Its history ends with the audit event. */
function resolve(v: SessionView, id: string): void {
  const p = v.index.pending.get(id);
  if (p && !p.seq) v.index.dropPending(id);
  else if (p) v.index.putPending(defined({ ...p, card: undefined }));
  settle(v);
}

/** Replaces what is live with the snapshot, part by part. What is over by now stays over. */
function snapshot(v: SessionView, p: SessionLive): void {
  const first = !v.index.more;
  v.index.more = p.more ?? false;
  if (first) v.gaps = false;
  if (!p.more) v.lagging = false;
  if (!p.turn) v.index.live = v.turnId === "" ? undefined : freshLive(v, v.turnId);
  else if (!over(v, p.turn.turnId)) {
    if (first || v.index.live?.id !== p.turn.turnId) v.index.live = freshLive(v, p.turn.turnId);
    load(v, p.turn);
  }
  settle(v);
}

/** Adds a snapshot's texts to the open turn. */
function load(v: SessionView, turn: LiveTurn): void {
  const live = v.index.live;
  if (!live) return;
  for (const b of turn.blocks ?? []) {
    if (live.closed.has(b.block)) continue;
    let have = live.blocks.get(b.block);
    if (!have || !b.offset) {
      have = { kind: b.kind, stream: new Stream() };
      live.blocks.set(b.block, have);
    }
    loadText(v, have.stream, b);
  }
  for (const t of turn.tools ?? []) {
    let have = live.tools.get(t.callId);
    if (!have) {
      if (v.index.calls.has(t.callId)) continue; // over by now
      have = live.openTool(t.callId);
    } else if (!t.offset) have.clear();
    loadText(v, have, t);
    have.keepTail();
  }
}

/** Appends one piece of a text. */
function loadText(v: SessionView, s: Stream, piece: { text: string; offset?: number; to: number }): void {
  if ((piece.offset ?? 0) !== s.bytes) {
    v.gaps = true;
    return;
  }
  s.append(piece.text);
  s.to = piece.to;
}

/** Makes a new view that of the JSON. */
function restore(v: SessionView, json: unknown): void {
  const { pending, children, tasks, queue, surface, closedBlocks, live, ...plain } = read<View>("View", isObject(json) ? json : null);
  if (!isObject(json)) throw new TypeError("view: want an object");
  Object.assign(v, plain);
  const { seqs: _, ...compacted } = surface;
  v.index.compacted = compacted;
  for (const p of pending) v.index.putPending(p);
  for (const c of children) v.index.children.set(c.sessionId, c);
  for (const t of tasks) v.index.tasks.set(t.taskId, t);
  for (const q of queue) v.index.queue.set(q.promptId, q);
  for (const n of closedBlocks ?? []) v.index.closed.add(n);
  reindex(v);
  if (v.turnId !== "") v.index.live = freshLive(v, v.turnId);
  if (!live) return;
  if (v.index.live?.id !== live.turnId) v.index.live = freshLive(v, live.turnId);
  load(v, live);
  for (const { callId } of live.tools ?? []) v.index.live.toEnd(callId); // the order also of calls that have no card
}

/**
 * What folding the log alone gives, as JSON: nothing in it came only from frames and live-only events. Of a turn that is open, `live` tells the running tools.
 */
export function durableView(v: SessionView): View {
  const { epoch: _e, gaps: _g, lagging: _l, live: _t, subscribed: _s, partialBase: _b, ...json } = v.toJSON();
  const pending = json.pending.filter((p) => p.seq).map(({ card: _, ...p }) => p);
  const status = v.index.asked > 0 ? "requires-action" : v.turnId !== "" ? "running" : "idle";
  return newView({ ...json, status, pending }).toJSON();
}
