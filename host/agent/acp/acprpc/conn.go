package acprpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/jsonrpc2"
)

// Codes of JSON-RPC.
const (
	CodeNoMethod  = -32601
	CodeBadID     = -32600
	CodeBadParams = -32602
	CodeInternal  = -32603
	CodeCancelled = -32800 // of the protocol: withdrawn by who asked
)

// CallError is the peer's refusal of a call.
type CallError struct {
	Peer            string // such as "the agent"
	Method, Message string
	Code            int64
	Data            json.RawMessage // nil if the peer gave none
}

// Error says what was refused, and why.
func (e *CallError) Error() string {
	text := fmt.Sprintf("%s refused %s: %s (%d)", e.Peer, e.Method, e.Message, e.Code)
	if len(e.Data) > 0 && len(e.Data) <= 512 && !IsNull(e.Data) {
		text += " " + string(e.Data)
	}
	return text
}

// request is a request of the peer that has no answer yet.
type request struct {
	Inbound
	// cancel ends whoever works on the answer.
	cancel context.CancelFunc
}

// Conn is the protocol's connection: our calls, and the peer's requests until
// they are answered.
type Conn struct {
	*stream
	peer       string
	unanswered func(Inbound) any
	rpc        *jsonrpc2.Conn
	ids        atomic.Uint64
	wg         sync.WaitGroup

	mu   sync.Mutex // guards what follows; taken alone
	open map[string]*request
	over bool // wait was called
}

// Options say what a [Conn] does beside carrying messages.
type Options struct {
	// Peer is what messages call the other side: "the agent".
	Peer string
	// MaxLine is the longest line in bytes, default [MaxLine]; a longer one is skipped.
	MaxLine int
	// Junk is told of what is no message, by the goroutine that reads; the line is
	// valid during the call only. Nil ignores it.
	Junk func(line []byte, why string)
	// Unanswered is the result for a request that is withdrawn or given up; nil, also
	// as a function, refuses such requests: as cancelled, or as not offered.
	Unanswered func(Inbound) any
}

// New returns a connection that reads from r and writes to w, which it closes. Nothing
// is read before [Conn.Run].
func New(r io.Reader, w io.WriteCloser, o Options) *Conn {
	if o.Peer == "" {
		o.Peer = "the agent"
	}
	if o.MaxLine == 0 {
		o.MaxLine = MaxLine
	}
	if o.Junk == nil {
		o.Junk = func([]byte, string) {}
	}
	if o.Unanswered == nil {
		o.Unanswered = func(Inbound) any { return nil }
	}
	return &Conn{stream: newStream(r, w, o.MaxLine, o.Junk), peer: o.Peer, unanswered: o.Unanswered, open: map[string]*request{}}
}

