import { ConnectionError, HostError, LostError } from "./errors.js";
import { isObject } from "./shape.js";
import type { WebSocketLike } from "./socket.js";
import type { Frame } from "./wire.js";

/** A call that never left: its connection was over before. */
export class NotSentError extends Error {
  override name = "NotSentError";
}

interface PendingCall {
  method: string;
  /** Runs before any later frame is taken. */
  first: ((result: unknown) => void) | undefined;
  resolve: (result: unknown) => void;
  reject: (err: Error) => void;
}

/** One connection. */
export class Link {
  /** Every subscription runs again. */
  resumed = false;
  /** Resolves with why the connection ended. */
  readonly over: Promise<Error>;

  private readonly socket: WebSocketLike;
  private readonly take: (frame: Frame, size: number) => void;
  private readonly silenceMs: number;
  private readonly calls = new Map<number, PendingCall>();
  private nextId = 1;
  private ended: Error | undefined;
  private resolveOver: (cause: Error) => void = () => {};
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** `take` gets each frame and the length of its message; what it throws ends the link. After `silenceMs` without a message the link ends. */
  constructor(socket: WebSocketLike, take: (frame: Frame, size: number) => void, silenceMs: number) {
    this.socket = socket;
    this.take = take;
    this.silenceMs = silenceMs;
    this.over = new Promise((resolve) => (this.resolveOver = resolve));
    socket.addEventListener("message", (e) => this.message(e.data));
    socket.addEventListener("close", (e) => {
      const code = e.code ?? 1006;
      this.end(new ConnectionError(code, `the connection ended: ${code} ${e.reason ?? ""}`.trimEnd(), { reason: e.reason ?? "" }));
    });
    this.listen();
  }

  /** Gives the connection up and fails its calls. */
  end(cause: Error): void {
    if (this.ended) return;
    this.ended = cause;
    clearTimeout(this.timer);
    this.socket.close(1000, cause.message.slice(0, 40)); // at most 123 bytes
    for (const call of this.calls.values()) call.reject(new LostError(call.method, cause));
    this.calls.clear();
    this.resolveOver(cause);
  }

  /** Sends a request and waits. It rejects with a {@link NotSentError}, a {@link LostError} or what the host answered. */
  call(method: string, params: unknown, first?: (result: unknown) => void): Promise<unknown> {
    if (this.ended) return Promise.reject(new NotSentError(method));
    const id = this.nextId++;
    try {
      this.socket.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    } catch (err) {
      return Promise.reject(err);
    }
    return new Promise((resolve, reject) => this.calls.set(id, { method, first, resolve, reject }));
  }

  private listen(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.end(new ConnectionError(1006, "the host is silent")), this.silenceMs);
  }

  private message(data: unknown): void {
    if (this.ended) return;
    this.listen();
    try {
      if (typeof data !== "string") throw new Error("the host sent a binary message");
      const m: unknown = JSON.parse(data);
      if (!isObject(m) || m["jsonrpc"] !== "2.0") throw new Error("the host sent what is no JSON-RPC 2.0");
      if (typeof m["method"] === "string") this.take(m as unknown as Frame, data.length);
      else this.answer(m);
    } catch (err) {
      this.end(err instanceof ConnectionError ? err : new ConnectionError(1006, message(err), { cause: err }));
    }
  }

  /** Hands a response to its call. One for a call that was given up is dropped. */
  private answer(m: { [name: string]: unknown }): void {
    const error = isObject(m["error"]) ? m["error"] : undefined;
    if (typeof m["id"] !== "number") throw new Error(`the host could not read a request: ${String(error?.["message"])}`);
    const call = this.calls.get(m["id"]);
    if (!call) return;
    this.calls.delete(m["id"]);
    if (error) return call.reject(hostError(call.method, error));
    call.first?.(m["result"]);
    call.resolve(m["result"]);
  }
}

/** An error object as it travels, as an error. */
export function hostError(method: string, e: { [name: string]: unknown }): HostError {
  return new HostError(method, Number(e["code"]), String(e["message"]), e["data"]);
}

function message(err: unknown): string {
  return err instanceof Error ? err.message : String(err);
}
