package rpc

import (
	"encoding/json"
	"fmt"
)

// Kind names what went wrong beyond protocol faults; `data.kind` on the wire
// (contract section 7).
type Kind string

// The kinds of errors.
const (
	KindSessionNotFound    Kind = "session-not-found"
	KindSessionClosed      Kind = "session-closed"
	KindAgentUnavailable   Kind = "agent-unavailable"
	KindAgentUnsupported   Kind = "agent-unsupported"
	KindAgentFailed        Kind = "agent-failed"
	KindApprovalNotPending Kind = "approval-not-pending"
	KindQuestionNotPending Kind = "question-not-pending"
	KindInputHashMismatch  Kind = "input-hash-mismatch"
	KindCursorExpired      Kind = "cursor-expired"
	KindCursorAhead        Kind = "cursor-ahead"
	KindForkNotAtTurnEnd   Kind = "fork-not-at-turn-end"
	KindPromptBlocked      Kind = "prompt-blocked"
	KindBudgetExceeded     Kind = "budget-exceeded"
	KindQueueFull          Kind = "queue-full"
	KindTooLarge           Kind = "too-large"
	KindRateLimited        Kind = "rate-limited"
	KindUnauthenticated    Kind = "unauthenticated"
	KindForbidden          Kind = "forbidden"
	KindBlobNotFound       Kind = "blob-not-found"
	KindTaskNotFound       Kind = "task-not-found"
	KindGrantNotFound      Kind = "grant-not-found"
	KindStorageFailed      Kind = "storage-failed"
	KindDraining           Kind = "draining"
	KindRequestIDConflict  Kind = "request-id-conflict"
)

// JSON-RPC codes for protocol faults, and the one code for every [Kind].
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	CodeKind           = -32000
)

// Error is an error that a method returns on purpose. Its message says what was
// wrong, what was expected and what to do; it goes to the client. Any other error
// becomes "internal" with a log id and no text.
type Error struct {
	Kind    Kind
	Message string
	// Details is marshalled into data.details; nil for none.
	Details any
}

// Errorf returns an [Error] without details.
func Errorf(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...)}
}

// With returns e with details.
func (e *Error) With(details any) *Error { e.Details = details; return e }

func (e *Error) Error() string { return string(e.Kind) + ": " + e.Message }

// ParamsError is an error in a method's params: -32602 on the wire.
type ParamsError struct{ Message string }

// Paramsf returns a [ParamsError].
func Paramsf(format string, args ...any) *ParamsError {
	return &ParamsError{Message: fmt.Sprintf(format, args...)}
}

func (e *ParamsError) Error() string { return "invalid params: " + e.Message }

// WireError is an error object as it travels.
type WireError struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}
