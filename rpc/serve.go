package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/sourcegraph/jsonrpc2"
)

// Defaults of [Options], and how long a change may take.
const (
	DefaultMaxInFlight = 32
	DefaultErrorBudget = 100
	DefaultErrorWindow = 10 * time.Second
	// ChangeTimeout bounds a method that changes something. The end of its
	// connection does not.
	ChangeTimeout = 60 * time.Second
)

// CloseTooManyErrors is the close code of a client that spent its error budget;
// it tells the client not to come back.
const CloseTooManyErrors = 4029

// ErrTooManyErrors is returned by [Serve] when the client spent its error budget.
var ErrTooManyErrors = errors.New("rpc: too many faulty messages")

// Options say how one connection is served. The zero value grants nothing and
// takes the defaults.
type Options struct {
	// Scopes are those granted to the client; the strongest counts.
	Scopes []Scope
	// Logger takes internal errors, with the log id that the client was given.
	// It never gets params or results. nil discards.
	Logger *slog.Logger
	// MaxInFlight bounds the calls received and not returned; at the bound the
	// connection is not read. Default 32.
	MaxInFlight int
	// ErrorBudget protocol faults within ErrorWindow end the connection with
	// 4029: bad messages, unknown methods, bad params, lacking scopes. Outcomes
	// such as approval-not-pending do not count. Default 100 in 10 s.
	ErrorBudget int
	ErrorWindow time.Duration
	// OnPanic is told of a recovered panic of a method, after it was logged.
	// It must not block or panic. May be nil.
	OnPanic func(method string, value any, stack []byte)
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = DefaultMaxInFlight
	}
	if o.ErrorBudget <= 0 {
		o.ErrorBudget = DefaultErrorBudget
	}
	if o.ErrorWindow <= 0 {
		o.ErrorWindow = DefaultErrorWindow
	}
	return o
}

// Serve answers the calls of one connection until its stream ends or ctx is
// cancelled, and returns when every call has returned. A message that is no
// proper call is answered and the connection goes on.
//
// Calls of one session start in the order received, and so do calls of one method
// without a session; mux.* methods run before the next message is read. Calls
// that had not started when the connection ended are dropped; a change that had
// started is finished.
//
// The error is nil when the peer ended the stream (io.EOF), [ErrTooManyErrors],
// or what [Stream.Read] returned.
func Serve(ctx context.Context, s Stream, api API, opt Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := newConn(ctx, s, api, opt.withDefaults())
	peer := jsonrpc2.NewConn(ctx, c, refuse{}, jsonrpc2.SetLogger(quiet{}))
	err := <-c.ended
	cancel()
	_ = peer.Close() // ErrClosed when the stream ended first
	c.wg.Wait()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Once answers one message that did not come over a connection, such as the body
// of a POST. The methods of subscriptions need a connection and are unknown here.
// The context ends queries; a change that has started is finished.
func Once(ctx context.Context, msg []byte, api API, opt Options) []byte {
	s := &single{}
	c := newConn(ctx, s, api, opt.withDefaults())
	c.receive(msg, true)
	c.wg.Wait()
	return s.answer
}

// single is the stream of [Once]: it keeps the one answer.
type single struct {
	mu     sync.Mutex
	answer []byte // guarded by mu
}

func (s *single) Read(context.Context) ([]byte, error) { return nil, io.EOF }
func (s *single) Room(context.Context) error           { return nil }
func (s *single) Close(int, string)                    {}

func (s *single) Send(msg []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = msg
	return nil
}

// conn serves one connection. It is the ObjectStream under a jsonrpc2.Conn: its
// ReadObject takes every message itself and returns only when the stream ended,
// so the library neither decodes nor writes anything.
type conn struct {
	ctx    context.Context //nolint:containedctx // the lifetime of the connection
	stream Stream
	api    API
	opt    Options
	rank   int // of the strongest scope granted
	budget budget
	slots  chan struct{} // one token for each call in flight
	bulk   chan struct{} // the one token for large results
	lanes  lanes
	ids    idSet
	wg     sync.WaitGroup
	ended  chan error // why reading stopped; buffered
}

func newConn(ctx context.Context, s Stream, api API, opt Options) *conn {
	c := &conn{
		ctx: ctx, stream: s, api: api, opt: opt, rank: -1,
		budget: budget{max: opt.ErrorBudget, window: opt.ErrorWindow},
		slots:  make(chan struct{}, opt.MaxInFlight),
		bulk:   make(chan struct{}, 1),
		ended:  make(chan error, 1),
	}
	for _, scope := range opt.Scopes {
		c.rank = max(c.rank, scope.rank())
	}
	return c
}

// ReadObject reads and dispatches messages until the stream ends.
func (c *conn) ReadObject(any) error {
	for {
		msg, err := c.stream.Read(c.ctx)
		if err == nil && !c.receive(msg, false) {
			err = ErrTooManyErrors
		}
		if err == nil {
			err = c.ctx.Err()
		}
		if err != nil {
			c.ended <- err
			return io.EOF
		}
	}
}

// WriteObject is never used: answers are placed by the calls themselves.
func (c *conn) WriteObject(obj any) error {
	return fmt.Errorf("rpc: the library tried to write a %T; answers are placed by the calls", obj)
}

// Close is called by the library when the connection is over; the stream is
// closed by its owner.
func (c *conn) Close() error { return nil }

// refuse is the library's handler; requests never reach it.
type refuse struct{}

func (refuse) Handle(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request) {}

// quiet is the library's logger; it has nothing to say that we do not answer.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// receive takes one message: it is answered, or its call is dispatched. With
// single there is no connection behind it. It reports false when the client has
// spent its error budget and the connection was closed.
func (c *conn) receive(msg []byte, single bool) bool {
	req, f := parseRequest(msg)
	if f != nil {
		return c.refuse(nullID, f)
	}
	m := methods[req.Method]
	if m == nil || single && m.inline {
		return c.refuse(req.rawID, unknownMethod(req.Method, m != nil))
	}
	if m.Scope.rank() > c.rank {
		return c.refuse(req.rawID, forbidden(m, c.opt.Scopes))
	}
	if !c.ids.add(req.ID) {
		return c.refuse(nullID, faultf(CodeInvalidRequest, "a call with this id is in flight; ids of calls in flight must differ"))
	}
	inv, err := m.prepare(req.params())
	if err != nil {
		c.ids.remove(req.ID)
		return c.refuse(req.rawID, &fault{Code: CodeInvalidParams, Message: err.Error()})
	}
	c.dispatch(&call{conn: c, method: m, id: req.ID, rawID: req.rawID, inv: inv})
	return true
}

// refuse answers a client's fault and counts it.
func (c *conn) refuse(rawID []byte, f *fault) bool {
	c.send(appendError(nil, rawID, f))
	if c.budget.spend(time.Now()) {
		return true
	}
	c.stream.Close(CloseTooManyErrors, "too many errors")
	return false
}

// send places a message. A stream that takes no more is ending; its Read says so.
func (c *conn) send(msg []byte) {
	if err := c.stream.Send(msg); err != nil {
		c.opt.Logger.Debug("answer not sent", slog.Any("error", err))
	}
}
