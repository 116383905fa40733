package host

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/blob"
	"github.com/muxhost/muxhost/host/internal/pending"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/mux"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/store"
)

// Every error of the rooms below has its kind on the wire, also when it is
// wrapped, and what a disk said stays out of it.
func TestEveryErrorHasItsKind(t *testing.T) {
	disk := errors.New("write /secret/path: input/output error")
	settled := &pending.Settlement{Outcome: frames.Rejected, Cause: frames.CauseTimeout}
	for _, c := range []struct {
		err    error
		want   string
		secret bool
	}{
		{session.ErrNoSession, "session-not-found", false},
		{session.ErrClosing, "session-closed", false},
		{session.ErrDraining, "draining", false},
		{session.ErrQueueFull, "queue-full", false},
		{session.ErrPromptConflict, "request-id-conflict", false},
		{session.ErrRequestConflict, "request-id-conflict", false},
		{session.ErrTooLarge, "too-large", false},
		{&session.ParamError{Field: "cwd", Want: "an absolute path"}, "params", false},
		{&session.UnavailableError{Agent: "x", Err: errors.New("not installed")}, "agent-unavailable", false},
		{&session.RefusedError{Agent: "x", Err: errors.New("no such model")}, "agent-unsupported", false},
		{&session.BudgetError{Session: "s", What: "turns"}, "budget-exceeded", false},
		{&session.StorageError{Err: disk}, "storage-failed", true},
		{&session.StorageError{Err: store.ErrFull}, "storage-failed", true},
		{&pending.NotPendingError{ID: "a", Kind: pending.KindApproval, Settled: settled}, "approval-not-pending", false},
		{&pending.NotPendingError{ID: "q", Kind: pending.KindQuestion}, "question-not-pending", false},
		{&pending.HashMismatchError{ID: "a"}, "input-hash-mismatch", false},
		{&pending.InvalidAnswerError{Field: "outcome", Want: "rejected"}, "params", false},
		{&pending.StorageError{ID: "a", Err: disk}, "storage-failed", true},
		{&pending.StorageError{ID: "a", Stands: true, Err: disk}, "storage-failed", true},
		{&pending.GrantNotFoundError{ID: "g"}, "grant-not-found", false},
		{&mux.CursorError{Kind: mux.CursorExpired, First: 5, Head: 9}, "cursor-expired", false},
		{&mux.CursorError{Kind: mux.CursorAhead, Head: 9}, "cursor-ahead", false},
		{&store.TrimmedError{First: 5}, "storage-failed", false},
		{&store.ConflictError{}, "storage-failed", true},
		{store.ErrUnknown, "storage-failed", true},
		{store.ErrCorrupt, "storage-failed", true},
		{store.ErrClosed, "draining", false},
		{blob.ErrNotFound, "blob-not-found", false},
		{blob.ErrQuota, "storage-failed", true},
		{disk, "unknown", false},
	} {
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err)} {
			out, secret := translate(err)
			got := "unknown"
			if e, ok := errors.AsType[*rpc.Error](out); ok {
				got = string(e.Kind)
			} else if _, ok := errors.AsType[*rpc.ParamsError](out); ok {
				got = "params"
			}
			if got != c.want || secret != c.secret {
				t.Errorf("translate(%v) = %s, secret %v; want %s, %v", err, got, secret, c.want, c.secret)
			}
			if out != nil && strings.Contains(out.Error(), "/secret/path") {
				t.Errorf("translate(%v) tells the client %v", err, out)
			}
		}
	}
}
