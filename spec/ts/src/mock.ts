import type { EventEnvelope, SubscribeParams } from "./gen.js";
import { isObject } from "./shape.js";
import type { WebSocketEvent, WebSocketLike, WebSocketMaker } from "./socket.js";
import type { Frame } from "./wire.js";

/** A call that a client made. */
export interface MockCall {
  method: string;
  params: unknown;
  /** Which connection it came over, from 1. */
  connection: number;
}

/** Answers a call: with a result, or by throwing a {@link MockError}. `undefined` answers nothing; the test does it later. */
export type MockHandler = (params: never, call: MockCall) => unknown;

/** What a handler throws to answer with an error. */
export class MockError extends Error {
  readonly code: number;
  readonly data: unknown;

  constructor(kind: string, details?: unknown, code = -32000) {
    super(kind);
    this.code = code;
    this.data = code === -32000 ? { kind, details } : details;
  }
}

/** A session of the mock. */
interface MockSession {
  epoch: string;
  events: EventEnvelope[];
  /** The oldest seq kept. */
  first: number;
}

/** A vector of spec/vectors/fold, or any other list of frames. */
export interface Replay {
  frames: readonly { method: string; params?: unknown }[];
}

/**
 * A host in memory: its `WebSocket` connects clients to it, so that code which shows sessions can be tested without a host and without a network. It serves
 * `mux.subscribe` from the sessions it was given, and all else by handlers. It has no clock: messages travel in microtasks.
 */
export class MockTransport {
  /** For the client's option of this name. */
  readonly WebSocket: WebSocketMaker;
  /** Every call so far, in order. */
  readonly calls: MockCall[] = [];
  /** How many connections were asked for. */
  connections = 0;
  /** While it is set, connections are refused with this HTTP status; 0 for none, as where no host is. */
  refuse: number | undefined;

  private readonly handlers = new Map<string, MockHandler>();
  private readonly sessions = new Map<string, MockSession>();
  private socket: MockSocket | undefined;

  constructor() {
    const host = this;
    this.WebSocket = class extends MockSocket {
      constructor(_url: string, _protocols?: string[], init?: { headers: Record<string, string> }) {
        super(host, init?.headers ?? {});
      }
    };
    this.handle("mux.subscribe", (p: SubscribeParams) => this.subscribe(p));
    this.handle("mux.unsubscribe", () => ({}));
  }

  /** The connection that is open, if one is. */
  get connected(): boolean {
    return this.socket?.readyState === 1;
  }

  /** The headers of the last connection's handshake. */
  get headers(): Record<string, string> {
    return this.socket?.headers ?? {};
  }

  /** Answers calls of a method from now on. */
  handle(method: string, handler: MockHandler): void {
    this.handlers.set(method, handler);
  }

  /** Gives the mock a session, or replaces its log, that subscriptions are served from. */
  session(id: string, events: EventEnvelope[] = [], epoch = "epoch", first = 1): void {
    this.sessions.set(id, { events: [...events], epoch, first });
  }

  /** Adds an event to a session and pushes it. Without `seq` and `after` it is durable and gets the next number. */
  append(id: string, event: Omit<EventEnvelope, "ts"> & { ts?: string }): void {
    const s = this.mustSession(id);
    const full = { ts: "2026-01-01T00:00:00.000Z", ...event };
    if (event.after === undefined) {
      full.seq ??= head(s) + 1;
      s.events.push(full);
    }
    this.push("session/event", { sessionId: id, event: full });
  }

  /** Pushes a frame over the open connection, if there is one. */
  push(method: string, params?: unknown): void {
    this.socket?.deliver({ jsonrpc: "2.0", method, ...(params !== undefined && { params }) });
  }

  /** Pushes all frames of a vector. */
  replay(vector: Replay): void {
    for (const f of vector.frames) this.push(f.method, f.params);
  }

  /** Ends the open connection with a close code. */
  drop(code = 1006, reason = ""): void {
    this.socket?.ended(code, reason);
  }

  /** Pushes text that need not be JSON. */
  pushRaw(text: string): void {
    this.socket?.deliver(text);
  }

  /** @internal */
  attach(socket: MockSocket): void {
    this.connections++;
    this.socket = socket;
    const status = this.refuse;
    queueMicrotask(() => (status === undefined ? socket.opened() : socket.refused(status)));
  }

