package mux

import (
	"errors"
	"fmt"

	"github.com/muxhost/muxhost/frames"
)

// What callers branch on.
var (
	// ErrNoSession means that the session does not exist, or that this client
	// may not see it.
	ErrNoSession = errors.New("mux: no such session; name one from sessions.list")
	// ErrClosed means that the connection has ended; it wraps the cause.
	ErrClosed = errors.New("mux: connection closed")
	// ErrSlow means that the client reads too slowly: the connection ends with
	// 4008 and the client resumes from its cursor.
	ErrSlow = errors.New("mux: the client reads too slowly")
	// ErrShutdown means that the hub takes no new connections.
	ErrShutdown = errors.New("mux: the host is going down")
)

// CursorKind says what is wrong with a cursor.
type CursorKind string

// The kinds of a [CursorError].
const (
	CursorExpired CursorKind = "cursor-expired"
	CursorAhead   CursorKind = "cursor-ahead"
)

// CursorError says that a subscription cannot start where it was asked to, and
// what the log holds instead.
type CursorError struct {
	Kind        CursorKind
	First, Head frames.Seq
	Epoch       frames.Epoch
}

func (e *CursorError) Error() string {
	return fmt.Sprintf("mux: %s: the log holds %d to %d in epoch %s; subscribe from there or from 0",
		e.Kind, e.First, e.Head, e.Epoch)
}

// TrimmedError is what a [Log] answers when it no longer keeps what is asked for.
type TrimmedError struct {
	// First is the oldest seq kept.
	First frames.Seq
}

func (e *TrimmedError) Error() string {
	return fmt.Sprintf("mux: these events are no longer kept; the oldest is %d", e.First)
}

// CloseError is the cause of a connection that ended with a close code.
type CloseError struct {
	Code   int
	Reason string
	// Peer says that the client closed.
	Peer bool
}

func (e *CloseError) Error() string {
	who := "host"
	if e.Peer {
		who = "client"
	}
	return fmt.Sprintf("closed by the %s with %d %q", who, e.Code, e.Reason)
}

// The close codes the hub uses by itself.
const (
	codeGoingAway = 1001
	codeBinary    = 1003
	codeUTF8      = 1007
	codeTooBig    = 1009
	codeInternal  = 1011
	codeSlow      = 4008
)
