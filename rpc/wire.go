package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
)

// appender is a result that writes itself, because it holds JSON that is only
// to be copied.
type appender interface{ AppendJSON(dst []byte) []byte }

// filler is a result that replaces its nil lists, so that they travel as [].
type filler interface{ fill() }

// appendResult appends a whole response.
func appendResult(dst, rawID []byte, result any) ([]byte, error) {
	if a, ok := result.(appender); ok {
		return append(a.AppendJSON(appendHead(dst, rawID, `,"result":`, 1<<10)), '}'), nil
	}
	e := encoders.Get().(*encoder)
	defer e.put()
	body, err := e.encode(result)
	if err != nil {
		return dst, fmt.Errorf("encode %T: %w", result, err)
	}
	dst = appendHead(dst, rawID, `,"result":`, len(body)+1)
	return append(append(dst, body...), '}'), nil
}

// appendError appends a whole error response.
func appendError(dst, rawID []byte, f *fault) []byte {
	message, _ := marshal(f.Message) // a string always encodes
	dst = appendHead(dst, rawID, `,"error":{"code":`, len(message)+len(f.Data)+64)
	dst = strconv.AppendInt(dst, f.Code, 10)
	dst = append(dst, `,"message":`...)
	dst = append(dst, message...)
	if len(f.Data) > 0 {
		dst = append(dst, `,"data":`...)
		dst = append(dst, f.Data...)
	}
	return append(dst, '}', '}')
}

// appendHead begins a response and makes room for more bytes.
func appendHead(dst, rawID []byte, next string, more int) []byte {
	const head = `{"jsonrpc":"2.0","id":`
	if dst == nil {
		dst = make([]byte, 0, len(head)+len(rawID)+len(next)+more)
	}
	dst = append(dst, head...)
	dst = append(dst, rawID...)
	return append(dst, next...)
}

// encoder is a JSON encoder that leaves <, > and & as they are.
type encoder struct {
	buf bytes.Buffer
	enc *json.Encoder
}

var encoders = sync.Pool{New: func() any {
	e := new(encoder)
	e.enc = json.NewEncoder(&e.buf)
	e.enc.SetEscapeHTML(false)
	return e
}}

// encode returns bytes that stand until the next use.
func (e *encoder) encode(v any) ([]byte, error) {
	e.buf.Reset()
	if err := e.enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(e.buf.Bytes(), []byte("\n")), nil
}

// put gives e back, unless it has grown large.
func (e *encoder) put() {
	if e.buf.Cap() <= 64<<10 {
		encoders.Put(e)
	}
}

// marshal encodes v into bytes of its own.
func marshal(v any) ([]byte, error) {
	e := encoders.Get().(*encoder)
	defer e.put()
	b, err := e.encode(v)
	return bytes.Clone(b), err
}

// AppendJSON appends the result; the events are copied as they are.
func (r HistoryResult) AppendJSON(dst []byte) []byte {
	size := 96
	for _, ev := range r.Events {
		size += len(ev) + 1
	}
	dst = grow(dst, size)
	dst = append(dst, `{"events":[`...)
	for i, ev := range r.Events {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, ev...)
	}
	dst = append(dst, `],"first":`...)
	dst = strconv.AppendUint(dst, uint64(r.First), 10)
	dst = append(dst, `,"head":`...)
	dst = strconv.AppendUint(dst, uint64(r.Head), 10)
	dst = append(dst, `,"more":`...)
	dst = strconv.AppendBool(dst, r.More)
	return append(dst, '}')
}

// AppendJSON appends the result; the view is copied as it is.
func (r GetResult) AppendJSON(dst []byte) []byte {
	session, err := marshal(r.Session)
	if err != nil {
		panic(fmt.Sprintf("rpc: encode session: %v", err)) // plain fields always encode
	}
	dst = grow(dst, len(session)+len(r.View)+64)
	dst = append(dst, `{"session":`...)
	dst = append(dst, session...)
	if len(r.View) > 0 {
		dst = append(dst, `,"view":`...)
		dst = append(dst, r.View...)
	}
	if r.Seq > 0 {
		dst = append(dst, `,"seq":`...)
		dst = strconv.AppendUint(dst, uint64(r.Seq), 10)
	}
	return append(dst, '}')
}

// grow makes room for n more bytes, and one to close the response.
func grow(dst []byte, n int) []byte {
	if cap(dst)-len(dst) > n {
		return dst
	}
	return append(make([]byte, 0, len(dst)+n+1), dst...)
}

func (r *DescribeResult) fill() {
	list(&r.Agents)
	list(&r.Features)
	list(&r.You.Scopes)
	for i := range r.Agents {
		list(&r.Agents[i].Capabilities)
	}
	if r.Limits == nil {
		r.Limits = map[string]int64{}
	}
}

func (r *SubscribeResult) fill() { list((*[]Subscribed)(r)) }
func (r *ListResult) fill()      { list(&r.Sessions) }
func (r *PendingResult) fill()   { list(&r.Pending) }
func (r *GrantsResult) fill()    { list(&r.Grants) }

// list replaces a nil slice by an empty one.
func list[T any](s *[]T) {
	if *s == nil {
		*s = []T{}
	}
}
