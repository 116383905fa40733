import type {
  Delivery, Frames, SessionAdded, SessionBase, SessionRemoved, SessionSubscribed, SessionUnsubscribed, Subscribed, SubscribeParams, SubscribeSession, UnsubscribeParams,
} from "./gen.js";
import { ConnectionError } from "./errors.js";
import { isObject } from "./shape.js";
import { readEvent, sessionOf } from "./wire.js";
import type { Frame } from "./wire.js";

/** What is remembered of one subscribed session. */
interface Cursor {
  /** The last durable event taken. */
  have: number;
  epoch: string;
  delivery: Delivery | undefined;
  /** Named by the user; others are in a tree. */
  explicit: boolean;
  tree: boolean;
  /** A subscription of the user's whose `session/subscribed` is due: it says where the cursor stands. */
  fresh: boolean;
  /** Parts of a base to come, after which `have` is `base`. A connection that breaks before is resumed from 0. */
  parts: number;
  base: number;
}

/** What becomes of a frame: it goes to the consumer, after a reset of its session. */
export interface Verdict {
  pass: boolean;
  reset: boolean;
}

const pass: Verdict = { pass: true, reset: false };
const drop: Verdict = { pass: false, reset: false };

/** How many sessions one call names; a call is one message. */
const maxNamed = 2000;

/** Remembers the subscriptions. Frames move their cursors. */
export class Book {
  private readonly cursors = new Map<string, Cursor>();
  private readonly parents = new Map<string, string>();
  /** Taken out of a tree. */
  private readonly left = new Set<string>();
  private host = false;
  private hostDelivery: Delivery | undefined;

  /** Moves the cursors by one frame. What it throws means that the connection must be taken up again. */
  take(f: Frame): Verdict {
    const session = sessionOf(f);
    const take = Object.hasOwn(frameRules, f.method) ? frameRules[f.method as keyof Frames] : undefined;
    if (!take) return pass;
    if (!isObject(f.params)) throw new ConnectionError(1002, `the host sent ${f.method} without params`);
    return (take as (b: Book, p: unknown, session: string) => Verdict)(this, f.params, session);
  }

  added(p: SessionAdded): Verdict {
    this.parents.set(p.sessionId, p.session.parentSessionId ?? "");
    return pass;
  }

  removed(p: SessionRemoved): Verdict {
    if (p.reason === "deleted") this.parents.delete(p.sessionId);
    return pass;
  }

  /** Opens a subscription: of a session born in a tree, or of one that the user or the resume asked for. */
  subscribed(p: SessionSubscribed): Verdict {
    const start = p.since === 0 && p.first > 1 ? p.first - 1 : p.since; // the base stands for what was trimmed
    const parts = p.base === undefined ? (p.baseParts ?? 0) : 0;
    const based = parts > 0 || (p.base !== undefined && p.base !== null);
    let cur = this.cursors.get(p.sessionId);
    let reset = false;
    if (!cur) {
      if (this.left.has(p.sessionId)) return drop;
      cur = newCursor(start, this.treeAbove(p.sessionId)?.cursor.delivery);
      this.cursors.set(p.sessionId, cur);
    } else if (cur.epoch !== "" && cur.epoch !== p.epoch) {
      reset = true;
      cur.have = start;
    } else if (cur.fresh || (start > cur.have && p.since === 0 && !(based && cur.have > 0))) cur.have = start;
    else if (based && cur.have > 0 && start !== cur.have) {
      reset = true; // the base replaces what was folded
      cur.have = start;
    } else if (start > cur.have) throw gap(`session ${p.sessionId} resumed at ${start}, want ${cur.have}`);
    cur.epoch = p.epoch;
    cur.fresh = false;
    cur.parts = parts;
    if (parts > 0) {
      cur.base = cur.have;
      cur.have = 0;
    }
    return { pass: true, reset };
  }

