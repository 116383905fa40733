package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// What callers branch on.
var (
	// ErrNoSession means that there is no session with this id.
	ErrNoSession = errors.New("session: there is no such session: list the sessions")
	// ErrNoTask means that the session has no task with this id.
	ErrNoTask = errors.New("session: it has no such task: list its tasks")
	// ErrClosing means that the session is being closed or deleted.
	ErrClosing = errors.New("session: it is being closed: try again when it is")
	// ErrDraining means that the host is going down and takes no new work.
	ErrDraining = errors.New("session: the host is going down: try again when it is back")
	// ErrQueueFull means that too many prompts wait already.
	ErrQueueFull = errors.New("session: too many prompts wait: wait for a turn to end, or cancel some")
	// ErrPromptConflict means that a prompt id was used before for something else.
	ErrPromptConflict = errors.New("session: this promptId was used for another prompt: take a new id")
	// ErrRequestConflict means that a request id made a session of another kind.
	ErrRequestConflict = errors.New("session: this requestId was used for another session: take a new id")
	// ErrTooLarge means that a prompt is too large to be an event.
	ErrTooLarge = errors.New("session: too large")
)

// errGone is what a stopped actor answers; the caller looks the session up anew.
var errGone = errors.New("session: the actor has stopped")

// ParamError reports an argument that cannot be used.
type ParamError struct {
	// Field is the argument's name on the wire, Want what it has to be.
	Field, Want string
}

func (e *ParamError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Want) }

// StorageError reports that something could not be stored; nothing changed.
type StorageError struct{ Err error }

func (e *StorageError) Error() string {
	return fmt.Sprintf("session: could not be stored, nothing changed: %v", e.Err)
}

// Unwrap returns the store's error.
func (e *StorageError) Unwrap() error { return e.Err }

// said is what people are told of err: what a store says of its files is for the
// host's log.
func said(err error) string {
	if _, ok := errors.AsType[*StorageError](err); ok {
		return "it could not be stored; the host's log says why"
	}
	return clip(err.Error())
}

// UnavailableError reports that an agent cannot serve.
type UnavailableError struct {
	Agent string
	Err   error
}

func (e *UnavailableError) Error() string { return fmt.Sprintf("agent %q: %v", e.Agent, e.Err) }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// RefusedError reports options that an agent refused.
type RefusedError struct {
	Agent string
	Err   error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("agent %q refused the options: %v", e.Agent, e.Err)
}

// Unwrap returns the agent's error.
func (e *RefusedError) Unwrap() error { return e.Err }

// BudgetError reports a session that has used up its budget.
type BudgetError struct {
	Session frames.SessionID
	// What is "tokens", "turns" or "cost".
	What string
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("session %s: its budget of %s is used up: raise it with session.configure", e.Session, e.What)
}

// Is makes it [agent.ErrBudget] for agents.
func (e *BudgetError) Is(target error) bool { return target == agent.ErrBudget }

// RateError reports a tree that grows too fast.
type RateError struct {
	// PerMinute is how many children a tree may get in a minute.
	PerMinute int
	// Wait is how long it takes until the next one may come.
	Wait time.Duration
}

func (e *RateError) Error() string {
	return fmt.Sprintf("session: more than %d children a minute in one tree: try again in %v", e.PerMinute, e.Wait.Round(time.Millisecond))
}
