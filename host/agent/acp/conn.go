package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/jsonrpc2"
)

// Codes of JSON-RPC that we answer with.
const (
	codeNoMethod  = -32601
	codeBadID     = -32600
	codeBadParams = -32602
)

// callError is the agent's refusal of a call.
type callError struct {
	method, message string
	code            int64
	data            json.RawMessage
}

func (e *callError) Error() string {
	text := fmt.Sprintf("the agent refused %s: %s (%d)", e.method, e.message, e.code)
	if len(e.data) > 0 && len(e.data) <= 512 && !isNull(e.data) {
		text += " " + string(e.data)
	}
	return text
}

// request is a request of the agent that has no answer yet.
type request struct {
	inbound
	// cancel ends whoever works on the answer.
	cancel context.CancelFunc
}

// conn is the protocol's connection: our calls, and the agent's requests until
// they are answered.
type conn struct {
	*stream
	rpc *jsonrpc2.Conn
	ids atomic.Uint64
	wg  sync.WaitGroup

	mu   sync.Mutex // guards what follows; taken alone
	open map[string]*request
	over bool // wait was called
}

func newConn(s *stream) *conn { return &conn{stream: s, open: map[string]*request{}} }

// run starts to read. handle gets every request and notification in order, from
// the goroutine that reads.
func (c *conn) run(handle func(inbound)) {
	c.rpc = jsonrpc2.NewConn(context.Background(), c.stream, handler(func() {
		in := c.current
		c.current = inbound{}
		c.receive(in, handle)
	}), jsonrpc2.SetLogger(silent{}))
}

type handler func()

// Handle implements [jsonrpc2.Handler].
func (h handler) Handle(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request) { h() }

type silent struct{}

// Printf implements [jsonrpc2.Logger].
func (silent) Printf(string, ...any) {}

// receive registers a request and hands it on; withdrawals end here.
func (c *conn) receive(in inbound, handle func(inbound)) {
	switch {
	case in.method == "$/cancel_request" && in.id == nil:
		var p struct {
			ID json.RawMessage `json:"requestId"`
		}
		if json.Unmarshal(in.params, &p) == nil {
			c.withdraw(p.ID)
		}
		return
	case in.id != nil && !c.register(in):
		// The first one keeps the id; its answer comes.
		_ = c.refuse(in.id, codeBadID, "this id is in use: give every request its own")
		return
	}
	handle(in)
}

func (c *conn) register(in inbound) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[string(in.id)] != nil {
		return false
	}
	c.open[string(in.id)] = &request{inbound: in}
	return true
}

// attend makes cancel what a withdrawal of id calls. It is false where the
// request is settled already.
func (c *conn) attend(id json.RawMessage, cancel context.CancelFunc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.open[string(id)]
	if r == nil {
		return false
	}
	r.cancel = cancel
	return true
}

// take settles a request: only the first caller gets it, and answers it.
func (c *conn) take(id json.RawMessage) *request {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.open[string(id)]
	delete(c.open, string(id))
	return r
}

// reply answers a request that has no answer yet, and reports whether it had none.
func (c *conn) reply(id json.RawMessage, result any) bool {
	if c.take(id) == nil {
		return false
	}
	c.heard.Store(time.Now().UnixNano()) // the agent was not silent, it waited
	_ = c.answer(id, result)             // a connection that is gone is noticed elsewhere
	return true
}

// reject answers a request with an error, if it has no answer yet.
func (c *conn) reject(id json.RawMessage, code int, message string) {
	if c.take(id) != nil {
		_ = c.refuse(id, code, message)
	}
}

// withdraw settles what the agent takes back; it still gets an answer.
func (c *conn) withdraw(id json.RawMessage) {
	if r := c.take(id); r != nil {
		c.giveUp(r)
	}
}

