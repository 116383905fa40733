import { createHash, randomBytes } from "node:crypto";
import { request as httpRequest } from "node:http";
import type { ClientRequest, IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import type { Duplex } from "node:stream";
import type { WebSocketEvent, WebSocketLike } from "../socket.js";
import { encodeFrame, opcode, ProtocolError, Reader, validCloseCode } from "./frame.js";

/** The largest message that is taken, in bytes; a whole view may be large. */
const maxMessage = 32 * 1024 * 1024;

/** How long the peer may take to answer a close frame. */
const closeTimeoutMs = 2000;

/** Headers of the handshake, and what TLS needs. */
export interface NodeWebSocketInit {
  headers?: Record<string, string>;
  /** Certificates to trust beside (PEM). */
  ca?: string | Buffer;
}

/** What listeners get. */
export interface SocketEvent extends WebSocketEvent {
  readonly type: "open" | "message" | "close" | "error";
  readonly data?: string | Uint8Array;
}

/** A WebSocket client over node:http, with the interface of those of browsers, that can send headers and tells the status of a refusal. */
export class NodeWebSocket implements WebSocketLike {
  static readonly headers = true;

  /** The same, for a host whose certificate these (PEM) vouch for. */
  static trusting(ca: string | Buffer): typeof NodeWebSocket {
    return class extends NodeWebSocket {
      constructor(url: string, protocols?: string[], init?: NodeWebSocketInit) {
        super(url, protocols, { ca, ...init });
      }
    };
  }

  /** The subprotocol that the host chose. */
  protocol = "";
  /** The HTTP status of a refused handshake. */
  status?: number;
  /** 0 connecting, 1 open, 2 closing, 3 closed. */
  readyState: 0 | 1 | 2 | 3 = 0;

  private readonly listeners = new Map<string, Set<(event: SocketEvent) => void>>();
  private readonly reader = new Reader(maxMessage);
  private readonly utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  private readonly request: ClientRequest;
  private stream: Duplex | undefined;
  private closing: { code: number; reason: string } | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(url: string, protocols: string[] = [], init: NodeWebSocketInit = {}) {
    const u = new URL(url);
    if (u.protocol !== "ws:" && u.protocol !== "wss:") throw new SyntaxError(`the URL ${url} is not ws:// or wss://`);
    const secure = u.protocol === "wss:";
    u.protocol = secure ? "https:" : "http:";
    const key = randomBytes(16).toString("base64");
    const headers = {
      ...init.headers, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key,
      ...(protocols.length > 0 && { "Sec-WebSocket-Protocol": protocols.join(", ") }),
    };
    this.request = secure ? httpsRequest(u, { headers, agent: false, ...(init.ca && { ca: init.ca }) }) : httpRequest(u, { headers, agent: false });
    this.request.on("upgrade", (res, stream, head) => this.upgraded(res, stream, head, key, protocols));
    this.request.on("response", (res) => this.refused(res));
    this.request.on("error", (err) => this.fail(err.message));
    this.request.end();
  }

  addEventListener(type: SocketEvent["type"], listener: (event: SocketEvent) => void): void {
    const set = this.listeners.get(type) ?? new Set();
    this.listeners.set(type, set.add(listener));
  }

  removeEventListener(type: SocketEvent["type"], listener: (event: SocketEvent) => void): void {
    this.listeners.get(type)?.delete(listener);
  }

  /** Sends a text message. Once it is closing the message is dropped. */
  send(data: string): void {
    if (this.readyState === 0) throw new Error("the WebSocket is not open yet");
    if (this.readyState === 1) this.stream?.write(encodeFrame(opcode.text, Buffer.from(data)));
  }

  /** Begins the closing handshake: 1000, or 3000 to 4999. */
  close(code = 1000, reason = ""): void {
    if (this.readyState === 0) {
      this.fail("closed before it was open");
      this.request.destroy();
    } else if (this.readyState === 1) this.shut(code, reason);
  }

  /** Cuts the connection without a word, as a lost network does. */
  terminate(): void {
    this.request.destroy();
    this.stream?.destroy();
    this.finish(1006, "");
  }

  private emit(event: SocketEvent): void {
    for (const listener of [...(this.listeners.get(event.type) ?? [])]) listener(event);
  }

  private fail(message: string): void {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.emit({ type: "error", message });
    this.emit({ type: "close", code: 1006, reason: "" });
  }

  private refused(res: IncomingMessage): void {
    this.status = res.statusCode ?? 0;
    res.resume();
    this.fail(`the host answered ${res.statusCode} ${res.statusMessage}`);
    this.request.destroy();
  }

  private upgraded(res: IncomingMessage, stream: Duplex, head: Buffer, key: string, protocols: string[]): void {
    stream.on("error", () => {}); // its close tells
    const accept = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
    const protocol = res.headers["sec-websocket-protocol"] ?? "";
    const flaw =
      this.readyState !== 0 ? "closed before it was open"
      : res.headers["sec-websocket-accept"] !== accept ? "the host's Sec-WebSocket-Accept is wrong"
      : res.headers.upgrade?.toLowerCase() !== "websocket" ? "the host upgraded to something else"
      : res.headers["sec-websocket-extensions"] ? "the host chose an extension"
      : protocol !== "" && !protocols.includes(protocol) ? `the host chose the subprotocol ${protocol}`
      : "";
    if (flaw !== "") {
      stream.destroy();
      return this.fail(flaw);
    }
    this.protocol = protocol;
    this.stream = stream;
    this.readyState = 1;
    if (head.length > 0) stream.unshift(head);
    this.emit({ type: "open" });
    stream.on("close", () => this.finish(this.closing?.code ?? 1006, this.closing?.reason ?? ""));
    stream.on("end", () => stream.end());
    setImmediate(() => stream.on("data", (chunk: Buffer) => this.data(chunk))); // whoever was told that it is open listens by then
  }

  private data(chunk: Buffer): void {
    try {
      for (const m of this.reader.push(chunk)) {
        if (this.readyState === 3) return;
        this.message(m.op, m.payload);
      }
    } catch (err) {
      const code = err instanceof ProtocolError ? err.code : 1002;
      this.closing = { code: 1006, reason: "" };
      this.stream?.write(encodeFrame(opcode.close, closePayload(code, err instanceof Error ? err.message : "")));
      this.readyState = 2;
      this.emit({ type: "error", message: String(err) });
      this.stream?.end(() => this.stream?.destroy());
    }
  }

  private message(op: number, payload: Buffer): void {
    switch (op) {
      case opcode.text:
        if (this.readyState === 1) this.emit({ type: "message", data: this.text(payload) });
        return;
      case opcode.binary:
        if (this.readyState === 1) this.emit({ type: "message", data: new Uint8Array(payload) });
        return;
      case opcode.ping:
        if (this.readyState === 1) this.stream?.write(encodeFrame(opcode.pong, payload));
        return;
      case opcode.close:
        return this.closed(payload);
    }
  }

  private text(payload: Buffer): string {
    try {
      return this.utf8.decode(payload);
    } catch {
      throw new ProtocolError(1007, "a message is not UTF-8");
    }
  }

  /** Takes the peer's close frame, and answers it where it came first. */
  private closed(payload: Buffer): void {
    if (payload.length === 1) throw new ProtocolError(1002, "a close frame with half a code");
    const code = payload.length === 0 ? 1005 : payload.readUInt16BE(0);
    if (payload.length > 0 && !validCloseCode(code)) throw new ProtocolError(1002, `close code ${code}`);
    this.closing = { code, reason: this.text(payload.subarray(2)) };
    if (this.readyState === 1) this.shut(code === 1005 ? 1000 : code, "");
    this.stream?.end();
  }

  private shut(code: number, reason: string): void {
    this.readyState = 2;
    this.stream?.write(encodeFrame(opcode.close, closePayload(code, reason)));
    this.timer = setTimeout(() => this.stream?.destroy(), closeTimeoutMs);
    this.timer.unref?.();
  }

  private finish(code: number, reason: string): void {
    clearTimeout(this.timer);
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.emit({ type: "close", code, reason });
  }
}

function closePayload(code: number, reason: string): Buffer {
  let text = Buffer.from(reason);
  for (let n = 123; text.length > 123; n--) {
    if (((text[n] as number) & 0xc0) !== 0x80) text = text.subarray(0, n);
  }
  const out = Buffer.alloc(2 + text.length);
  out.writeUInt16BE(code, 0);
  text.copy(out, 2);
  return out;
}
