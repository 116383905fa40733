import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";
import type { AddressInfo, Socket } from "node:net";
import { test } from "node:test";
import type { TestContext } from "node:test";
import { NodeWebSocket } from "@muxhost/client/node";
import type { SocketEvent } from "@muxhost/client/node";

/** The server's end of a connection, byte by byte. */
interface Peer {
  socket: Socket;
  /** The request's head. */
  head: string;
  /** The next frame of the client, unmasked. */
  frame: () => Promise<{ op: number; fin: boolean; masked: boolean; payload: Buffer }>;
}

/** A server that answers one handshake by `answer` and hands out the connection. */
async function serve(t: TestContext, answer = accepted): Promise<{ url: string; peer: Promise<Peer> }> {
  const server = createServer();
  t.after(() => server.close());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const peer = (async () => {
    const [socket] = (await once(server, "connection")) as [Socket];
    t.after(() => socket.destroy());
    socket.on("error", () => {});
    let rest = Buffer.alloc(0);
    const more = async (): Promise<void> => {
      const [chunk] = (await once(socket, "data")) as [Buffer];
      rest = Buffer.concat([rest, chunk]);
    };
    while (!rest.includes("\r\n\r\n")) await more();
    const end = rest.indexOf("\r\n\r\n") + 4;
    const head = rest.subarray(0, end).toString();
    rest = rest.subarray(end);
    socket.write(answer(head), "latin1");
    const take = async (n: number): Promise<Buffer> => {
      while (rest.length < n) await more();
      const out = rest.subarray(0, n);
      rest = rest.subarray(n);
      return out;
    };
    const frame = async (): ReturnType<Peer["frame"]> => {
      const [b0 = 0, b1 = 0] = await take(2);
      let length = b1 & 0x7f;
      if (length === 126) length = (await take(2)).readUInt16BE();
      else if (length === 127) length = Number((await take(8)).readBigUInt64BE());
      const mask = b1 & 0x80 ? await take(4) : Buffer.alloc(4);
      const payload = Buffer.from((await take(length)).map((b, i) => b ^ (mask[i & 3] ?? 0)));
      return { op: b0 & 0x0f, fin: (b0 & 0x80) !== 0, masked: (b1 & 0x80) !== 0, payload };
    };
    return { socket, head, frame };
  })();
  return { url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}/v1/ws?a=b`, peer };
}

function accepted(head: string, extra = "Sec-WebSocket-Protocol: muxhost.v1\r\n"): string {
  const key = /sec-websocket-key: (.*)\r\n/i.exec(head)?.[1] ?? "";
  const accept = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  return `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n${extra}\r\n`;
}

/** An unmasked frame. */
function frame(op: number, payload: Buffer | string, fin = true): Buffer {
  const body = Buffer.from(payload);
  const long = body.length < 126 ? Buffer.from([body.length]) : Buffer.from([126, body.length >> 8, body.length & 0xff]);
  return Buffer.concat([Buffer.from([(fin ? 0x80 : 0) | op]), long, body]);
}

/** A client, and the next event of a kind. */
function connect(url: string): { ws: NodeWebSocket; next: (type: SocketEvent["type"]) => Promise<SocketEvent> } {
  const ws = new NodeWebSocket(url, ["muxhost.v1"], { headers: { Authorization: "Bearer x" } });
  const queues = new Map<string, { events: SocketEvent[]; wake: () => void }>();
  for (const type of ["open", "message", "close", "error"] as const) {
    const queue = { events: [] as SocketEvent[], wake: (): void => {} };
    queues.set(type, queue);
    ws.addEventListener(type, (e) => {
      queue.events.push(e);
      queue.wake();
    });
  }
  const next = async (type: string): Promise<SocketEvent> => {
    const queue = queues.get(type);
    assert.ok(queue);
    while (queue.events.length === 0) await new Promise<void>((resolve) => (queue.wake = resolve));
    return queue.events.shift() as SocketEvent;
  };
  return { ws, next };
}

// The handshake has the headers of RFC 6455 and the caller's; the subprotocol is what the host chose.
test("the handshake", async (t) => {
  const { url, peer } = await serve(t);
  const { ws, next } = connect(url);
  await next("open");
  const { head } = await peer;
  assert.match(head, /^GET \/v1\/ws\?a=b HTTP\/1\.1\r\n/);
  for (const line of [/^Authorization: Bearer x\r$/m, /^Sec-WebSocket-Version: 13\r$/m, /^Sec-WebSocket-Protocol: muxhost\.v1\r$/m, /^Upgrade: websocket\r$/m, /^Host: 127\.0\.0\.1:\d+\r$/m]) {
    assert.match(head, line);
  }
  assert.equal(ws.protocol, "muxhost.v1");
});

// Frames of the client are whole, masked, and of every length.
test("what is sent is masked", async (t) => {
  const { url, peer } = await serve(t);
  const { ws, next } = connect(url);
  await next("open");
  const p = await peer;
  for (const text of ["", "é", "x".repeat(125), "x".repeat(126), "x".repeat(65535), "€".repeat(40000)]) {
    ws.send(text);
    assert.deepEqual(await p.frame(), { op: 1, fin: true, masked: true, payload: Buffer.from(text) });
  }
});

// Messages arrive whole: in pieces of any size, in several frames, with a ping in between, many in one piece.
test("what is received is put together", async (t) => {
  const { url, peer } = await serve(t);
  const { next } = connect(url);
  await next("open");
  const p = await peer;
  const euro = Buffer.from("€uro");
  const bytes = Buffer.concat([frame(1, euro.subarray(0, 1), false), frame(9, "are you there"), frame(0, euro.subarray(1, 2), false), frame(0, euro.subarray(2)), frame(1, "x".repeat(300)), frame(1, "")]);
  for (const b of bytes) p.socket.write(Buffer.from([b]));
  p.socket.write(Buffer.concat([bytes, bytes]));
  for (let i = 0; i < 3; i++) {
    assert.equal((await next("message")).data, "€uro");
    assert.equal((await next("message")).data?.length, 300);
    assert.equal((await next("message")).data, "");
    assert.deepEqual(await p.frame(), { op: 10, fin: true, masked: true, payload: Buffer.from("are you there") });
  }
});

// What comes at once behind the handshake is not lost.
test("a message in the same packet as the handshake", async (t) => {
  const { url } = await serve(t, (head) => accepted(head) + "\x81\x02hi");
  const { next } = connect(url);
  assert.equal((await next("message")).data, "hi");
});

// The host's close frame is answered with its code, and told.
test("the host closes", async (t) => {
  const { url, peer } = await serve(t);
  const { ws, next } = connect(url);
  await next("open");
  const p = await peer;
  p.socket.write(frame(8, Buffer.concat([Buffer.from([0x0f, 0xa1]), Buffer.from("revoked")])));
  assert.deepEqual((await p.frame()).payload, Buffer.from([0x0f, 0xa1]));
  const { code, reason } = await next("close");
  assert.deepEqual({ code, reason }, { code: 4001, reason: "revoked" });
  assert.equal(ws.readyState, 3);
});

// The client's close is a handshake too; its reason is cut at a character.
test("the client closes", async (t) => {
  const { url, peer } = await serve(t);
  const { ws, next } = connect(url);
  await next("open");
  const p = await peer;
  ws.close(3000, "€".repeat(60));
  ws.send("dropped");
  const close = await p.frame();
  assert.equal(close.op, 8);
  assert.equal(close.payload.readUInt16BE(), 3000);
  assert.equal(close.payload.subarray(2).toString(), "€".repeat(41));
  p.socket.write(frame(8, close.payload.subarray(0, 2)));
  assert.equal((await next("close")).code, 3000);
});

// A connection that breaks has no code but 1006.
test("a cut is 1006", async (t) => {
  const { url, peer } = await serve(t);
  const { next } = connect(url);
  await next("open");
  (await peer).socket.destroy();
  assert.equal((await next("close")).code, 1006);
});

// What breaks the protocol is answered with the right code, and told as 1006.
for (const [what, bytes, code] of [
  ["a masked frame", Buffer.from([0x81, 0x81, 0, 0, 0, 0, 0x61]), 1002],
  ["reserved bits", Buffer.from([0xc1, 0]), 1002],
  ["an unknown opcode", Buffer.from([0x83, 0]), 1002],
  ["a continuation of nothing", frame(0, "x"), 1002],
  ["a message inside another", Buffer.concat([frame(1, "x", false), frame(1, "y")]), 1002],
  ["a split ping", frame(9, "x", false), 1002],
  ["a long ping", frame(9, "x".repeat(126)), 1002],
  ["bad UTF-8", frame(1, Buffer.from([0xc3, 0x28])), 1007],
  ["a message that is too long", Buffer.from([0x81, 127, 0, 0, 0, 1, 0, 0, 0, 0]), 1009],
  ["half a close code", frame(8, Buffer.from([3])), 1002],
  ["a close code that nobody may send", frame(8, Buffer.from([0x03, 0xee])), 1002],
] as const) {
  test(`${what} is answered with ${code}`, async (t) => {
    const { url, peer } = await serve(t);
    const { next } = connect(url);
    await next("open");
    const p = await peer;
    p.socket.write(bytes);
    const close = await p.frame();
    assert.deepEqual([close.op, close.payload.readUInt16BE()], [8, code]);
    assert.equal((await next("close")).code, 1006);
  });
}

// A refusal tells its status; a wrong upgrade is none.
for (const [what, answer, status] of [
  ["401", () => "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno", 401],
  ["a wrong accept", (h: string) => accepted(h).replace(/Accept: ./, "Accept: _"), undefined],
  ["another subprotocol", (h: string) => accepted(h, "Sec-WebSocket-Protocol: other\r\n"), undefined],
  ["an extension", (h: string) => accepted(h, "Sec-WebSocket-Extensions: permessage-deflate\r\n"), undefined],
  ["no HTTP", () => "hello\r\n\r\n", undefined],
] as const) {
  test(`${what} is a refusal`, async (t) => {
    const { url } = await serve(t, answer);
    const { ws, next } = connect(url);
    assert.ok((await next("error")).message);
    assert.equal((await next("close")).code, 1006);
    assert.equal(ws.status, status);
    assert.equal(ws.readyState, 3);
  });
}
