package rpc

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	"github.com/muxhost/muxhost/frames"
	"github.com/sourcegraph/jsonrpc2"
)

// Limits of one message.
const (
	maxTokens  = 100_000
	maxIDBytes = 128
)

var (
	nullID      = []byte("null")
	emptyParams = []byte("{}")
)

// request is one proper call. Params and rawID point into the message.
type request struct {
	jsonrpc2.Request
	rawID []byte
}

// params returns the params, {} where they are absent.
func (r *request) params() []byte {
	if r.Params == nil {
		return emptyParams
	}
	return *r.Params
}

// parseRequest checks a whole message and takes its envelope apart. Text that is
// not JSON is -32700; whatever else is wrong is -32600, with a null id also where
// an id was given: nothing of a bad envelope is trusted.
func parseRequest(msg []byte) (*request, *fault) {
	err := frames.CheckJSON(msg, frames.JSONLimits{Depth: frames.MaxDepth, Tokens: maxTokens, Bytes: frames.MaxMessage})
	if err != nil {
		return nil, guardFault(err)
	}
	s := scanner{b: msg}
	s.space()
	if s.peek() != '{' {
		return nil, faultf(CodeInvalidRequest, "a message must be one JSON-RPC request object, got %s; batches are not supported", s.kind())
	}
	req := new(request)
	var seen envelope
	for key := range s.members() {
		if f := seen.take(req, key, s.value()); f != nil {
			return nil, f
		}
	}
	return req, seen.complete()
}

// guardFault answers what frames.CheckJSON refuses.
func guardFault(err error) *fault {
	je, ok := errors.AsType[*frames.JSONError](err)
	if ok && je.Kind != frames.JSONSyntax {
		return faultf(CodeInvalidRequest, "the message breaks a limit: %s at byte %d; want UTF-8, no duplicate names, depth up to %d, up to %d tokens",
			je.Kind, je.Offset, frames.MaxDepth, maxTokens)
	}
	if ok {
		return faultf(CodeParse, "the message is not JSON: syntax error at byte %d; want one JSON-RPC request object", je.Offset)
	}
	return faultf(CodeParse, "the message is not JSON; want one JSON-RPC request object")
}

// envelope notes which members were seen.
type envelope struct{ version, id, method bool }

// take stores one member of the envelope.
func (e *envelope) take(req *request, key, value []byte) *fault {
	switch string(plain(key)) {
	case "jsonrpc":
		e.version = true
		if string(plain(value)) != "2.0" || value[0] != '"' {
			return faultf(CodeInvalidRequest, `"jsonrpc" must be the string "2.0"`)
		}
	case "id":
		e.id = true
		return req.setID(value)
	case "method":
		e.method = true
		if value[0] != '"' {
			return faultf(CodeInvalidRequest, `"method" must be a string, got %s`, kindOf(value))
		}
		req.Method = methodName(plain(value))
	case "params":
		params := json.RawMessage(value)
		req.Params = &params
	case "result", "error":
		return faultf(CodeInvalidRequest, "a response came, but this host makes no calls; send requests only")
	default:
		return faultf(CodeInvalidRequest, "unknown member %s; a request has jsonrpc, id, method and params, in this spelling", quoted(key))
	}
	return nil
}

// methodName returns the name; that of a known method is not copied.
func methodName(name []byte) string {
	if m := methods[string(name)]; m != nil {
		return m.Name
	}
	return string(name)
}

func (e *envelope) complete() *fault {
	switch {
	case !e.version:
		return faultf(CodeInvalidRequest, `"jsonrpc":"2.0" is missing`)
	case !e.method:
		return faultf(CodeInvalidRequest, `"method" is missing`)
	case !e.id:
		return faultf(CodeInvalidRequest, `"id" is missing; notifications from clients are not accepted`)
	}
	return nil
}

// setID accepts strings and the integers that every JSON reader holds exactly.
func (r *request) setID(raw []byte) *fault {
	bad := func() *fault {
		return faultf(CodeInvalidRequest, `"id" must be a string of at most %d bytes or an integer from 0 to 2^53-1, got %s`, maxIDBytes, kindOf(raw))
	}
	r.rawID = raw
	if raw[0] == '"' {
		if frames.CheckJSON(raw, frames.JSONLimits{IJSON: true}) != nil {
			return bad() // half a surrogate pair
		}
		r.ID = jsonrpc2.ID{Str: string(plain(raw)), IsString: true}
		if len(r.ID.Str) > maxIDBytes {
			return bad()
		}
		return nil
	}
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil || n >= frames.MaxInteger {
		return bad()
	}
	r.ID = jsonrpc2.ID{Num: n}
	return nil
}

// plain returns the text of a JSON string, or raw itself if it is none. Without
// escapes it points into raw.
func plain(raw []byte) []byte {
	if len(raw) < 2 || raw[0] != '"' {
		return raw
	}
	if !slices.Contains(raw, '\\') {
		return raw[1 : len(raw)-1]
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return nil // not reached: raw was checked
	}
	return []byte(s)
}
