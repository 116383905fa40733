import { Book } from "./book.js";
import { BufferFullError, ClosedError, ConnectionError, LostError, TerminalError, UnauthorizedError } from "./errors.js";
import { methods } from "./gen.js";
import type { Methods, SubscribeParams, SubscribeResult, UnsubscribeParams } from "./gen.js";
import { Link, NotSentError } from "./link.js";
import { Queue, unlessAborted } from "./queue.js";
import { resume } from "./resume.js";
import { open } from "./socket.js";
import type { WebSocketMaker } from "./socket.js";
import type { Frame } from "./wire.js";

/** What the connection does: calls can be made; every subscription runs again; coming back; ended for good. */
export type State = "connecting" | "connected" | "resumed" | "disconnected" | "closed";

/** Where the host is and who calls. */
export interface ClientOptions {
  /** `http://host:port` or `https://host:port`, or what is asked for one before each connection. */
  url: string | (() => string | Promise<string>);
  /** The token, or what is asked for one before each connection. Without it a browser's cookie speaks. */
  token?: string | (() => string | Promise<string>);
  /** Makes the WebSockets; the global one by default. Node 20 has none: pass `NodeWebSocket` of `@muxhost/client/node`. */
  WebSocket?: WebSocketMaker;
  /** What a person recognises this client by. */
  label?: string;
  /** How many seconds the host may be silent, 15 (default) to 120. After 2.5 times that without a message the connection is given up. */
  heartbeat?: number;
  /** Closes the client. */
  signal?: AbortSignal;
  /** Told of each state, in order, with why a connection ended. */
  onState?: (state: State, cause?: Error) => void;
  /** Bounds of the wait between attempts to come back, which doubles, with jitter. Default 100 and 10 000. */
  minBackoffMs?: number;
  maxBackoffMs?: number;
  /** How many characters of messages may wait for `frames()`, default 8 Mi; four times that while a call waits. */
  bufferSize?: number;
}

/** What a call may be given. */
export interface CallOptions {
  /** Gives up waiting; the host may do it nevertheless. */
  signal?: AbortSignal;
}

type Args<P> = {} extends P ? [params?: P, options?: CallOptions] : [params: P, options?: CallOptions];

/**
 * A client of a host. It holds one connection at a time and comes back by itself. Every subscription is resumed from its cursor, so that the consumer of
 * {@link MuxClient.frames} gets each durable event once and in order, whatever was cut meanwhile. Where the host cannot resume, a frame `client/reset` says so
 * and the session starts anew. A consumer that stops taking frames makes the connection be dropped; it comes back at the cursor when they are taken.
 */
export class MuxClient {
  private readonly opt: Required<Omit<ClientOptions, "signal" | "WebSocket">> & { WebSocket: WebSocketMaker };
  private readonly book = new Book();
  private readonly queue: Queue;
  private readonly stop = new AbortController();
  private readonly finished: Promise<void>;
  private readonly waiters = new Set<() => void>();
  private link: Link | undefined;
  private ended: Error | undefined;
  private current: State = "connecting";
  private gate: Promise<unknown> = Promise.resolve();
  /** Ends the wait before the next attempt. */
  private hurry: (() => void) | undefined;
  /** The last connection had every subscription running. */
  private wasResumed = false;

  /** Starts to connect at once; {@link MuxClient.ready} waits for it. */
  constructor(options: ClientOptions) {
    const make = options.WebSocket ?? (globalThis.WebSocket as WebSocketMaker | undefined);
    if (!make) throw new TypeError("there is no global WebSocket here; pass WebSocket: NodeWebSocket, from @muxhost/client/node");
    const heartbeat = Math.min(Math.max(options.heartbeat ?? 15, 15), 120);
    const defaults = { token: "", label: "", onState: () => {}, minBackoffMs: 100, maxBackoffMs: 10_000, bufferSize: 8 << 20 };
    this.opt = { ...defaults, ...options, WebSocket: make, heartbeat };
    this.queue = new Queue(this.opt.bufferSize);
    this.queue.onChange = () => this.wake();
    options.signal?.addEventListener("abort", () => this.end(new ClosedError()), { once: true });
    if (options.signal?.aborted) this.end(new ClosedError());
    this.finished = this.run();
  }

  /** What the connection does now. */
  get state(): State {
    return this.current;
  }

  /** Waits until every subscription runs on a connection. It rejects when the client ended: {@link UnauthorizedError}, {@link TerminalError}, {@link ClosedError}. */
  async ready(options: CallOptions = {}): Promise<void> {
    this.queue.waiting(1);
    try {
      await this.resumedLink(options.signal);
    } finally {
      this.queue.waiting(-1);
    }
  }

