package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

// Exit codes of every verb but `run`, which exits with its command's own code.
const (
	exitFailed       = 1
	exitUsage        = 2
	exitUnreachable  = 3
	exitUnauthorized = 4
	exitNotFound     = 5
	exitNotPending   = 6
	exitRefused      = 7 // the turn was rejected or cancelled
	exitTimeout      = 8
	exitInterrupted  = 130
)

// exitError ends the program with a code. A nil err prints nothing.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// fail returns an error that ends the program with code.
func fail(code int, format string, args ...any) error {
	return &exitError{code: code, err: fmt.Errorf(format, args...)}
}

// ExitCode returns the code that err ends the program with.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	if e, ok := errors.AsType[*rpc.Error](err); ok {
		return kindCode(e.Kind)
	}
	if e, ok := errors.AsType[*client.RPCError](err); ok && e.Code == rpc.CodeInvalidParams {
		return exitUsage
	}
	if _, ok := errors.AsType[*client.RefusedError](err); ok {
		return exitFailed // there is a host
	}
	switch {
	case errors.Is(err, client.ErrUnauthorized):
		return exitUnauthorized
	case errors.Is(err, client.ErrUnreachable):
		return exitUnreachable
	case errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	return exitFailed
}

// say returns what a person is told of err: of params that the host refused, why,
// without the words of the protocol; of a connection that it refused, what to do.
func say(err error) string {
	if e, ok := errors.AsType[*client.RPCError](err); ok && e.Code == rpc.CodeInvalidParams {
		return strings.TrimPrefix(strings.TrimPrefix(e.Message, "invalid params: "), "params.")
	}
	if e, ok := errors.AsType[*client.RefusedError](err); ok {
		return strings.TrimPrefix(e.Error(), "client: ") + whatToDo(e.Status)
	}
	return err.Error()
}

// whatToDo says what helps where the host opens no connection.
func whatToDo(status int) string {
	switch status {
	case http.StatusTooManyRequests:
		return "\nEnd a program that is connected with the same token; give others tokens of their own with\n  muxhost tokens create"
	case http.StatusServiceUnavailable:
		return "\nTry again in a moment, or end programs that are connected."
	}
	return "\nSee whether what answers there is muxhost, and of this version."
}

func kindCode(k rpc.Kind) int {
	switch k {
	case rpc.KindSessionNotFound, rpc.KindBlobNotFound, rpc.KindGrantNotFound, rpc.KindTaskNotFound:
		return exitNotFound
	case rpc.KindApprovalNotPending, rpc.KindQuestionNotPending, rpc.KindRequestIDConflict:
		return exitNotPending
	case rpc.KindForbidden, rpc.KindUnauthenticated:
		return exitUnauthorized
	}
	return exitFailed
}