  /** @internal */
  receive(text: string): void {
    const m: unknown = JSON.parse(text);
    if (!isObject(m)) return;
    const call = { method: String(m["method"]), params: m["params"], connection: this.connections };
    this.calls.push(call);
    const handler = this.handlers.get(call.method);
    const socket = this.socket;
    const answer = (a: object): void => socket?.deliver({ jsonrpc: "2.0", id: m["id"], ...a });
    if (!handler) return answer({ error: { code: -32601, message: `the mock has no handler for ${call.method}` } });
    try {
      const result = handler(call.params as never, call);
      if (result !== undefined) answer({ result });
    } catch (err) {
      const { code = -32603, message, data } = err as { code?: number; message: string; data?: unknown };
      answer({ error: { code, message, data } });
    }
  }

  private mustSession(id: string): MockSession {
    const s = this.sessions.get(id);
    if (!s) throw new Error(`the mock has no session ${id}; give it one with session()`);
    return s;
  }

  /** Serves a subscription: the response, then the baseline, the events after the cursor, and `session/live`. */
  private subscribe(p: SubscribeParams): unknown {
    const results: object[] = [];
    const frames: Frame[] = p.host ? [{ method: "host/subscribed", params: {} }, { method: "host/live", params: {} }] : [];
    for (const { sessionId, since, epoch } of p.sessions ?? []) {
      const s = this.sessions.get(sessionId);
      const flaw = subscribeFlaw(s, since, epoch);
      if (!s || flaw) {
        if (p.sessions?.length === 1 && !p.host) throw flaw;
        results.push({ sessionId, head: 0, error: { code: -32000, message: flaw?.message, data: flaw?.data } });
        continue;
      }
      results.push({ sessionId, head: head(s), epoch: s.epoch });
      frames.push(...baseline(sessionId, s, since ?? head(s)));
    }
    queueMicrotask(() => {
      for (const f of frames) this.push(f.method, f.params);
    });
    return results;
  }
}

function head(s: MockSession): number {
  return s.events.at(-1)?.seq ?? s.first - 1;
}

function subscribeFlaw(s: MockSession | undefined, since: number | undefined, epoch: string | undefined): MockError | undefined {
  if (!s) return new MockError("session-not-found");
  const expired = (since !== undefined && since > 0 && since < s.first - 1) || (epoch && epoch !== s.epoch);
  if (expired) return new MockError("cursor-expired", { first: s.first, head: head(s), epoch: s.epoch });
  if (since !== undefined && since > head(s)) return new MockError("cursor-ahead", { head: head(s) });
  return undefined;
}

function baseline(sessionId: string, s: MockSession, since: number): Frame[] {
  const rest = s.events.filter((e) => (e.seq ?? 0) > since);
  return [
    { method: "session/subscribed", params: { sessionId, since, head: head(s), first: s.first, epoch: s.epoch, state: "idle", pending: 0 } },
    ...rest.map((event) => ({ method: "session/event", params: { sessionId, event } })),
    { method: "session/live", params: { sessionId, seq: head(s), turn: null } },
  ];
}

/** The client's end of a connection to the mock. */
class MockSocket implements WebSocketLike {
  static readonly headers = true;
  protocol = "";
  status?: number;
  readyState = 0;
  readonly headers: Record<string, string>;
  private readonly host: MockTransport;
  private readonly listeners = new Map<string, ((event: WebSocketEvent) => void)[]>();

  constructor(host: MockTransport, headers: Record<string, string>) {
    this.host = host;
    this.headers = headers;
    host.attach(this);
  }

  addEventListener(type: string, listener: (event: WebSocketEvent) => void): void {
    this.listeners.set(type, [...(this.listeners.get(type) ?? []), listener]);
  }

  send(data: string): void {
    if (this.readyState === 1) queueMicrotask(() => this.host.receive(data));
  }

  close(code = 1000, reason = ""): void {
    queueMicrotask(() => this.ended(code, reason));
  }

  /** @internal */
  opened(): void {
    if (this.readyState !== 0) return;
    this.protocol = "muxhost.v1";
    this.readyState = 1;
    this.emit("open", {});
  }

  /** @internal */
  refused(status: number): void {
    if (status > 0) this.status = status;
    this.emit("error", { message: `the mock answered ${status}` });
    this.ended(1006, "");
  }

  /** @internal */
  ended(code: number, reason: string): void {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.emit("close", { code, reason });
  }

  /** @internal */
  deliver(message: object | string): void {
    const data = typeof message === "string" ? message : JSON.stringify(message);
    queueMicrotask(() => {
      if (this.readyState === 1) this.emit("message", { data });
    });
  }

  private emit(type: string, event: object): void {
    for (const listener of this.listeners.get(type) ?? []) listener({ type, ...event });
  }
}
