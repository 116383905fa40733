// Package mux carries encoded frames from sessions to client sockets.
//
// A session's recent frames stand encoded once in a shared ring; a subscription
// is a cursor into it and not a queue; everything between cursor and head leaves
// in one write. A cursor that falls off the ring catches up from the [Log].
//
// mux knows sockets, cursors and classes of frames. It knows neither what an
// approval is nor JSON-RPC nor disks.
package mux