// giveUp answers a request that was taken with what means nobody answered.
func (c *conn) giveUp(r *request) {
	switch r.method {
	case "session/request_permission":
		_ = c.answer(r.id, permissionAnswer{outcome{Outcome: "cancelled"}})
	case "elicitation/create":
		_ = c.answer(r.id, elicitationAnswer{Action: "cancel"})
	default:
		_ = c.refuse(r.id, codeNoMethod, "this host does not offer "+r.method)
	}
	if r.cancel != nil {
		r.cancel()
	}
}

// giveUpAll settles every open request for which match is true.
func (c *conn) giveUpAll(match func(inbound) bool) {
	c.mu.Lock()
	var taken []*request
	for key, r := range c.open {
		if match(r.inbound) {
			taken = append(taken, r)
			delete(c.open, key)
		}
	}
	c.mu.Unlock()
	for _, r := range taken {
		c.giveUp(r)
	}
}

// sessionOf is the session that a request names.
func sessionOf(in inbound) string {
	var p struct {
		SessionID string `json:"sessionId"`
	}
	if json.Unmarshal(in.params, &p) != nil {
		return ""
	}
	return p.SessionID
}

// asking reports whether a request of the agent waits for an answer.
func (c *conn) asking() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open) > 0
}

// reply of the agent to one of our calls.
type response struct {
	result json.RawMessage
	err    error
}

// start sends a call. The channel gets the response once; it is [errGone] where
// the connection ends first.
func (c *conn) start(method string, params any) (id uint64, _ <-chan response) {
	id = c.ids.Add(1)
	ch := make(chan response, 1)
	ctx := context.Background() // the connection ends the wait
	var w jsonrpc2.Waiter
	var err error
	sent := make(chan struct{})
	if !c.begin(func() {
		<-sent
		var r response
		if err == nil {
			err = w.Wait(ctx, &r.result)
		}
		if e, ok := errors.AsType[*jsonrpc2.Error](err); ok {
			r.err = faultOf(method, e)
		} else if err != nil {
			r.err = c.why(err)
		}
		ch <- r
	}) {
		ch <- response{err: errGone}
		return id, ch
	}
	w, err = c.rpc.DispatchCall(ctx, method, marshal(params), jsonrpc2.PickID(jsonrpc2.ID{Num: id}))
	close(sent)
	return id, ch
}

// begin starts a goroutine that [conn.wait] waits for, unless that has begun.
func (c *conn) begin(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.wg.Go(f)
	return true
}

func faultOf(method string, e *jsonrpc2.Error) error {
	f := &callError{method: method, message: e.Message, code: e.Code}
	if e.Data != nil {
		f.data = *e.Data
	}
	return f
}

// why says why the connection ended.
func (c *conn) why(err error) error {
	select {
	case <-c.quit:
		return c.err
	default:
	}
	if errors.Is(err, jsonrpc2.ErrClosed) {
		return errGone
	}
	return err
}

// call makes a call and waits for its result; a call that is given up is cancelled
// at the agent.
func (c *conn) call(ctx context.Context, method string, params, result any) error {
	id, ch := c.start(method, params)
	select {
	case r := <-ch:
		switch {
		case r.err != nil:
			return r.err
		case result == nil || isNull(r.result):
			return nil
		}
		if err := json.Unmarshal(r.result, result); err != nil {
			return fmt.Errorf("the agent's answer to %s is not as the protocol says: %w", method, err)
		}
		return nil
	case <-ctx.Done():
		c.notify("$/cancel_request", map[string]any{"requestId": id})
		return fmt.Errorf("the agent did not answer %s: %w", method, context.Cause(ctx))
	}
}

// notify sends a notification.
func (c *conn) notify(method string, params any) {
	_ = c.send(struct {
		Version string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{"2.0", method, params})
}

// wait waits for every goroutine of the connection. The agent's output must have
// ended.
func (c *conn) wait() {
	_ = c.rpc.Close()
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	<-c.read
	c.stream.wg.Wait()
	c.wg.Wait()
}
