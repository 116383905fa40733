package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

// fakeHost is a host in memory, reached over net.Pipe. Each connection is given to
// script; when that returns the connection is cut without a close frame.
type fakeHost struct {
	t      testing.TB
	script func(c *hostConn, n int) // n counts connections from 1
	status int                      // of the handshake when not 0

	server *http.Server
	dialer *http.Transport
	dials  chan net.Conn
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	n       int         // guarded by mu
	header  http.Header // guarded by mu: of the last handshake
	queries []string    // guarded by mu
	conns   []net.Conn  // guarded by mu
}

func newHost(t testing.TB, script func(c *hostConn, n int)) *fakeHost {
	h := &fakeHost{t: t, script: script, dials: make(chan net.Conn)}
	h.ctx, h.cancel = context.WithCancel(t.Context())
	h.server = &http.Server{Handler: h}
	h.dialer = &http.Transport{DialContext: h.dial}
	h.wg.Go(func() { _ = h.server.Serve(pipeListener{h}) })
	t.Cleanup(h.close)
	return h
}

func (h *fakeHost) close() {
	h.cancel()
	_ = h.server.Close()
	h.dialer.CloseIdleConnections()
	h.mu.Lock()
	conns := h.conns
	h.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
	h.wg.Wait()
}

func (h *fakeHost) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	h.mu.Lock()
	h.conns = append(h.conns, ours, theirs)
	h.mu.Unlock()
	select {
	case h.dials <- theirs:
		return ours, nil
	case <-h.ctx.Done():
		return nil, errors.New("host is down")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type pipeListener struct{ h *fakeHost }

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.h.dials:
		return c, nil
	case <-l.h.ctx.Done():
		return nil, net.ErrClosed
	}
}
func (l pipeListener) Close() error { return nil }
func (l pipeListener) Addr() net.Addr {
	return &net.UnixAddr{Name: "pipe", Net: "pipe"}
}

func (h *fakeHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.n++
	n, status := h.n, h.status
	h.header, h.queries = r.Header.Clone(), append(h.queries, r.URL.RawQuery)
	h.mu.Unlock()
	if status != 0 {
		http.Error(w, "no", status)
		return
	}
	sock, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"muxhost.v1"}})
	if err != nil {
		return
	}
	sock.SetReadLimit(1 << 20)
	defer sock.CloseNow()
	h.script(&hostConn{t: h.t, sock: sock, ctx: h.ctx}, n)
}

func (h *fakeHost) connections() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

func (h *fakeHost) refuse(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

// options reach the host.
func (h *fakeHost) options() client.Options {
	return client.Options{URL: "http://host.test:1", Token: "secret", HTTPClient: &http.Client{Transport: h.dialer}}
}

// connect dials the host; the client is closed at the end of the test.
func (h *fakeHost) connect(o client.Options) *client.Client {
	h.t.Helper()
	c, err := client.Dial(h.t.Context(), o)
	if err != nil {
		h.t.Fatalf("Dial: %v", err)
	}
	h.t.Cleanup(func() { _ = c.Close() })
	return c
}

// hostConn is the host's end of one connection.
type hostConn struct {
	t    testing.TB
	sock *websocket.Conn
	ctx  context.Context
}

// request is what a client asks.
type request struct {
	ID     int64           `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// next reads a request; false when the connection is over.
func (c *hostConn) next() (request, bool) {
	_, msg, err := c.sock.Read(c.ctx)
	var r request
	if err != nil {
		return r, false
	}
	if err := json.Unmarshal(msg, &r); err != nil {
		c.t.Errorf("the client sent %q: %v", msg, err)
	}
	return r, true
}

func (c *hostConn) write(msg []byte) bool {
	return c.sock.Write(c.ctx, websocket.MessageText, msg) == nil
}

func (c *hostConn) reply(id int64, result any) bool {
	raw, err := json.Marshal(result)
	if err != nil {
		c.t.Errorf("result: %v", err)
	}
	return c.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":%s}`, id, raw))
}

