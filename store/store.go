// Package store keeps every session's log, and small rows beside the logs.
//
// A log is a list of events numbered 1, 2, 3 … without gaps. Appending is
// compare-and-append: the caller names the head it believes in, and a mismatch
// stores nothing. What Append acknowledged survives a crash of the process and a
// loss of power, as far as the disk obeys fdatasync.
//
// store knows that an event has an id, a type, a time and bytes; it knows no
// clients, agents or frames. The contract is written for two engines: bbolt here,
// and a replicated log later, so nothing in it needs a file.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// Head describes the end of a log. The zero Head is that of a session which
// does not exist.
type Head struct {
	// Seq is the last event's number, First the oldest kept; both 0 when empty.
	Seq, First frames.Seq
	// Epoch is the log's identity, minted by the store with the first event.
	Epoch frames.Epoch
	// Fence is the store's own fencing number: it orders writers where several
	// hosts share a log. Always 0 on one machine. It is not the Epoch.
	Fence uint64
	// Rev is an opaque compare-and-set token.
	Rev uint64
	// LastID is the id of the last event.
	LastID string
	// Deleted says that the session was deleted and may not be written again.
	Deleted bool
}

// Event is one stored event. ID, Type, Time and Data are the caller's; Seq and
// Fence are set by the store.
type Event struct {
	// ID makes a repeated Append harmless; unique within the session.
	ID   string
	Type string
	Time time.Time
	// Data is opaque to the store. The host stores the whole encoded event.
	Data  []byte
	Seq   frames.Seq
	Fence uint64
}

// Row is one small value beside the logs. A nil Value deletes the key.
type Row struct {
	Table string // see the Table constants
	Key   string
	Value []byte
}

// The tables. A row whose key is a session id, or starts with a session id and
// a slash, goes with that session when it is deleted.
const (
	TableSession = "session" // key sid: the summary record
	TablePrompt  = "prompt"  // key sid/promptId: what was answered
	TableDirty   = "dirty"   // key sid: its log may need repair
	TableGrant   = "grant"   // key grantId
	TableToken   = "token"   // key tokenId
	TableBase    = "base"    // key sid: the fold of what was trimmed
	TableState   = "state"   // key sid: what its agent keeps
	TableHost    = "host"    // host-wide values
)

// Summary is one row of List.
type Summary struct {
	SessionID frames.SessionID
	Head      Head
	// Record is the value in TableSession, nil if there is none.
	Record []byte
}

// Limits of one Append.
const (
	MaxBatch = 256
	MaxEvent = 768 << 10 // bytes of one event's Data
)

