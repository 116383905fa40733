package host

import (
	"errors"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/blob"
	"github.com/muxhost/muxhost/host/internal/pending"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/mux"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/store"
)

// sessionError says an error of a call on a session in the words of the wire.
func (c *caller) sessionError(sid frames.SessionID, err error) error {
	if errors.Is(err, session.ErrNoSession) || errors.Is(err, store.ErrDeleted) {
		return noSession(sid)
	}
	return c.wireError(err)
}

// translate says an error of the rooms below in the words of the wire; nil if it
// does not know it. secret says that the client is not told everything, so that
// the log should be.
func translate(err error) (out error, secret bool) {
	if e, ok := errors.AsType[*rpc.Error](err); ok {
		return e, false
	}
	if e, ok := errors.AsType[*rpc.ParamsError](err); ok {
		return e, false
	}
	if out := translatePending(err); out != nil {
		return out, false
	}
	if out := translateSession(err); out != nil {
		return out, false
	}
	if e, ok := errors.AsType[*mux.CursorError](err); ok {
		return cursorError(e), false
	}
	if e, ok := errors.AsType[*session.ExpiredError](err); ok {
		return expired(e), false
	}
	if errors.Is(err, blob.ErrNotFound) {
		return rpc.Errorf(rpc.KindBlobNotFound, "there is no such blob; its id stands in the event that names it"), false
	}
	return translateStorage(err)
}

// cursorError tells what the log holds instead of what was asked for.
func cursorError(e *mux.CursorError) *rpc.Error {
	return rpc.Errorf(rpc.Kind(e.Kind), "the log holds events %d to %d of epoch %s; subscribe from there, or from 0 without epoch", e.First, e.Head, e.Epoch).
		With(cursorDetails{e.First, e.Head, e.Epoch})
}

// cursorDetails are what a log holds.
type cursorDetails struct {
	First frames.Seq   `json:"first"`
	Head  frames.Seq   `json:"head"`
	Epoch frames.Epoch `json:"epoch"`
}

// expired tells what is kept of a log instead of what was asked for.
func expired(e *session.ExpiredError) *rpc.Error {
	out := cursorError(&mux.CursorError{Kind: mux.CursorExpired, First: e.First, Head: e.Head, Epoch: e.Epoch})
	out.Message = e.Error()
	return out
}

func translateSession(err error) error {
	if e, ok := errors.AsType[*session.ParamError](err); ok {
		return rpc.Paramsf("%s: %s", e.Field, e.Want)
	}
	if e, ok := errors.AsType[*session.UnavailableError](err); ok {
		return rpc.Errorf(rpc.KindAgentUnavailable, "%s; host.describe names the agents there are", e)
	}
	if e, ok := errors.AsType[*session.RefusedError](err); ok {
		return rpc.Errorf(rpc.KindAgentUnsupported, "%s", e)
	}
	if e, ok := errors.AsType[*session.BudgetError](err); ok {
		return rpc.Errorf(rpc.KindBudgetExceeded, "%s", e)
	}
	if e, ok := errors.AsType[*session.RateError](err); ok {
		return rpc.Errorf(rpc.KindRateLimited, "%s", e).With(struct {
			RetryAfterMs int64 `json:"retryAfterMs"`
		}{(e.Wait + time.Millisecond - 1).Milliseconds()})
	}
	for _, row := range []struct {
		is   error
		kind rpc.Kind
		text string
	}{
		{session.ErrNoSession, rpc.KindSessionNotFound, "there is no such session that this client may see; sessions.list names those there are"},
		{session.ErrClosing, rpc.KindSessionClosed, "the session is being closed; try again when it is"},
		{session.ErrDraining, rpc.KindDraining, "the host is going down; come back when it is up"},
		{session.ErrQueueFull, rpc.KindQueueFull, "too many prompts wait in this session; wait for a turn to end, or cancel some"},
		{pending.ErrFull, rpc.KindQueueFull, "too many requests are open; answer or cancel some"},
		{session.ErrRequestConflict, rpc.KindRequestIDConflict, "this requestId was used for another session; take a new id, or ask for the same again"},
		{session.ErrPromptConflict, rpc.KindRequestIDConflict, "this promptId was used for another prompt; take a new id"},
		{session.ErrTooLarge, rpc.KindTooLarge, "the content is too large for one event; send less text"},
	} {
		if errors.Is(err, row.is) {
			return rpc.Errorf(row.kind, "%s", row.text)
		}
	}
	return nil
}

// settled tells how a request ended, so that a client whose acknowledgement was
// lost can tell that its own answer stood.
type settled struct {
	Outcome frames.Outcome  `json:"outcome"`
	Origin  frames.Cause    `json:"origin"`
	By      *frames.By      `json:"by,omitempty"`
	Answers []frames.Answer `json:"answers,omitempty"`
	At      frames.Time     `json:"at,omitzero"`
}

func translatePending(err error) error {
	if e, ok := errors.AsType[*pending.NotPendingError](err); ok {
		kind := rpc.KindApprovalNotPending
		if e.Kind == pending.KindQuestion {
			kind = rpc.KindQuestionNotPending
		}
		out := rpc.Errorf(kind, "%s", e)
		if s := e.Settled; s != nil {
			out.Details = settled{Outcome: s.Outcome, Origin: s.Cause, By: s.By, Answers: s.Answers, At: frames.At(s.At)}
		}
		return out
	}
	if e, ok := errors.AsType[*pending.HashMismatchError](err); ok {
		return rpc.Errorf(rpc.KindInputHashMismatch, "%s", e)
	}
	if e, ok := errors.AsType[*pending.InvalidAnswerError](err); ok {
		return rpc.Paramsf("%s: want %s", e.Field, e.Want)
	}
	if e, ok := errors.AsType[*pending.GrantNotFoundError](err); ok {
		return noGrant(e.ID)
	}
	return nil
}

// translateStorage hides what the disk said; that is for the log.
func translateStorage(err error) (out error, secret bool) {
	_, ofSession := errors.AsType[*session.StorageError](err)
	answer, ofPending := errors.AsType[*pending.StorageError](err)
	switch {
	case ofPending && answer.Stands:
		return rpc.Errorf(rpc.KindStorageFailed, "the answer took effect, but it could not be stored yet; the host tries again, and its log says why"), true
	case errors.Is(err, store.ErrFull), errors.Is(err, blob.ErrQuota):
		return rpc.Errorf(rpc.KindStorageFailed, "no space is left, nothing changed; free some on the host and try again"), true
	case ofPending:
		return rpc.Errorf(rpc.KindStorageFailed, "the answer could not be stored, so the call was not allowed; the host's log says why"), true
	case errors.Is(err, store.ErrTrimmed):
		return rpc.Errorf(rpc.KindStorageFailed, "the log was trimmed while it was read; try again"), false
	case ofSession, errors.Is(err, store.ErrUnknown), errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrConflict):
		return rpc.Errorf(rpc.KindStorageFailed, "it could not be stored or read; the host's log says why"), true
	case errors.Is(err, store.ErrClosed):
		return rpc.Errorf(rpc.KindDraining, "the host is going down; come back when it is up"), false
	}
	return nil, false
}