// Run starts to read. handle gets every request and notification in order, from
// the goroutine that reads.
func (c *Conn) Run(handle func(Inbound)) {
	c.rpc = jsonrpc2.NewConn(context.Background(), c.stream, handler(func() {
		in := c.current
		c.current = Inbound{}
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
func (c *Conn) receive(in Inbound, handle func(Inbound)) {
	switch {
	case in.Method == "$/cancel_request" && in.ID == nil:
		var p struct {
			ID json.RawMessage `json:"requestId"`
		}
		if json.Unmarshal(in.Params, &p) == nil {
			c.withdraw(p.ID)
		}
		return
	case in.ID != nil && !c.register(in):
		// The first one keeps the id; its answer comes.
		_ = c.refuse(in.ID, CodeBadID, "this id is in use: give every request its own")
		return
	}
	handle(in)
}

func (c *Conn) register(in Inbound) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[string(in.ID)] != nil {
		return false
	}
	c.open[string(in.ID)] = &request{Inbound: in}
	return true
}

// Attend makes cancel what a withdrawal of id calls. It is false where the
// request is settled already.
func (c *Conn) Attend(id json.RawMessage, cancel context.CancelFunc) bool {
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
func (c *Conn) take(id json.RawMessage) *request {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.open[string(id)]
	delete(c.open, string(id))
	return r
}

// Reply answers a request that has no answer yet, and reports whether it had none. The
// answer is queued before the request counts as settled, so that whoever settles the
// rest, and then says so, says it after this answer.
func (c *Conn) Reply(id json.RawMessage, result any) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[string(id)] == nil {
		return false
	}
	delete(c.open, string(id))
	c.Touch()                // the peer was not silent, it waited
	_ = c.answer(id, result) // a connection that is gone is noticed elsewhere
	return true
}

// Reject answers a request with an error, if it has no answer yet.
func (c *Conn) Reject(id json.RawMessage, code int, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[string(id)] != nil {
		delete(c.open, string(id))
		_ = c.refuse(id, code, message)
	}
}

// withdraw settles what the peer takes back; it still gets an answer.
func (c *Conn) withdraw(id json.RawMessage) {
	if r := c.take(id); r != nil {
		c.giveUp(r, CodeCancelled, r.Method+" was withdrawn before it was answered")
	}
}

// giveUp answers a request that was taken with what means nobody answered.
func (c *Conn) giveUp(r *request, code int, message string) {
	if result := c.unanswered(r.Inbound); result != nil {
		_ = c.answer(r.ID, result)
	} else {
		_ = c.refuse(r.ID, code, message)
	}
	if r.cancel != nil {
		r.cancel()
	}
}

// GiveUpAll settles every open request for which match is true.
func (c *Conn) GiveUpAll(match func(Inbound) bool) {
	for _, r := range c.takeAll(match) {
		c.giveUp(r, CodeNoMethod, "this side does not offer "+r.Method)
	}
}

// RejectAll answers every open request with an error.
func (c *Conn) RejectAll(code int, message string) {
	for _, r := range c.takeAll(func(Inbound) bool { return true }) {
		_ = c.refuse(r.ID, code, message)
		if r.cancel != nil {
			r.cancel()
		}
	}
}

// takeAll settles every open request for which match is true; the caller answers.
func (c *Conn) takeAll(match func(Inbound) bool) (taken []*request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, r := range c.open {
		if match(r.Inbound) {
			taken = append(taken, r)
			delete(c.open, key)
		}
	}
	return taken
}

// SessionOf is the session that a request names.
func SessionOf(in Inbound) string {
	var p struct {
		SessionID string `json:"sessionId"`
	}
	if json.Unmarshal(in.Params, &p) != nil {
		return ""
	}
	return p.SessionID
}

// Asking reports whether a request of the peer for which match is true waits for an
// answer.
func (c *Conn) Asking(match func(Inbound) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.open {
		if match(r.Inbound) {
			return true
		}
	}
	return false
}

// Response is the answer of the peer to one of our calls.
type Response struct {
	Result json.RawMessage
	Err    error
}

// Start sends a call. The channel gets the Response once; it is [ErrGone] where
// the connection ends first.
func (c *Conn) Start(method string, params any) (id uint64, _ <-chan Response) {
	id = c.ids.Add(1)
	ch := make(chan Response, 1)
	ctx := context.Background() // the connection ends the wait
	var w jsonrpc2.Waiter
	var err error
	sent := make(chan struct{})
	if !c.begin(func() {
		<-sent
		var r Response
		if err == nil {
			err = w.Wait(ctx, &r.Result)
		}
		if e, ok := errors.AsType[*jsonrpc2.Error](err); ok {
			r.Err = c.faultOf(method, e)
		} else if err != nil {
			r.Err = c.why(err)
		}
		ch <- r
	}) {
		ch <- Response{Err: ErrGone}
		return id, ch
	}
	w, err = c.rpc.DispatchCall(ctx, method, Marshal(params), jsonrpc2.PickID(jsonrpc2.ID{Num: id}))
	close(sent)
	return id, ch
}

// begin starts a goroutine that [Conn.Wait] waits for, unless that has begun.
func (c *Conn) begin(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.wg.Go(f)
	return true
}

func (c *Conn) faultOf(method string, e *jsonrpc2.Error) error {
	f := &CallError{Peer: c.peer, Method: method, Message: e.Message, Code: e.Code}
	if e.Data != nil {
		f.Data = *e.Data
	}
	return f
}

// why says why the connection ended.
func (c *Conn) why(err error) error {
	select {
	case <-c.quit:
		return c.err
	default:
	}
	if errors.Is(err, jsonrpc2.ErrClosed) {
		return ErrGone
	}
	return err
}

// Call makes a call and waits for its result; a call that is given up is cancelled
// at the peer.
func (c *Conn) Call(ctx context.Context, method string, params, result any) error {
	id, ch := c.Start(method, params)
	select {
	case r := <-ch:
		switch {
		case r.Err != nil:
			return r.Err
		case result == nil || IsNull(r.Result):
			return nil
		}
		if err := json.Unmarshal(r.Result, result); err != nil {
			return fmt.Errorf("the answer of %s to %s is not as the protocol says: %w", c.peer, method, err)
		}
		return nil
	case <-ctx.Done():
		c.Notify("$/cancel_request", map[string]any{"requestId": id})
		return fmt.Errorf("%s did not answer %s: %w", c.peer, method, context.Cause(ctx))
	}
}

// Notify sends a notification.
func (c *Conn) Notify(method string, params any) {
	_ = c.send(struct {
		Version string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{"2.0", method, params})
}

// Wait waits for every goroutine of the connection. The peer's output must have
// ended.
func (c *Conn) Wait() {
	_ = c.rpc.Close()
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	<-c.read
	c.stream.wg.Wait()
	c.wg.Wait()
}

// Done is closed when the peer's output has ended.
func (c *Conn) Done() <-chan struct{} { return c.read }

// Ending is closed when the peer's input is to end; [Conn.Err] then says why.
func (c *Conn) Ending() <-chan struct{} { return c.quit }

// Err says why the connection ends; it is valid once [Conn.Ending] is closed.
func (c *Conn) Err() error { return c.err }

// Heard is when the peer last said something, or was last answered.
func (c *Conn) Heard() time.Time { return time.Unix(0, c.heard.Load()) }

// Touch counts as if the peer had said something now.
func (c *Conn) Touch() { c.heard.Store(time.Now().UnixNano()) }