  /** Takes one part of a base. The cursor stands behind it with the last. */
  part(p: SessionBase): Verdict {
    const cur = this.cursors.get(p.sessionId);
    if (!cur) return drop;
    if (cur.parts === 0 || p.part !== p.parts - cur.parts) {
      throw gap(`session ${p.sessionId}, part ${p.part} of ${p.parts} of its base came with ${cur.parts} to come`);
    }
    if (--cur.parts === 0) cur.have = cur.base;
    return pass;
  }

  /** Passes each durable event once and in order. */
  event(session: string, event: unknown): Verdict {
    const cur = this.cursors.get(session);
    if (!cur) return drop;
    const e = readEvent(event);
    if (e.seq === 0) {
      if (e.after <= cur.have) return pass;
      throw gap(`session ${session}, a live event after ${e.after}, the last was ${cur.have}`);
    }
    if (e.seq <= cur.have) return drop;
    if (e.seq > cur.have + 1) throw gap(`session ${session}, got ${e.seq} after ${cur.have}`);
    cur.have = e.seq;
    return pass;
  }

  /** Passes what is live of a subscribed session. */
  live(session: string): Verdict {
    return this.cursors.has(session) ? pass : drop;
  }

  unsubscribed(p: SessionUnsubscribed): Verdict {
    if (p.reason === "cursor-expired") throw new ConnectionError(1000, `the host ended the subscription of ${p.sessionId}: its cursor expired`);
    this.cursors.delete(p.sessionId);
    return pass;
  }

  /** The nearest subscribed tree that the session is in, not as its root. */
  private treeAbove(session: string): { root: string; cursor: Cursor } | undefined {
    let root = session;
    for (let i = 0; i < this.parents.size; i++) {
      root = this.parents.get(root) ?? "";
      if (root === "") return undefined;
      const cursor = this.cursors.get(root);
      if (cursor?.tree) return { root, cursor };
    }
    return undefined;
  }

  /** Remembers what the user subscribed, when the response is read. */
  accept(p: SubscribeParams, results: readonly Subscribed[]): void {
    if (p.host) {
      this.host = true;
      this.hostDelivery = p.delivery ?? this.hostDelivery;
    }
    const named = new Map((p.sessions ?? []).map((s) => [s.sessionId, s]));
    const replay = (p.sessions ?? []).some((s) => (s.tree || p.tree) && s.since !== undefined); // descendants that were not named start at 0
    for (const r of results) if (!r.error) this.acceptOne(p, named.get(r.sessionId), replay, r);
  }

  private acceptOne(p: SubscribeParams, s: SubscribeSession | undefined, replay: boolean, r: Subscribed): void {
    const cur = this.cursors.get(r.sessionId) ?? newCursor(r.head, undefined);
    this.cursors.set(r.sessionId, cur);
    cur.fresh = true;
    if (r.epoch) cur.epoch = r.epoch;
    cur.delivery = p.delivery ?? cur.delivery;
    this.left.delete(r.sessionId);
    if (s) {
      cur.explicit = true;
      cur.tree = (s.tree || p.tree) ?? false;
      if (s.since !== undefined) cur.have = s.since;
    } else if (replay) cur.have = 0;
  }

  /** Drops what the user unsubscribed: sessions, and the trees below them. */
  forget(p: UnsubscribeParams): void {
    if (p.host) {
      this.host = false;
      this.hostDelivery = undefined;
    }
    for (const session of p.sessions ?? []) {
      if (this.treeAbove(session)) this.left.add(session);
      if (this.cursors.get(session)?.tree) this.forgetBelow(session);
      this.cursors.delete(session);
    }
  }

  /** Drops the descendants of a tree that are in it and no other way. */
  private forgetBelow(root: string): void {
    for (const [session, cur] of this.cursors) {
      if (!cur.explicit && this.treeAbove(session)?.root === root) this.cursors.delete(session);
    }
    for (const session of this.left) if (this.treeAbove(session)?.root === root) this.left.delete(session);
  }