  /**
   * Makes a call; it waits for a connection if there is none. It rejects with a {@link HostError}; when the connection breaks before the response, a method that
   * only reads is called again on the next connection, and one that changes something rejects with a {@link LostError}.
   */
  async call<M extends keyof Methods>(method: M, ...args: Args<Methods[M]["params"]>): Promise<Methods[M]["result"]> {
    return (await this.request(method, args[0], args[1])) as Methods[M]["result"];
  }

  /** A call by any name, such as one that a newer host has. It is repeated only where the method is known to read. */
  async request(method: string, params?: unknown, options: CallOptions = {}): Promise<unknown> {
    if (method === "mux.subscribe") return this.subscribe(params as SubscribeParams, options);
    if (method === "mux.unsubscribe") return this.unsubscribe(params as UnsubscribeParams, options);
    const reads = Object.hasOwn(methods, method) && !methods[method as keyof Methods].changes;
    return this.persist((signal) => this.connected(signal), method, params, undefined, reads, options.signal);
  }

  /**
   * Subscribes sessions, trees or the host inbox, and remembers them: after a reconnect each is resumed from its cursor, with its delivery, a tree with all its
   * descendants. An entry that failed carries its `error` and is not remembered.
   */
  subscribe(params: SubscribeParams, options: CallOptions = {}): Promise<SubscribeResult> {
    const accept = (result: unknown): void => this.book.accept(params, result as SubscribeResult);
    return this.alone("mux.subscribe", params, accept, options.signal) as Promise<SubscribeResult>;
  }

  /** Ends subscriptions. Of a tree's root it ends the tree, of one descendant it leaves that one out. */
  async unsubscribe(params: UnsubscribeParams, options: CallOptions = {}): Promise<Methods["mux.unsubscribe"]["result"]> {
    return (await this.alone("mux.unsubscribe", params, () => this.book.forget(params), options.signal)) as Methods["mux.unsubscribe"]["result"];
  }

  /**
   * What the host pushes, in order, over all connections, as it came: unknown frames and fields are untouched. Heartbeats are left out. Beside the host's
   * frames there is `client/reset`, whose params name a `sessionId`: what was folded of it is void. It waits for more when nothing is there; it ends when the client is closed
   * or the signal given, and throws when the client ended otherwise. One loop at a time; a later one goes on where the last stopped.
   */
  async *frames(options: CallOptions = {}): AsyncGenerator<Frame, void, void> {
    for (let f = await this.queue.take(options.signal); f; f = await this.queue.take(options.signal)) yield f;
  }

  /** Comes back at once instead of after the wait, such as when a browser says that it is online. */
  retry(): void {
    this.hurry?.();
  }