func (c *hostConn) fail(id int64, err error) bool {
	raw, jerr := json.Marshal(rpc.WireErrorOf(err))
	if jerr != nil {
		c.t.Errorf("error: %v", jerr)
	}
	return c.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"error":%s}`, id, raw))
}

func (c *hostConn) frame(f frames.Frame) bool {
	b, err := frames.EncodeFrame(f)
	if err != nil {
		c.t.Errorf("frame %T: %v", f, err)
	}
	return c.write(b)
}

// wait reads until the connection is over.
func (c *hostConn) wait() {
	for {
		if _, ok := c.next(); !ok {
			return
		}
	}
}

// subscribe reads a mux.subscribe.
func (c *hostConn) subscribe() (id int64, p rpc.SubscribeParams, ok bool) {
	r, ok := c.next()
	if !ok {
		return 0, p, false
	}
	if r.Method != "mux.subscribe" {
		c.t.Errorf("the client called %s, want mux.subscribe", r.Method)
	}
	if err := json.Unmarshal(r.Params, &p); err != nil {
		c.t.Errorf("params %s: %v", r.Params, err)
	}
	return r.ID, p, true
}

// event sends the durable event seq of a session.
func (c *hostConn) event(sid frames.SessionID, seq frames.Seq) bool {
	return c.write(frames.AppendSessionEvent(nil, sid, durable(c.t, seq)))
}

func durable(t testing.TB, seq frames.Seq) []byte {
	e, err := frames.NewEvent(frames.SessionRenamed{Title: fmt.Sprint("title ", seq)})
	if err != nil {
		t.Fatal(err)
	}
	e.Seq = seq
	enc, err := frames.EncodeEvent(e)
	if err != nil {
		t.Fatal(err)
	}
	return enc.Data
}

// open answers one entry of a subscription and sends its opening frames.
func (c *hostConn) open(id int64, sid frames.SessionID, since, head frames.Seq, epoch frames.Epoch) bool {
	return c.reply(id, rpc.SubscribeResult{{SessionID: sid, Head: head, Epoch: epoch}}) &&
		c.frame(frames.SessionSubscribed{SessionID: sid, Since: since, Head: head, First: 1, Epoch: epoch, State: frames.StateIdle})
}

// query returns a parameter of the last handshake.
func (h *fakeHost) query(name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	q, err := url.ParseQuery(h.queries[len(h.queries)-1])
	if err != nil {
		h.t.Errorf("query: %v", err)
	}
	return q.Get(name)
}

// reader takes frames off a client.
type reader struct {
	t    testing.TB
	next func() (frames.Frame, error, bool)
}

// take returns the next frame, as "type session seq", and the error that ends.
func (r reader) take() (string, error) {
	r.t.Helper()
	f, err, ok := r.next()
	if !ok {
		r.t.Fatal("Frames ended without an error")
	}
	if err != nil {
		return "", err
	}
	switch f := f.(type) {
	case *frames.SessionEvent:
		e, err := frames.DecodeEvent(f.Event)
		if err != nil {
			r.t.Fatalf("event: %v", err)
		}
		return fmt.Sprintf("event %s %d", f.SessionID, e.Seq), nil
	case *frames.SessionSubscribed:
		return fmt.Sprintf("subscribed %s %d", f.SessionID, f.Since), nil
	case *frames.SessionUnsubscribed:
		return fmt.Sprintf("unsubscribed %s %s", f.SessionID, f.Reason), nil
	case *client.Reset:
		return fmt.Sprintf("reset %s", f.SessionID), nil
	}
	return string(f.FrameType()), nil
}

// want takes frames and compares them.
func (r reader) want(want ...string) {
	r.t.Helper()
	for _, w := range want {
		if got, err := r.take(); got != w || err != nil {
			r.t.Fatalf("got %q, %v; want %q", got, err, w)
		}
	}
}