  /** Makes a session start anew: its log was replaced or trimmed. It returns the call for that; the descendants of a tree are named with their cursors. */
  restart(session: string): SubscribeParams | undefined {
    const cur = this.cursors.get(session);
    if (!cur) return undefined;
    cur.have = cur.parts = 0;
    cur.epoch = "";
    const sessions = [entry(session, cur)];
    for (const [below, c] of this.cursors) {
      if (cur.tree && sessions.length < maxNamed && this.treeAbove(below)?.root === session) sessions.push(entry(below, c));
    }
    return call(sessions, cur.delivery);
  }

  /** Drops a session that is gone. */
  remove(session: string): void {
    this.cursors.delete(session);
  }

  /** The calls that subscribe everything again, each session from its cursor, and the sessions to leave out of their trees. */
  resumption(): { calls: SubscribeParams[]; left: string[] } {
    const calls: SubscribeParams[] = [];
    if (this.host) calls.push({ host: true, ...(this.hostDelivery && { delivery: this.hostDelivery }) });
    const at = new Map<string, number>(); // the call that names a session
    for (const session of this.topDown()) {
      const cur = this.cursors.get(session) as Cursor;
      const above = this.treeAbove(session);
      let i = above ? (at.get(above.root) ?? 0) : 0; // a call that resumes a tree must not come after one that names its members
      while (i < calls.length && !fits(calls[i] as SubscribeParams, cur)) i++;
      if (i === calls.length) calls.push(call([], cur.delivery));
      const target = calls[i] as SubscribeParams;
      target.sessions = [...(target.sessions ?? []), entry(session, cur)];
      at.set(session, i);
    }
    return { calls, left: [...this.left].sort() };
  }

  /** The subscribed sessions, a tree's root before its members. */
  private topDown(): string[] {
    const depth = (session: string): number => {
      let n = 0;
      for (let up = this.treeAbove(session); up && n <= this.cursors.size; up = this.treeAbove(up.root)) n++;
      return n;
    };
    const all = [...this.cursors.keys()].map((session) => ({ session, depth: depth(session) }));
    return all.sort((a, b) => a.depth - b.depth || (a.session < b.session ? -1 : 1)).map((s) => s.session);
  }
}

function newCursor(have: number, delivery: Delivery | undefined): Cursor {
  return { have, epoch: "", delivery, explicit: false, tree: false, fresh: false, parts: 0, base: 0 };
}

function entry(sessionId: string, cur: Cursor): SubscribeSession {
  return { sessionId, since: cur.have, ...(cur.epoch && { epoch: cur.epoch }), ...(cur.tree && { tree: true }) };
}

function call(sessions: SubscribeSession[], delivery: Delivery | undefined): SubscribeParams {
  return { sessions, ...(delivery && { delivery }) };
}

function fits(to: SubscribeParams, cur: Cursor): boolean {
  const [a, b] = [to.delivery, cur.delivery];
  const same = a === b || (a !== undefined && b !== undefined && a.text === b.text && a.reasoning === b.reasoning && a.tools === b.tools);
  return same && (to.sessions?.length ?? 0) < maxNamed;
}

function gap(what: string): ConnectionError {
  return new ConnectionError(1000, `the host left out a durable event: ${what}`);
}

const frameRules: { readonly [T in keyof Frames]?: (b: Book, p: Frames[T], session: string) => Verdict } = {
  "mux/heartbeat": () => drop,
  "host/session-added": (b, p) => b.added(p),
  "host/session-removed": (b, p) => b.removed(p),
  "session/subscribed": (b, p) => b.subscribed(p),
  "session/base": (b, p) => b.part(p),
  "session/event": (b, p, session) => b.event(session, p.event),
  "session/live": (b, _, session) => b.live(session),
  "session/lagging": (b, _, session) => b.live(session),
  "session/unsubscribed": (b, p) => b.unsubscribed(p),
};
