/** The client of a muxhost. The fold is in `@muxhost/client/fold`. */
export { MuxClient } from "./client.js";
export type { CallOptions, ClientOptions, State } from "./client.js";
export { BufferFullError, ClosedError, ConnectionError, HostError, LostError, TerminalError, UnauthorizedError } from "./errors.js";
export type { WebSocketEvent, WebSocketLike, WebSocketMaker } from "./socket.js";
export { isEvent, isFrame, knownEvent, knownFrame, sessionOf } from "./wire.js";
export type { Frame } from "./wire.js";
export type * from "./gen.js";
