package rpc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// fault is the error object of an answer.
type fault = WireError

// errNoReply is a method that returned without an answer: a mistake of the API.
var errNoReply = errors.New("rpc: the method returned nil without a reply")

func faultf(code int64, format string, args ...any) *fault {
	return &fault{Code: code, Message: fmt.Sprintf(format, args...)}
}

// WireErrorOf returns err as it travels, for results that carry errors of their
// parts. An error that is neither an [*Error] nor a [*ParamsError] becomes
// "internal error" without its text; logging it is the caller's business.
func WireErrorOf(err error) *WireError {
	f, known := faultOf(err)
	if !known {
		return faultf(CodeInternal, "internal error")
	}
	return f
}

// faultOf translates the errors that methods return on purpose.
func faultOf(err error) (f *fault, known bool) {
	if e, ok := errors.AsType[*ParamsError](err); ok {
		return &fault{Code: CodeInvalidParams, Message: e.Error()}, true
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return nil, false
	}
	data, err := marshal(struct {
		Kind    Kind `json:"kind"`
		Details any  `json:"details,omitempty"`
	}{e.Kind, e.Details})
	if err != nil {
		return nil, false
	}
	return &fault{Code: CodeKind, Message: e.Message, Data: data}, true
}

func internalFault(logID string) *fault {
	return faultf(CodeInternal, "internal error (log id %s); the host's log says more", logID)
}

func unknownMethod(name string, needsConn bool) *fault {
	if needsConn {
		return faultf(CodeMethodNotFound, "%s needs a WebSocket connection", name)
	}
	return faultf(CodeMethodNotFound, "unknown method %s; host.describe lists the features of this host", show(name))
}

func forbidden(m *method, granted []Scope) *fault {
	have := "none"
	if len(granted) > 0 {
		words := make([]string, len(granted))
		for i, s := range granted {
			words[i] = string(s)
		}
		have = strings.Join(slices.Compact(words), ", ")
	}
	f, _ := faultOf(Errorf(KindForbidden, "%s needs the scope %s, this client has %s; use a token with that scope", m.Name, m.Scope, have))
	return f
}

// rank orders the scopes; an unknown one grants nothing.
func (s Scope) rank() int {
	return slices.Index([]Scope{ScopeObserve, ScopeAnswer, ScopeOperate, ScopeAdmin}, s)
}

// Includes reports whether s allows what other does. An unknown scope allows
// nothing and is allowed by nothing.
func (s Scope) Includes(other Scope) bool {
	return other.rank() >= 0 && s.rank() >= other.rank()
}
