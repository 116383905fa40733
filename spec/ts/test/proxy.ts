import { once } from "node:events";
import { connect, createServer } from "node:net";
import type { AddressInfo, Socket } from "node:net";
import type { TestContext } from "node:test";
import { NodeWebSocket } from "@muxhost/client/node";
import type { NodeWebSocketInit } from "@muxhost/client/node";

/** A TCP proxy that can cut what it carries, as a bad network does. */
export interface Proxy {
  url: string;
  /** Says to the host that it was reached by its own name: the host refuses others. */
  WebSocket: typeof NodeWebSocket;
  /** Cuts every connection that there is. */
  cut: () => void;
  /** Lets nobody through, or again everybody. */
  shut: (on: boolean) => void;
  /** How many connections there were. */
  connections: () => number;
}

export async function startProxy(t: TestContext, to: string): Promise<Proxy> {
  const sockets = new Set<Socket>();
  let connections = 0;
  let closed = false;
  const server = createServer((near) => {
    if (closed) return void near.destroy();
    connections++;
    const far = connect(Number(new URL(to).port), "127.0.0.1");
    for (const s of [near, far]) {
      sockets.add(s);
      s.on("error", () => {});
      s.on("close", () => {
        sockets.delete(s);
        near.destroy();
        far.destroy();
      });
    }
    near.pipe(far).pipe(near);
  });
  const cut = (): void => sockets.forEach((s) => s.destroy());
  t.after(() => {
    server.close();
    cut();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  class Through extends NodeWebSocket {
    constructor(url: string, protocols?: string[], init?: NodeWebSocketInit) {
      super(url, protocols, { headers: { ...init?.headers, Host: new URL(to).host } });
    }
  }
  return { WebSocket: Through, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, cut, shut: (on) => void (closed = on), connections: () => connections };
}
