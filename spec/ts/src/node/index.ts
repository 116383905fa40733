/** What a client in Node needs beside `@muxhost/client`: a WebSocket with headers, and the host of this machine. */
export { localHost } from "./local.js";
export { NodeWebSocket } from "./socket.js";
export type { NodeWebSocketInit, SocketEvent } from "./socket.js";