// Store is what every engine provides; storetest.Run checks it.
//
// All methods are safe for concurrent use. They block on the disk and honour ctx
// while they wait for their turn; once a write is under way it is finished, so an
// error that wraps ctx.Err() from Append means [ErrUnknown] unless it says
// otherwise.
type Store interface {
	// Head returns the end of a log; the zero Head if it does not exist.
	Head(ctx context.Context, sid frames.SessionID) (Head, error)

	// Append stores evs as at.Seq+1 … and rows with them, all or nothing, and
	// returns the new head. It succeeds only if at is still the head (by Rev)
	// and at.Fence is not below it. When it returns nil, everything is durable.
	// Repeating the same call after a success returns the same head (by the
	// events' IDs). evs may not be empty. Errors: [ErrConflict] as
	// *ConflictError, [ErrDeleted], [ErrTooLarge], [ErrFull], [ErrUnknown].
	// The slices are not kept.
	Append(ctx context.Context, sid frames.SessionID, at Head, evs []Event, rows ...Row) (Head, error)

	// Read returns events with Seq > after, ascending, without gaps, at most
	// limit (0: 256) and about maxBytes (0: 256 KiB; always at least one event).
	// Empty at the head. [ErrTrimmed] as *TrimmedError if after < First-1;
	// [ErrDeleted]; [ErrCorrupt] rather than ever returning wrong bytes. The
	// returned bytes are the caller's.
	Read(ctx context.Context, sid frames.SessionID, after frames.Seq, limit, maxBytes int) ([]Event, error)

	// Tail yields every event with Seq > after exactly once, in order, as they
	// come, without slowing the writer.
	Tail(ctx context.Context, sid frames.SessionID, after frames.Seq) (Tailer, error)

	// Trim drops events with Seq < before, never the last one, and stores rows
	// in the same step. Numbers never change. Idempotent.
	Trim(ctx context.Context, sid frames.SessionID, before frames.Seq, rows ...Row) error

	// Delete removes log and rows and leaves a tombstone; at is compared as in
	// Append. Later Appends get [ErrDeleted]. Idempotent. Tailers end.
	Delete(ctx context.Context, sid frames.SessionID, at Head) error

	// Size returns the bytes of Data of the kept events of a log, 0 if there is
	// none. It walks the log's records without decoding them.
	Size(ctx context.Context, sid frames.SessionID) (int64, error)

	// List returns sessions whose id starts with prefix, ordered by id, after
	// the id afterSID, without deleted ones. It reads no log.
	List(ctx context.Context, prefix string, afterSID frames.SessionID, limit int) ([]Summary, error)

	// Restore fills an empty session from firstSeq on under the given epoch (""
	// mints one); for import.
	Restore(ctx context.Context, sid frames.SessionID, epoch frames.Epoch, firstSeq frames.Seq, evs []Event) (Head, error)

	// Get returns one row's value, nil if absent.
	Get(ctx context.Context, table, key string) ([]byte, error)
	// Put stores rows, all or nothing, durably.
	Put(ctx context.Context, rows ...Row) error
	// Scan returns rows whose key starts with prefix, ordered, after the key
	// afterKey, at most limit (0: 256).
	Scan(ctx context.Context, table, prefix, afterKey string, limit int) ([]Row, error)

	// Close waits for writes under way. Later calls get [ErrClosed].
	Close() error
}

// Snapshotter is a [Store] that can copy itself while it is written to.
type Snapshotter interface {
	Store
	// Snapshot writes everything as of one moment to w and returns the number
	// of bytes written. Every Append that returned before the call is in it.
	// Writers go on meanwhile, but a slow w may delay them: give it a file of
	// this machine, not a socket. What the bytes are is the engine's to say; it
	// can open them.
	Snapshot(ctx context.Context, w io.Writer) (int64, error)
}

// Tailer follows one log. It belongs to one goroutine.
type Tailer interface {
	// Next blocks for the next event. It ends with [ErrDeleted], [ErrTrimmed],
	// [ErrClosed] or ctx's error.
	Next(ctx context.Context) (Event, error)
	Close() error
}

// CtxWriter passes writes on to W until Ctx ends; then it fails with its cause.
// Engines copy through it.
type CtxWriter struct {
	Ctx context.Context //nolint:containedctx // lives as long as one copy
	W   io.Writer
}

func (c CtxWriter) Write(p []byte) (int, error) {
	if c.Ctx.Err() != nil {
		return 0, fmt.Errorf("store: the copy was given up: %w", context.Cause(c.Ctx))
	}
	return c.W.Write(p)
}

// What callers branch on.
var (
	ErrConflict = errors.New("store: the log has moved on")
	ErrDeleted  = errors.New("store: the session is deleted")
	ErrTooLarge = errors.New("store: too large")
	ErrFull     = errors.New("store: no space left")
	// ErrUnknown means neither stored nor refused: call Head before anything
	// else.
	ErrUnknown = errors.New("store: the outcome is unknown")
	ErrTrimmed = errors.New("store: the events are no longer kept")
	ErrCorrupt = errors.New("store: stored data is damaged")
	ErrClosed  = errors.New("store: closed")
)

// ConflictError is [ErrConflict] with the head as it is.
type ConflictError struct{ Actual Head }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%v: its head is %d", ErrConflict, e.Actual.Seq)
}
func (e *ConflictError) Unwrap() error { return ErrConflict }

// TrimmedError is [ErrTrimmed] with the oldest number kept.
type TrimmedError struct{ First frames.Seq }

func (e *TrimmedError) Error() string {
	return fmt.Sprintf("%v: the oldest kept is %d", ErrTrimmed, e.First)
}
func (e *TrimmedError) Unwrap() error { return ErrTrimmed }
