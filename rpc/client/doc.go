// Package client is the Go end of a host's WebSocket: it dials, calls, and keeps
// subscriptions over any number of connections.
//
// A [Client] holds one connection at a time and comes back by itself. Every
// remembered subscription is resumed from its cursor, so that a consumer of
// [Client.Frames] gets each durable event once and in order, whatever was cut
// meanwhile. Where the host cannot resume — its log was replaced or trimmed — a
// [Reset] says so and the session starts anew from its first event.
//
// The cursor of a session is the last durable event that entered the buffer of
// Frames; the buffer outlives connections. A full buffer stops the reading of the
// socket, unless a call waits for its response: then it grows up to a hard bound,
// past which the connection is given up and resumed.
//
// client imports frames, rpc and coder/websocket; it knows nothing of the host.
package client
