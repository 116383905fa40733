package mux

import (
	"context"
	"encoding/json"

	"github.com/muxhost/muxhost/frames"
)

// Log is where the hub reads the durable past of a session; the host provides
// it over its store. It is called without any lock held, from connection
// writers, and may block on the disk.
type Log interface {
	// Read returns durable events with Seq > after, ascending, without gaps,
	// about maxBytes at most but at least one unless after is the head. Where
	// the next one is no longer kept the error wraps a [TrimmedError].
	Read(ctx context.Context, sid frames.SessionID, after frames.Seq, maxBytes int) ([]frames.Encoded, error)
	// Base returns the stored fold of what was trimmed, nil if nothing was. It
	// stands for all that [Hub.Trimmed] was told of before the call, or for more.
	// The bytes may not change afterwards.
	Base(ctx context.Context, sid frames.SessionID) (json.RawMessage, error)
}

// Session is what the hub must know of a session to serve it, live or cold.
type Session struct {
	Summary frames.Session // ID, lineage, epoch, head; sent as `host/session-added`
	First   frames.Seq     // oldest seq kept
	// Live sessions are part of the host baseline.
	Live bool
}

// Update is what a session publishes in one step. Everything in it becomes
// visible at one cut: whoever attaches sees all of it or none.
type Update struct {
	// Events in order; durable ones are already on disk and follow the head.
	Events []frames.Encoded
	// Turn is the open turn after Events, nil between turns. It is immutable.
	Turn *frames.TurnSnapshot
	// Notices raised, settled or passed on, in order, after Events.
	Notices []Notice
	// Status, when not nil, is the session's state after this update; it is
	// sent as `host/session-status` to the session's and the host's subscribers.
	Status *frames.SessionStatus
	// Summary, when not nil, replaces the summary and is sent as
	// `host/session-updated`.
	Summary *frames.Session
}

// NoticeKind says what a notice does to the hub's memory.
type NoticeKind uint8

const (
	// Raise keeps the frame under Key; every baseline repeats it until Settle.
	Raise NoticeKind = iota
	// Settle forgets Key and goes to whoever was sent its Raise, and to
	// everyone who matches now.
	Settle
	// Pass is sent once and not kept.
	Pass
)

// Notice is a frame outside the log that is never withheld. It reaches a
// connection once, however many of its subscriptions match: those of the session
// and the host's. The hub does not know what it says.
type Notice struct {
	Kind  NoticeKind
	Key   string
	Frame []byte // encoded notification
}

// Delivery says which streams a subscription wants.
type Delivery struct {
	Text      string // "stream" (default) or "final"
	Reasoning string // "stream" (default), "final" or "off"
	Tools     string // "stream" (default) or "off"
}

// SubscribeEntry asks for one session. Since nil keeps the cursor of an existing
// subscription, or starts at head.
type SubscribeEntry struct {
	SessionID frames.SessionID
	Since     *frames.Seq
	Epoch     frames.Epoch // "" is not compared
	Tree      bool
}

// SubscribeRequest is one `mux.subscribe`.
type SubscribeRequest struct {
	Sessions []SubscribeEntry
	Host     bool
	Delivery *Delivery // nil keeps (new subscriptions: all "stream")
}

// SubscribeResult is the answer for one session; Err is a [CursorError] or
// [ErrNoSession].
type SubscribeResult struct {
	SessionID frames.SessionID
	Head      frames.Seq
	Epoch     frames.Epoch
	Err       error
}
