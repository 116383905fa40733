package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
)

const (
	// readLimit bounds one message of the host; a whole view may be large.
	readLimit    = 32 << 20
	writeTimeout = 30 * time.Second
	// overhead is what a request has beside its params, at most.
	overhead = 256
)

// errNotSent is a call that never left: its connection was over before.
var errNotSent = errors.New("client: the connection ended before the call was sent")

// link is one connection. Its owner reads it; one goroutine writes it.
type link struct {
	sock   *websocket.Conn
	ctx    context.Context //nolint:containedctx // the lifetime of the goroutines
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	out    chan []byte   // unbuffered: what was taken counts as sent
	gone   chan struct{} // closed when calls no longer use this link
	ready  chan struct{} // closed when every subscription runs again

	mu     sync.Mutex
	nextID int64                  // guarded by mu
	calls  map[int64]*pendingCall // guarded by mu; nil once the link is over
}

// pendingCall waits for its response.
type pendingCall struct {
	// first runs on the reading goroutine, before any later frame is taken.
	first func(result []byte)
	done  chan response // buffered
}

// response is what the host answered.
type response struct {
	Result json.RawMessage `json:"result"`
	Error  *rpc.WireError  `json:"error"`
}

func newLink(c *Client, sock *websocket.Conn) *link {
	ctx, cancel := context.WithCancelCause(c.ctx)
	sock.SetReadLimit(readLimit)
	return &link{sock: sock, ctx: ctx, cancel: cancel, out: make(chan []byte), gone: make(chan struct{}), ready: make(chan struct{}), calls: make(map[int64]*pendingCall)}
}

// resumed reports whether every subscription runs again.
func (l *link) resumed() bool {
	select {
	case <-l.ready:
		return true
	default:
		return false
	}
}

// write sends what calls hand over, until the link is over.
func (l *link) write() {
	for {
		select {
		case msg := <-l.out:
			ctx, cancel := context.WithTimeout(l.ctx, writeTimeout)
			err := l.sock.Write(ctx, websocket.MessageText, msg)
			cancel()
			if err != nil {
				l.cancel(fmt.Errorf("write: %w", err))
				return
			}
		case <-l.ctx.Done():
			return
		}
	}
}

// end closes the link, fails its calls and waits for its goroutines.
func (l *link) end(cause error) {
	l.cancel(cause)
	_ = l.sock.CloseNow() // nothing more is read or written
	l.mu.Lock()
	calls := l.calls
	l.calls = nil
	l.mu.Unlock()
	for _, p := range calls {
		close(p.done)
	}
	l.wg.Wait()
}

// call sends a request and waits. The error is errNotSent, a *LostError, that of
// ctx, or what the host answered.
func (l *link) call(ctx context.Context, method string, params any, first func([]byte)) (json.RawMessage, error) {
	raw, err := encode(params)
	if err != nil {
		return nil, fmt.Errorf("client: params of %s: %w", method, err)
	}
	if n := len(raw) + overhead; n > frames.MaxMessage {
		// The host would end the connection, and the next one with the same call.
		return nil, rpc.Errorf(rpc.KindTooLarge, "%s: the call has %d bytes, at most %d are taken; send less, or large parts as blobs", method, n, frames.MaxMessage)
	}
	id, p := l.register(first)
	if p == nil {
		return nil, errNotSent
	}
	select {
	case l.out <- appendRequest(id, method, raw):
	case <-l.ctx.Done():
		l.forget(id)
		return nil, errNotSent
	case <-ctx.Done():
		l.forget(id)
		return nil, context.Cause(ctx)
	}
	select {
	case r, ok := <-p.done:
		if !ok {
			return nil, &LostError{Method: method, Cause: context.Cause(l.ctx)}
		}
		return r.Result, errorOf(r.Error)
	case <-ctx.Done():
		if first == nil {
			l.forget(id)
		} // else the response still says what the host changed
		return nil, context.Cause(ctx)
	}
}

// encode is params as JSON. Nothing is escaped that need not be: it would count.
func encode(params any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(params); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// left waits until calls no longer use l.
func (l *link) left(ctx context.Context) error {
	select {
	case <-l.gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *link) register(first func([]byte)) (int64, *pendingCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		return 0, nil
	}
	l.nextID++
	p := &pendingCall{first: first, done: make(chan response, 1)}
	l.calls[l.nextID] = p
	return l.nextID, p
}

func (l *link) forget(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, id)
}

// answer hands a response to its call. One for a call that was given up is
// dropped, but for what it changes.
func (l *link) answer(msg []byte) error {
	var r struct {
		ID *int64 `json:"id"`
		response
	}
	if err := json.Unmarshal(msg, &r); err != nil {
		return fmt.Errorf("the host sent a response that cannot be read: %w", err)
	}
	if r.ID == nil {
		return fmt.Errorf("the host could not read a request: %w", errorOf(r.Error))
	}
	l.mu.Lock()
	p := l.calls[*r.ID]
	delete(l.calls, *r.ID)
	l.mu.Unlock()
	if p == nil {
		return nil
	}
	if p.first != nil && r.Error == nil {
		p.first(r.Result)
	}
	p.done <- r.response
	return nil
}

// isResponse tells a response from a frame.
func isResponse(msg []byte) bool {
	if bytes.HasPrefix(msg, []byte(`{"jsonrpc":"2.0","method":`)) {
		return false
	}
	var m struct {
		Method *string `json:"method"`
	}
	return json.Unmarshal(msg, &m) == nil && m.Method == nil
}

func appendRequest(id int64, method string, params []byte) []byte {
	b := make([]byte, 0, len(params)+len(method)+64)
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = strconv.AppendInt(b, id, 10)
	b = append(b, `,"method":`...)
	b = strconv.AppendQuote(b, method)
	if !bytes.Equal(params, []byte("null")) {
		b = append(append(b, `,"params":`...), params...)
	}
	return append(b, '}')
}

// errorOf turns an error object into *rpc.Error or *RPCError; nil stays nil.
func errorOf(w *rpc.WireError) error {
	if w == nil {
		return nil
	}
	var data struct {
		Kind    rpc.Kind        `json:"kind"`
		Details json.RawMessage `json:"details"`
	}
	if w.Code == rpc.CodeKind && json.Unmarshal(w.Data, &data) == nil && data.Kind != "" {
		e := rpc.Errorf(data.Kind, "%s", w.Message)
		if data.Details != nil {
			e.Details = data.Details
		}
		return e
	}
	return &RPCError{Code: w.Code, Message: w.Message, Data: w.Data}
}
