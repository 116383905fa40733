// Package acprpc carries the messages of the Agent Client Protocol: JSON-RPC 2.0, one
// message a line, in both directions.
//
// It is tolerant of what it reads: blank lines, lines that are no message, ids and
// errors of any form and lines that are too long end nothing. Every request of the
// peer gets exactly one answer: by [Conn.Reply] or [Conn.Reject], or, when it is
// withdrawn or given up, the one that [Options.Unanswered] names. Requests and
// notifications are handed over in the order in which they were written, and before
// the answers that came after them.
//
// A queue of 1024 messages stands before the peer's input; one more ends the
// connection.
//
// acprpc imports frames and jsonrpc2 only.
package acprpc
