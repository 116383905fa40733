package mux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/muxhost/muxhost/frames"
)

// Conn is one client's socket: a WebSocket, or a stream of Server-Sent Events. All
// methods but Read may be called from any goroutine; Read belongs to one. Read must
// be called until it fails, or pings go unanswered and hanging up goes unnoticed.
type Conn struct {
	hub  *Hub
	opts AcceptOptions
	ws   socket
	gate *gate
	born time.Time
	peer string

	wake   chan struct{}   // holds one token: the writer has something to do
	done   chan struct{}   // closed by the writer when everything has ended
	ctx    context.Context //nolint:containedctx // the lifetime of the connection
	cancel context.CancelCauseFunc
	end    atomic.Pointer[ending] // why it ends; set once
	missed atomic.Int32           // pings since the client was last heard
	sent   atomic.Int64           // bytes written

	mu   sync.Mutex // the innermost lock; guards the fields below
	q    queue
	room chan struct{} // closed when the queue has room again; nil: nobody waits

	// The hub's lock guards the fields below.
	subs  map[frames.SessionID]*cursor
	trees map[frames.SessionID]Delivery // roots whose descendants are followed
	left  map[frames.SessionID]struct{} // descendants left out of a tree
	open  map[*notice]struct{}          // raised, sent here, not settled
	host  bool
}

// socket is what messages are read from.
type socket interface {
	// Reader blocks for the next message.
	Reader(ctx context.Context) (websocket.MessageType, io.Reader, error)
	// CloseNow hangs up and waits until Reader has returned.
	CloseNow() error
}

// ending says why a connection ends. Code 0 sends no close frame: the peer is
// gone or has closed by itself.
type ending struct {
	code   int
	reason string
	err    error
	by     time.Time // until when what is queued may be flushed; zero: it is not
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

func (e *ending) closed() error { return fmt.Errorf("%w: %w", ErrClosed, e.err) }

// Accept upgrades r to a WebSocket and returns its connection; the HTTP handler
// may return. On an error the response is written already. The caller has
// checked who the client is, and the Host and Origin headers.
func (h *Hub) Accept(w http.ResponseWriter, r *http.Request, o AcceptOptions) (*Conn, error) {
	if h.isClosed() {
		http.Error(w, ErrShutdown.Error(), http.StatusServiceUnavailable)
		return nil, ErrShutdown
	}
	if o.Subprotocol == "" {
		o.Subprotocol = "muxhost.v1"
	}
	c := h.newConn(r, o)
	if err := c.upgrade(w, r); err != nil {
		return nil, err
	}
	if !h.enter(c) {
		c.gate.close(codeGoingAway, "the host is going down", h.cfg.CloseTimeout)
		return nil, errors.Join(ErrShutdown, c.ws.CloseNow())
	}
	return c, nil
}

// newConn returns a connection that has no socket yet.
func (h *Hub) newConn(r *http.Request, o AcceptOptions) *Conn {
	if o.Heartbeat <= 0 {
		o.Heartbeat = h.cfg.Heartbeat
	}
	c := &Conn{
		hub: h, opts: o, born: time.Now(), peer: r.RemoteAddr,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		subs: map[frames.SessionID]*cursor{}, trees: map[frames.SessionID]Delivery{},
		left: map[frames.SessionID]struct{}{}, open: map[*notice]struct{}{},
	}
	c.opts.Trees = slices.Clone(o.Trees)
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

func (c *Conn) upgrade(w http.ResponseWriter, r *http.Request) error {
	hj := &hijacker{ResponseWriter: w, patience: c.hub.cfg.WriteTimeout}
	ws, err := websocket.Accept(hj, r, &websocket.AcceptOptions{
		Subprotocols: []string{c.opts.Subprotocol},
		// The caller has checked Origin against its exact list; coder's own check
		// would let patterns and same-host origins of other schemes in.
		InsecureSkipVerify: true,
		CompressionMode:    websocket.CompressionDisabled,
		// Pongs leave through our writer, so that reading never waits for writing.
		OnPingReceived: func(_ context.Context, p []byte) bool { c.answerPing(p); return false },
		OnPongReceived: func(context.Context, []byte) { c.missed.Store(0) },
	})
	if err != nil {
		return fmt.Errorf("mux: upgrade: %w", err)
	}
	ws.SetReadLimit(-1) // Read has its own, with our close code
	c.ws, c.gate = ws, hj.gate
	return nil
}

// answerPing notes the newest ping; only that one needs a pong (RFC 6455, 5.5.3).
func (c *Conn) answerPing(p []byte) {
	c.mu.Lock()
	c.q.pong, c.q.ping = append(c.q.pong[:0], p...), true
	c.mu.Unlock()
	c.kick()
}

// ID returns the client's id.
func (c *Conn) ID() frames.ClientID { return c.opts.ID }

// Done is closed when the connection has ended and nothing of it runs any more.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection ends, wrapping [ErrClosed]; nil while it is open.
func (c *Conn) Err() error {
	if e := c.end.Load(); e != nil {
		return e.closed()
	}
	return nil
}

// Read blocks for the next whole text message. A binary message closes the
// connection with 1003, invalid UTF-8 with 1007, more than [frames.MaxMessage]
// with 1009, a message that takes longer than [Config.MessageTimeout] with 4008.
// When ctx ends the connection is closed with 1001. Errors wrap [ErrClosed] and
// the cause.
func (c *Conn) Read(ctx context.Context) ([]byte, error) {
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { c.Close(codeGoingAway, "the host stopped reading") })
		defer stop()
	}
	kind, r, err := c.ws.Reader(context.Background())
	if err != nil {
		return nil, c.lost(err)
	}
	c.missed.Store(0)
	if kind != websocket.MessageText {
		c.Close(codeBinary, "text messages only")
		return nil, c.Err()
	}
	b, err := c.readWhole(r)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.Close(codeSlow, "a message must arrive whole within the time allowed")
	case err != nil:
		return nil, c.lost(err)
	case len(b) > frames.MaxMessage:
		c.Close(codeTooBig, fmt.Sprintf("a message may have %d bytes", frames.MaxMessage))
	case !utf8.Valid(b):
		c.Close(codeUTF8, "text must be valid UTF-8")
	default:
		return b, nil
	}
	return nil, c.Err()
}

