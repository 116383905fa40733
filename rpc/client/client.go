package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// Errors that callers branch on.
var (
	// ErrUnauthorized: the host refused the token (401), or this Host or Origin
	// (403). Coming back with the same does not help.
	ErrUnauthorized = errors.New("client: the host refused the credentials; check the token and the address")
	// ErrUnreachable: no WebSocket could be opened; a [*RefusedError] where a host
	// answered all the same.
	ErrUnreachable = errors.New("client: the host is not reachable")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("client: closed")
)

// Options say where the host is and who calls. URL or URLFunc is required.
type Options struct {
	// URL is http://host:port, https://host:port, or ws://host:port/v1/ws;
	// URLFunc, when set, is asked for one before each connection instead: a host
	// may listen elsewhere after a restart.
	URL     string
	URLFunc func(context.Context) (string, error)
	// Token is sent as a bearer token; TokenFunc, when set, is asked for one
	// before each connection instead.
	Token     string
	TokenFunc func(context.Context) (string, error)
	// Label is what a person recognises this client by.
	Label string
	// HTTPClient does the handshake; nil is the default client.
	HTTPClient *http.Client
	// Heartbeat is how long the host may be silent, 15 to 120 s; default 15 s.
	// After 2.5 times that without a message the connection is given up.
	Heartbeat time.Duration
	// MinBackoff and MaxBackoff bound the wait between attempts to come back,
	// which doubles, with jitter. Default 100 ms and 10 s.
	MinBackoff, MaxBackoff time.Duration
	// Logger gets what happens to connections, at Debug. nil discards.
	Logger *slog.Logger
	// OnState is told of each state, in order, from the client's own goroutine.
	// It must not block.
	OnState func(State)
}

// State is what the client's connection does.
type State string

// The states of a client.
const (
	StateConnected    State = "connected"    // calls can be made
	StateResumed      State = "resumed"      // every subscription runs again
	StateDisconnected State = "disconnected" // coming back
	StateClosed       State = "closed"       // for good
)

func (o Options) withDefaults() Options {
	o.Heartbeat = min(max(o.Heartbeat, 15*time.Second), 120*time.Second)
	if o.MinBackoff <= 0 {
		o.MinBackoff = 100 * time.Millisecond
	}
	if o.MaxBackoff <= 0 {
		o.MaxBackoff = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnState == nil {
		o.OnState = func(State) {}
	}
	return o
}

// Client is one client of a host. Its methods may be called from any goroutine;
// Frames has one consumer.
type Client struct {
	opt    Options
	ctx    context.Context //nolint:containedctx // the lifetime of the goroutines
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	queue  *queue
	book   *book
	// gate is held by whoever changes subscriptions: one call, or the resume.
	gate chan struct{}

	mu   sync.Mutex
	link *link         // guarded by mu; nil between connections
	up   chan struct{} // guarded by mu; closed when link is set or the client ends
}

// Dial connects to a host. The first connection must succeed: the error wraps
// [ErrUnauthorized] or [ErrUnreachable]. Later ones are made by the client. ctx
// bounds the first connection only; [Client.Close] ends the client.
func Dial(ctx context.Context, o Options) (*Client, error) {
	c := &Client{
		opt:   o.withDefaults(),
		queue: newQueue(),
		book:  newBook(),
		gate:  make(chan struct{}, 1),
		up:    make(chan struct{}),
	}
	sock, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	first := newLink(c, sock)
	c.setLink(first)
	c.wg.Go(func() { c.run(first) })
	return c, nil
}

// Close ends the client and waits for its goroutines. Calls in flight are lost;
// Frames ends after what is buffered. It is safe to call twice.
func (c *Client) Close() error {
	c.cancel(ErrClosed)
	c.wg.Wait()
	return nil
}

// Frames yields what the host pushes, in order, over all connections: pointers to
// the types of package frames, and [*Reset]. Heartbeats are left out. It waits for
// more when nothing is there, and between connections.
//
// The last pair is an error: [ErrClosed], a [*TerminalError], [ErrUnauthorized]
// from a later connection, or that of ctx; after the latter, Frames may be called
// again and goes on where it stopped. There is one consumer at a time.
func (c *Client) Frames(ctx context.Context) iter.Seq2[frames.Frame, error] {
	return func(yield func(frames.Frame, error) bool) {
		for m, err := range c.Messages(ctx) {
			if !yield(m.Frame, err) {
				return
			}
		}
	}
}

// Message is a frame and the notification that brought it, byte for byte: it may
// have fields that this program does not know. Raw is nil for a notice of the
// client's own. It must not be changed: the frame may share it.
type Message struct {
	Frame frames.Frame
	Raw   []byte
}

// Messages is [Client.Frames] with the bytes; each frame goes to one of the two.
func (c *Client) Messages(ctx context.Context) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for {
			m, err := c.queue.pop(ctx)
			if !yield(m, err) || err != nil {
				return
			}
		}
	}
}

// Reset tells that a session could not be resumed: what was folded of it is void,
// and it starts anew from its first event, or from a base.
type Reset struct{ SessionID frames.SessionID }

// ResetFrame is the type of [Reset]. No host sends it.
const ResetFrame frames.FrameType = "client/reset"

// FrameType names the notice.
func (Reset) FrameType() frames.FrameType { return ResetFrame }

// TerminalError is a close of the host after which coming back is of no use:
// 4001, the token was revoked or expired; 4029, too many errors.
type TerminalError struct {
	Code   int
	Reason string
}

func (e *TerminalError) Error() string {
	return fmt.Sprintf("client: the host closed the connection for good: %d %s", e.Code, e.Reason)
}

// LostError is a call whose connection broke before its response came. Whether
// the host did it is not known; a call with an id of the client's own (promptId,
// requestId) may be repeated safely.
type LostError struct {
	Method string
	Cause  error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("client: %s: the connection was lost before the response, outcome unknown: %v", e.Method, e.Cause)
}

// Unwrap returns why the connection was lost.
func (e *LostError) Unwrap() error { return e.Cause }

// RPCError is an error of the protocol: an unknown method, bad params, an
// internal error of the host.
type RPCError struct {
	Code    int64
	Message string
	Data    []byte
}

func (e *RPCError) Error() string { return fmt.Sprintf("client: host error %d: %s", e.Code, e.Message) }

// current returns the connection, waiting for one.
func (c *Client) current(ctx context.Context) (*link, error) {
	for {
		c.mu.Lock()
		l, up := c.link, c.up
		c.mu.Unlock()
		if l != nil {
			return l, nil
		}
		if err := c.ended(); err != nil {
			return nil, err
		}
		select {
		case <-up:
		case <-c.ctx.Done():
			return nil, c.ended()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// ended returns why the client ended, nil while it runs.
func (c *Client) ended() error {
	if c.ctx.Err() == nil {
		return nil
	}
	return context.Cause(c.ctx)
}

// setLink makes l the connection that calls use; nil for none.
func (c *Client) setLink(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link = l
	if l != nil {
		close(c.up)
		return
	}
	c.up = make(chan struct{})
}
