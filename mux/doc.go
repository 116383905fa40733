// Package mux carries encoded frames from sessions to client sockets.
//
// A session's recent frames stand encoded once in a shared ring; a subscription
// is a cursor into it and not a queue; everything between cursor and head leaves
// in one write. A cursor that falls off the ring catches up from the [Log].
//
// The [Hub] is told what sessions publish; a [Conn] is one client's socket. Three
// kinds of lock are taken in this order: the hub's (who is subscribed to what,
// notices, summaries), a topic's (one session's ring and the cursors in it), a
// connection's (its control queue). Nothing blocks, does I/O or calls out under
// them; an event alone takes only its topic's. One goroutine writes each socket.
//
// A client that stops reading costs its control queue ([Config.QueueBytes] and
// one message) and what is under way in one write. The base of a trimmed log is read
// when it is sent and shared by all who send it at the time. It delays nobody: live events
// it cannot take are dropped for it, durable ones wait in the log, and a control
// queue that overflows ends the connection with 4008.
//
// mux knows sockets, cursors and classes of frames. It knows neither what an
// approval is nor JSON-RPC nor disks.
package mux