// readWhole reads the rest of a message, at most one byte over the limit.
func (c *Conn) readWhole(r io.Reader) ([]byte, error) {
	if err := c.gate.SetReadDeadline(time.Now().Add(c.hub.cfg.MessageTimeout)); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, frames.MaxMessage+1))
	if err != nil {
		return nil, err
	}
	if err := c.gate.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	if c.end.Load() != nil { // closing set a deadline that we just lifted
		err = c.gate.SetReadDeadline(time.Now())
	}
	c.missed.Store(0)
	return b, err
}

// lost ends the connection after a failed read and returns [Conn.Err].
func (c *Conn) lost(err error) error {
	e := &ending{err: err}
	if ce, ok := errors.AsType[websocket.CloseError](err); ok {
		e.err = &CloseError{Code: int(ce.Code), Reason: ce.Reason, Peer: true}
	}
	c.fail(e)
	return c.Err()
}

// Send places one text message in the outgoing order and never blocks; msg is
// kept and may not change. When the control queue is over its bound already, the
// connection ends with 4008 and Send returns [ErrSlow].
func (c *Conn) Send(msg []byte) error { return c.enqueue(msg) }

// Room blocks until the control queue is below half its bound, so that a large
// result does not overflow it.
func (c *Conn) Room(ctx context.Context) error {
	for {
		c.mu.Lock()
		if e := c.end.Load(); e != nil {
			c.mu.Unlock()
			return e.closed()
		}
		if c.roomyLocked() {
			c.mu.Unlock()
			return nil
		}
		if c.room == nil {
			c.room = make(chan struct{})
		}
		room := c.room
		c.mu.Unlock()
		select {
		case <-room:
		case <-c.ctx.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close ends the connection with a WebSocket close code and returns at once. With
// 1001 it is [Conn.Finish]. Only the first call counts.
func (c *Conn) Close(code int, reason string) {
	if code == codeGoingAway {
		c.Finish(code, reason)
		return
	}
	c.fail(&ending{code: code, reason: reason, err: &CloseError{Code: code, Reason: reason}})
}

// Finish is Close after what is queued and published has been sent, for at most
// [Config.CloseTimeout].
func (c *Conn) Finish(code int, reason string) {
	c.fail(&ending{
		code: code, reason: reason, err: &CloseError{Code: code, Reason: reason},
		by: time.Now().Add(c.hub.cfg.CloseTimeout),
	})
}

func (c *Conn) fail(e *ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(e)
}

// ended returns why c has ended. Whoever ended it has set its deadline by then: one
// that came later would cut the close frame off.
func (c *Conn) ended() *ending {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end.Load()
}

// failLocked ends c, whatever its writer is doing. Setting a deadline neither
// blocks nor does I/O; it makes a write under way return.
func (c *Conn) failLocked(e *ending) {
	if !c.end.CompareAndSwap(nil, e) {
		return
	}
	by := e.by
	if by.IsZero() {
		c.cancel(e.closed())
		by = longAgo
	}
	_ = c.gate.SetWriteDeadline(by)
	c.kick()
}
