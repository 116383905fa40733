import { ConnectionError, UnauthorizedError } from "./errors.js";

/** What the client reads of a WebSocket's events; each kind has some of it. */
export interface WebSocketEvent {
  readonly type: string;
  readonly data?: unknown;
  readonly code?: number;
  readonly reason?: string;
  readonly message?: string;
}

/** What the client needs of a WebSocket; those of browsers, of Node 22 and of `@muxhost/client/node` are such. */
export interface WebSocketLike {
  readonly protocol: string;
  /** The HTTP status of a refusal, where the WebSocket knows it; browsers do not tell. */
  readonly status?: number;
  send(data: string): void;
  close(code?: number, reason?: string): void;
  addEventListener(type: "open" | "message" | "close" | "error", listener: (event: WebSocketEvent) => void): void;
}

/** Makes WebSockets. One whose `headers` is true sends the headers of the third argument, and gets the token in one. */
export interface WebSocketMaker {
  new (url: string, protocols?: string[], init?: { headers: Record<string, string> }): WebSocketLike;
  readonly headers?: boolean;
}

/** The subprotocol of the wire. */
export const subprotocol = "muxhost.v1";

/** How long a connection may take to open. */
const openTimeoutMs = 15_000;

/** Where and as whom to connect. */
export interface Address {
  url: string;
  token: string;
  label: string;
  /** Seconds. */
  heartbeat: number;
}

/** The address of the WebSocket of a host: http(s)://host:port, or ws(s)://host:port/v1/ws. */
export function endpoint(a: Address): string {
  let u: URL;
  try {
    u = new URL(a.url);
  } catch {
    throw new ConnectionError(1006, `the URL ${JSON.stringify(a.url)} is not http://host:port`);
  }
  u.protocol = u.protocol.replace("http", "ws");
  if (u.pathname === "" || u.pathname === "/") u.pathname = "/v1/ws";
  u.searchParams.set("heartbeat", String(a.heartbeat));
  if (a.label !== "") u.searchParams.set("label", a.label);
  u.hash = "";
  return u.toString();
}

/** Opens one WebSocket. It rejects with an {@link UnauthorizedError} or a {@link ConnectionError}. */
export async function open(make: WebSocketMaker, a: Address, signal: AbortSignal): Promise<WebSocketLike> {
  const protocols = [subprotocol];
  const headers: Record<string, string> = {};
  if (a.token !== "" && make.headers) headers["Authorization"] = `Bearer ${a.token}`;
  else if (a.token !== "") protocols.push(`muxhost.token.${base64url(a.token)}`);
  const socket = new make(endpoint(a), protocols, ...(make.headers ? [{ headers }] : []));
  try {
    await opened(socket, signal);
  } catch (err) {
    socket.close();
    const status = socket.status ?? (make.headers ? undefined : await probe(a));
    if (status === 401 || status === 403) throw new UnauthorizedError(status);
    throw err;
  }
  if (socket.protocol !== subprotocol) {
    socket.close();
    throw new ConnectionError(1006, `${a.url} does not speak ${subprotocol}`);
  }
  return socket;
}

function opened(socket: WebSocketLike, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (how: () => void): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", abort);
      how();
    };
    const fail = (what: string, code = 1006): void => settle(() => reject(new ConnectionError(code, `the host is not reachable: ${what}`)));
    const abort = (): void => fail("the client is closed");
    const timer = setTimeout(() => fail(`no answer in ${openTimeoutMs / 1000} s`), openTimeoutMs);
    signal.addEventListener("abort", abort);
    socket.addEventListener("open", () => settle(resolve));
    socket.addEventListener("error", (e) => fail(e.message ?? "the connection failed"));
    socket.addEventListener("close", (e) => fail(e.reason || `closed with ${e.code ?? 1006}`, e.code));
  });
}

/** Browsers do not say why a WebSocket was refused; every path of a host refuses the same token. undefined where it cannot be told. */
async function probe(a: Address): Promise<number | undefined> {
  try {
    const u = new URL("/healthz", a.url);
    u.protocol = u.protocol.replace("ws", "http");
    const headers: Record<string, string> = a.token === "" ? {} : { Authorization: `Bearer ${a.token}` };
    return (await fetch(u, { headers, signal: AbortSignal.timeout(openTimeoutMs) })).status;
  } catch {
    return undefined;
  }
}

function base64url(s: string): string {
  const bytes = new TextEncoder().encode(s);
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