  /** Ends the client: calls in flight are lost, `frames()` ends after what is buffered. */
  async close(): Promise<void> {
    this.end(new ClosedError());
    await this.finished;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  private end(cause: Error): void {
    if (this.ended) return;
    this.ended = cause;
    this.stop.abort();
    this.link?.end(cause);
    this.hurry?.();
    this.wake();
  }

  private tell(state: State, cause?: Error): void {
    this.current = state;
    try {
      this.opt.onState(state, cause);
    } catch (err) {
      queueMicrotask(() => {
        throw err; // the caller's own mistake is not the connection's
      });
    }
  }

  private wake(): void {
    const waiters = [...this.waiters];
    this.waiters.clear();
    for (const w of waiters) w();
  }

  /** Resolves when something changed. */
  private change(signal?: AbortSignal): Promise<void> {
    return unlessAborted(signal, (resolve) => this.waiters.add(resolve));
  }

  /** Owns the connections until the client ends. */
  private async run(): Promise<void> {
    let attempt = 0;
    let atOnce = true;
    while (!this.ended) {
      if (!atOnce) await this.pause(attempt);
      while (!this.ended && !this.queue.open) await this.change();
      if (this.ended) break;
      attempt++;
      const cause = await this.connection();
      if (this.ended) break;
      if (cause instanceof TerminalError || cause instanceof UnauthorizedError) {
        this.end(cause);
        break;
      }
      if (this.wasResumed) attempt = 0;
      const slow = cause instanceof ConnectionError && cause.code === 4008;
      atOnce = (attempt === 0 && slow) || cause instanceof BufferFullError;
      this.tell("disconnected", cause);
    }
    this.queue.finish(this.ended instanceof ClosedError ? undefined : this.ended);
    this.tell("closed", this.ended);
  }

  /** Serves one connection, from its opening to its end, and returns why it ended. */
  private async connection(): Promise<Error> {
    this.wasResumed = false;
    let link: Link;
    try {
      const [url, token] = await Promise.all([ask(this.opt.url), ask(this.opt.token)]);
      const { label, heartbeat } = this.opt;
      const socket = await open(this.opt.WebSocket, { url, token, label, heartbeat }, this.stop.signal);
      link = new Link(socket, (f, size) => this.take(link, f, size), heartbeat * 2500);
    } catch (err) {
      return err instanceof Error ? err : new Error(String(err));
    }
    if (this.ended) link.end(this.ended);
    this.link = link;
    this.tell("connected");
    this.wake();
    resume(link, this.book, (f) => this.queue.put(f, 64)).then(
      () => this.isResumed(link),
      (err: Error) => link.end(err),
    );
    const cause = await link.over;
    this.link = undefined;
    this.wasResumed = link.resumed;
    if (cause instanceof ConnectionError && (cause.code === 4001 || cause.code === 4029)) return new TerminalError(cause.code, cause.reason);
    this.wake();
    return cause;
  }

  private isResumed(link: Link): void {
    if (this.link !== link) return;
    link.resumed = true;
    this.tell("resumed");
    this.wake();
  }

  /** Handles one frame. Room first: a cursor that has moved over a frame must not lose it. */
  private take(link: Link, f: Frame, size: number): void {
    if (this.queue.full) {
      link.end(new BufferFullError());
      return;
    }
    const verdict = this.book.take(f);
    if (verdict.reset) this.queue.put(resetOf(f), 64);
    if (verdict.pass) this.queue.put(f, size);
  }

  /** Waits between half and the whole of the backoff of an attempt. */
  private async pause(attempt: number): Promise<void> {
    const most = Math.min(this.opt.minBackoffMs * 2 ** Math.min(attempt, 20), this.opt.maxBackoffMs);
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, most / 2 + Math.random() * (most / 2));
      this.hurry = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.hurry = undefined;
  }

  /** Waits for a connection that `good` takes. */
  private async linkThat(good: (l: Link) => boolean, signal?: AbortSignal): Promise<Link> {
    for (;;) {
      if (this.ended) throw this.ended;
      signal?.throwIfAborted();
      if (this.queue.overrun) throw new BufferFullError();
      if (this.link && good(this.link)) return this.link;
      await this.change(signal);
    }
  }

  private connected(signal?: AbortSignal): Promise<Link> {
    return this.linkThat(() => true, signal);
  }

  /** Waits for a connection whose resume is done, so that the host knows the cursors that a call without since keeps. */
  private resumedLink(signal?: AbortSignal): Promise<Link> {
    return this.linkThat((l) => l.resumed, signal);
  }

  /** Makes a call that changes subscriptions, one at a time. */
  private alone(method: string, params: unknown, first: (result: unknown) => void, signal?: AbortSignal): Promise<unknown> {
    const turn = this.gate.then(() => this.persist((s) => this.resumedLink(s), method, params, first, true, signal));
    this.gate = turn.catch(() => {});
    return turn;
  }

  /** Makes a call over a connection; where it was not sent, or with `again`, over the next one when that breaks. */
  private async persist(
    link: (signal?: AbortSignal) => Promise<Link>, method: string, params: unknown, first: ((result: unknown) => void) | undefined, again: boolean,
    signal: AbortSignal | undefined,
  ): Promise<unknown> {
    this.queue.waiting(1);
    try {
      for (;;) {
        const l = await link(signal);
        try {
          return await unless(signal, l.call(method, params, first));
        } catch (err) {
          const repeats = err instanceof NotSentError || (again && err instanceof LostError && !(err.cause instanceof BufferFullError));
          if (!repeats || this.ended) throw err instanceof NotSentError ? this.ended : err;
          while (this.link === l) await this.change();
        }
      }
    } finally {
      this.queue.waiting(-1);
    }
  }
}

function ask(of: string | (() => string | Promise<string>)): string | Promise<string> {
  return typeof of === "function" ? of() : of;
}

function resetOf(f: Frame): Frame {
  return { method: "client/reset", params: { sessionId: (f.params as { sessionId: string }).sessionId } };
}

/** The promise's outcome, or a rejection as soon as the signal is given. */
function unless<T>(signal: AbortSignal | undefined, p: Promise<T>): Promise<T> {
  if (!signal) return p;
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error);
    signal.addEventListener("abort", abort, { once: true });
    p.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}
