package pending

import (
	"errors"
	"fmt"

	"github.com/muxhost/muxhost/frames"
)

// ErrFull means that too many requests are open already; nothing was asked.
var ErrFull = errors.New("pending: too many open requests: answer or cancel some")

// NotPendingError reports an answer to a request that is not pending.
type NotPendingError struct {
	ID   frames.RequestID
	Kind Kind
	// Settled is how the request ended: outcome, cause, by, grant and time. It
	// is nil for an id that is not known, which is the same for one that never
	// existed, belongs to another session or was forgotten.
	Settled *Settlement
}

func (e *NotPendingError) Error() string {
	if e.Settled == nil {
		return fmt.Sprintf("%s %s is not pending: there is none with this id in the session; list what is pending", e.Kind, e.ID)
	}
	return fmt.Sprintf("%s %s is not pending: it ended %s (%s); drop its card", e.Kind, e.ID, e.Settled.Outcome, e.Settled.Cause)
}

// HashMismatchError reports an answer to another input than the one that waits.
// The request stays pending.
type HashMismatchError struct {
	ID        frames.RequestID
	Want, Got string
}

func (e *HashMismatchError) Error() string {
	return fmt.Sprintf("approval %s: inputHash is %q, want %q: show the input again and ask anew", e.ID, e.Got, e.Want)
}

// InvalidAnswerError reports an answer that the request does not admit. The
// request stays pending.
type InvalidAnswerError struct {
	// Field names the part of the answer, Want what it has to be.
	Field, Want string
}

func (e *InvalidAnswerError) Error() string {
	return fmt.Sprintf("answer: %s: want %s", e.Field, e.Want)
}

// StorageError reports an answer that could not be stored. An allow did not take
// effect then: the outcome is unavailable.
type StorageError struct {
	ID frames.RequestID
	// Stands says that the answer, which allows nothing, took effect all the
	// same; it is stored as soon as that is possible.
	Stands bool
	Err    error
}

func (e *StorageError) Error() string {
	if e.Stands {
		return fmt.Sprintf("%s: the answer took effect but could not be stored yet: %v", e.ID, e.Err)
	}
	return fmt.Sprintf("approval %s: the answer could not be stored, so the call was not allowed: %v", e.ID, e.Err)
}

func (e *StorageError) Unwrap() error { return e.Err }

// InvalidRequestError reports a request that could not be asked.
type InvalidRequestError struct {
	ID   frames.RequestID
	Want string
}

func (e *InvalidRequestError) Error() string {
	return fmt.Sprintf("pending: request %q: want %s", e.ID, e.Want)
}

// GrantNotFoundError reports a grant id that is not known.
type GrantNotFoundError struct{ ID frames.GrantID }

func (e *GrantNotFoundError) Error() string {
	return fmt.Sprintf("grant %s is not known: list the grants", e.ID)
}
