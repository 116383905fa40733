/** Frames of RFC 6455, as a client writes and reads them. */
import { randomBytes } from "node:crypto";

/** The opcodes that are used. */
export const opcode = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

/** A fault of the peer, with the code to close with. */
export class ProtocolError extends Error {
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

/** Writes one whole frame, masked. */
export function encodeFrame(op: number, payload: Buffer): Buffer {
  const length = payload.length;
  const extended = length < 126 ? 0 : length < 65536 ? 2 : 8;
  const out = Buffer.allocUnsafe(2 + extended + 4 + length);
  out[0] = 0x80 | op;
  out[1] = 0x80 | (extended === 0 ? length : extended === 2 ? 126 : 127);
  if (extended === 2) out.writeUInt16BE(length, 2);
  if (extended === 8) out.writeBigUInt64BE(BigInt(length), 2);
  const at = 2 + extended;
  const mask = randomBytes(4);
  mask.copy(out, at);
  for (let i = 0; i < length; i++) out[at + 4 + i] = (payload[i] as number) ^ (mask[i & 3] as number);
  return out;
}

/** What was read: a whole message, or a control frame. */
export interface Message {
  op: number;
  payload: Buffer;
}

/** Puts messages together from what arrives. */
export class Reader {
  private readonly limit: number;
  private chunks: Buffer[] = [];
  private size = 0;
  private parts: Buffer[] = [];
  private partsSize = 0;
  private partsOp = 0;

  /** Messages longer than `limit` bytes are refused. */
  constructor(limit: number) {
    this.limit = limit;
  }

  /** Takes bytes and yields the messages that are whole by now. It throws a {@link ProtocolError}. */
  *push(chunk: Buffer): Generator<Message> {
    this.chunks.push(chunk);
    this.size += chunk.length;
    for (let f = this.frame(); f; f = this.frame()) {
      const m = this.assemble(f);
      if (m) yield m;
    }
  }

  /** The next whole frame. */
  private frame(): { fin: boolean; op: number; payload: Buffer } | undefined {
    if (this.size < 2) return undefined;
    const head = this.peek(Math.min(this.size, 10));
    const [b0, b1] = [head[0] as number, head[1] as number];
    const [fin, op, short] = [(b0 & 0x80) !== 0, b0 & 0x0f, b1 & 0x7f];
    if (b0 & 0x70) throw new ProtocolError(1002, "reserved bits are set");
    if (b1 & 0x80) throw new ProtocolError(1002, "a frame of the host is masked");
    if (op > opcode.pong || (op > opcode.binary && op < opcode.close)) throw new ProtocolError(1002, `unknown opcode ${op}`);
    if (op >= opcode.close && (!fin || short > 125)) throw new ProtocolError(1002, "a control frame is split or too long");
    const extended = short === 126 ? 2 : short === 127 ? 8 : 0;
    if (this.size < 2 + extended) return undefined;
    const length = extended === 0 ? short : extended === 2 ? head.readUInt16BE(2) : Number(head.readBigUInt64BE(2));
    if (length + this.partsSize > this.limit) throw new ProtocolError(1009, `a message is over ${this.limit} bytes`);
    if (this.size < 2 + extended + length) return undefined;
    this.read(2 + extended);
    return { fin, op, payload: this.read(length) };
  }

  /** Joins the frames of one message. */
  private assemble(f: { fin: boolean; op: number; payload: Buffer }): Message | undefined {
    if (f.op >= opcode.close) return f;
    const goesOn = f.op === opcode.continuation;
    if (goesOn !== this.partsOp > 0) throw new ProtocolError(1002, goesOn ? "a continuation of nothing" : "a message inside another");
    if (!goesOn) this.partsOp = f.op;
    this.parts.push(f.payload);
    this.partsSize += f.payload.length;
    if (!f.fin) return undefined;
    const m = { op: this.partsOp, payload: this.parts.length === 1 ? f.payload : Buffer.concat(this.parts) };
    this.parts = [];
    this.partsSize = this.partsOp = 0;
    return m;
  }

  private peek(n: number): Buffer {
    const first = this.chunks[0] as Buffer;
    if (first.length >= n) return first;
    const some: Buffer[] = [];
    for (let i = 0, have = 0; have < n; i++) {
      some.push(this.chunks[i] as Buffer);
      have += (this.chunks[i] as Buffer).length;
    }
    return Buffer.concat(some);
  }

  /** Takes n bytes out of what came. */
  private read(n: number): Buffer {
    this.size -= n;
    const first = this.chunks[0];
    if (first && first.length > n) {
      this.chunks[0] = first.subarray(n);
      return first.subarray(0, n);
    }
    const out: Buffer[] = [];
    for (let left = n; left > 0; ) {
      const chunk = this.chunks[0] as Buffer;
      if (chunk.length <= left) this.chunks.shift();
      else this.chunks[0] = chunk.subarray(left);
      out.push(chunk.subarray(0, left));
      left -= Math.min(left, chunk.length);
    }
    return out.length === 1 ? (out[0] as Buffer) : Buffer.concat(out);
  }
}

/** Whether a peer may send this code in a close frame. */
export function validCloseCode(code: number): boolean {
  return (code >= 1000 && code <= 1014 && code !== 1004 && code !== 1005 && code !== 1006) || (code >= 3000 && code <= 4999);
}
