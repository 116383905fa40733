package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/muxhost/muxhost/frames"
)

// Limits of names and rows.
const (
	MaxID  = 256      // bytes of a session id, an event id or an event type
	MaxKey = 1 << 10  // bytes of a row's key
	MaxRow = 16 << 20 // bytes of a row's value
)

// Defaults of Read, List and Scan where the caller passed 0.
const (
	DefaultLimit = 256
	DefaultBytes = 256 << 10
)

// CheckAppend refuses what no engine may store. Engines call it before they
// take a request into their queue. [ErrTooLarge] or a plain error.
func CheckAppend(sid frames.SessionID, evs []Event, rows []Row) error {
	if len(evs) > MaxBatch {
		return fmt.Errorf("%w: %d events in one append, at most %d are allowed; split them", ErrTooLarge, len(evs), MaxBatch)
	}
	if err := CheckEvents(sid, evs); err != nil {
		return err
	}
	return CheckRows(rows)
}

// CheckEvents checks the session id and each event, but not their number.
func CheckEvents(sid frames.SessionID, evs []Event) error {
	if err := CheckSession(sid); err != nil {
		return err
	}
	if len(evs) == 0 {
		return fmt.Errorf("store: session %q: nothing to store; pass at least one event", sid)
	}
	for i := range evs {
		e := &evs[i]
		if len(e.Data) > MaxEvent {
			return fmt.Errorf("%w: event %d (%s) has %d bytes, at most %d are allowed", ErrTooLarge, i, e.Type, len(e.Data), MaxEvent)
		}
		if len(e.ID) > MaxID || len(e.Type) > MaxID {
			return fmt.Errorf("%w: event %d has an id or a type over %d bytes", ErrTooLarge, i, MaxID)
		}
	}
	return nil
}

// CheckSession refuses ids that cannot be a key: empty, too long, or with a
// slash or a NUL in them.
func CheckSession(sid frames.SessionID) error {
	switch {
	case sid == "":
		return fmt.Errorf("store: the session id is empty")
	case len(sid) > MaxID:
		return fmt.Errorf("%w: a session id of %d bytes, at most %d are allowed", ErrTooLarge, len(sid), MaxID)
	case strings.ContainsAny(string(sid), "/\x00"):
		return fmt.Errorf("store: session id %q: slashes and NULs are not allowed", sid)
	}
	return nil
}

// CheckRows refuses rows without a table or key, and those too large.
func CheckRows(rows []Row) error {
	for i := range rows {
		r := &rows[i]
		switch {
		case r.Table == "" || r.Key == "":
			return fmt.Errorf("store: row %d (%q, %q): table and key may not be empty", i, r.Table, r.Key)
		case len(r.Table) > MaxID || len(r.Key) > MaxKey || len(r.Value) > MaxRow:
			return fmt.Errorf("%w: row %d (%q): at most %d bytes of table, %d of key, %d of value are allowed", ErrTooLarge, i, r.Table, MaxID, MaxKey, MaxRow)
		}
	}
	return nil
}

// Owns reports whether a row with this key goes with the session.
func Owns(sid frames.SessionID, key string) bool {
	rest, ok := strings.CutPrefix(key, string(sid))
	return ok && (rest == "" || rest[0] == '/')
}

// Cancelled returns nil while ctx lives, and otherwise an error that wraps
// ctx's and says that nothing was stored.
func Cancelled(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("store: given up before its turn, nothing was stored: %w", context.Cause(ctx))
}

// CheckRestore refuses what no engine may restore.
func CheckRestore(sid frames.SessionID, firstSeq frames.Seq, evs []Event) error {
	if firstSeq == 0 || firstSeq > frames.MaxInteger-frames.Seq(len(evs)) {
		return fmt.Errorf("store: restore from seq %d: numbers start at 1 and stay below 2^53", firstSeq)
	}
	return CheckEvents(sid, evs)
}

// Restored reports whether head is what this very restore would make, so that
// a repeated call is harmless.
func Restored(head Head, epoch frames.Epoch, firstSeq frames.Seq, evs []Event) bool {
	last := evs[len(evs)-1].ID
	return head.First == firstSeq && head.Seq == firstSeq+frames.Seq(len(evs))-1 &&
		last != "" && head.LastID == last && (epoch == "" || epoch == head.Epoch)
}
