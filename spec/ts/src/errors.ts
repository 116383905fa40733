import type { ErrorKind } from "./gen.js";
import { isObject } from "./shape.js";

/** An error that the host answered. */
export class HostError extends Error {
  override name = "HostError";
  readonly method: string;
  /** The code of JSON-RPC; -32000 where `kind` says more. */
  readonly code: number;
  /** What went wrong, "" for a fault of the protocol. Later hosts may have kinds that are not in {@link ErrorKind}. */
  readonly kind: ErrorKind | (string & {});
  /** What the kind's row in errors.md names. */
  readonly details: unknown;

  constructor(method: string, code: number, message: string, data?: unknown) {
    super(message);
    this.method = method;
    this.code = code;
    this.kind = isObject(data) && typeof data["kind"] === "string" ? data["kind"] : "";
    this.details = isObject(data) ? data["details"] : undefined;
  }
}

/**
 * A call whose connection broke before its response came. Whether the host did it is not known; a call with an id of the client's own (`promptId`,
 * `requestId`) may be repeated safely.
 */
export class LostError extends Error {
  override name = "LostError";
  readonly method: string;

  constructor(method: string, cause: Error) {
    super(`${method}: the connection was lost before the response, outcome unknown: ${cause.message}`, { cause });
    this.method = method;
  }
}

/** The client was closed. */
export class ClosedError extends Error {
  override name = "ClosedError";

  constructor() {
    super("the client is closed");
  }
}

/** The host closed the connection, and coming back is of no use: 4001, the token was revoked or expired; 4029, too many errors. */
export class TerminalError extends Error {
  override name = "TerminalError";
  readonly code: number;
  readonly reason: string;

  constructor(code: number, reason: string) {
    super(`the host closed the connection for good: ${code} ${reason}`);
    this.code = code;
    this.reason = reason;
  }
}

/** The host refused the token (401), or this Host or Origin (403). Coming back with the same does not help. */
export class UnauthorizedError extends Error {
  override name = "UnauthorizedError";
  readonly status: number;

  constructor(status: number) {
    super(`the host refused the credentials with ${status}; check the token and the address`);
    this.status = status;
  }
}

/** Why a connection ended, or did not come about; the client comes back. */
export class ConnectionError extends Error {
  override name = "ConnectionError";
  /** The code of the close frame; 1006 where none came. */
  readonly code: number;
  /** What the close frame says, "" where none came. */
  readonly reason: string;

  constructor(code: number, message: string, rest: { cause?: unknown; reason?: string } = {}) {
    super(message, { cause: rest.cause });
    this.code = code;
    this.reason = rest.reason ?? "";
  }
}

/** Frames wait that nobody takes, so the connection was dropped; it comes back at the cursor once they are taken. */
export class BufferFullError extends Error {
  override name = "BufferFullError";

  constructor() {
    super("the buffer of frames is full; take frames() while calls wait");
  }
}
