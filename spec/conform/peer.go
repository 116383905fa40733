package conform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// peer is one raw client: it sends any bytes and keeps everything that comes, in
// order. It judges nothing by itself.
type peer struct {
	t    *T
	ws   *websocket.Conn
	tcp  net.Conn
	wg   sync.WaitGroup
	at   int // where the next wait begins; used by the check alone
	next int // the last id used

	mu      sync.Mutex // guards what follows
	changed chan struct{}
	got     []message
	err     error
	held    chan struct{} // not nil: nothing is read until it is closed
}

// message is one message of the server's.
type message struct {
	raw    []byte
	id     string // as JSON; "" on a frame
	method string
	params obj
	event  obj // of a session/event
	reply  reply
	at     int // its place
}

// reply is a response.
type reply struct {
	result any
	err    *fault
	at     int
}

// fault is the error of a response.
type fault struct {
	code    int64
	message string
	data    obj
}

// obj returns a result that is an object.
func (r reply) obj() obj {
	m, _ := r.result.(map[string]any)
	return m
}

// kind returns the kind of an error, its code where it has none, or "ok".
func (r reply) kind() string {
	switch {
	case r.err == nil:
		return "ok"
	case r.err.data.str("kind") != "":
		return r.err.data.str("kind")
	}
	return fmt.Sprint(r.err.code)
}

func (r reply) String() string {
	if r.err == nil {
		return "result " + text(r.result)
	}
	return fmt.Sprintf("error %d %q data %s", r.err.code, r.err.message, text(r.err.data))
}

// dial connects with the token that the kit was given.
func (t *T) dial() *peer { return t.dialAs(t.r.opt.Token) }

// dialAs connects with a token. query is added to the URL.
func (t *T) dialAs(token string, query ...string) *peer {
	p, status, err := t.try(http.Header{"Authorization": {"Bearer " + token}}, []string{subprotocol}, strings.Join(query, "&"))
	if err != nil {
		if status == 0 {
			t.fail("a connection", "%v", err)
		}
		t.fail("a connection", "HTTP %d: %v", status, err)
	}
	return p
}

const subprotocol = "muxhost.v1"

// try connects, and returns the HTTP status.
func (t *T) try(header http.Header, protocols []string, query string) (*peer, int, error) {
	p := &peer{t: t, changed: make(chan struct{})}
	t.sent = "GET /v1/ws?" + query
	ctx, cancel := context.WithTimeout(t.ctx, t.deadline())
	defer cancel()
	dialer := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if tc, ok := c.(*net.TCPConn); ok {
				_ = tc.SetReadBuffer(32 << 10) // a peer that stops reading is felt soon
			}
			p.tcp = c
			return c, err
		},
		TLSClientConfig: t.r.opt.TLS,
	}
	ws, resp, err := websocket.Dial(ctx, t.r.opt.URL+"/v1/ws?"+query, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: dialer}, HTTPHeader: header, Subprotocols: protocols,
	})
	status := 0
	if resp != nil {
		status = resp.StatusCode
	}
	if err != nil {
		return nil, status, err
	}
	ws.SetReadLimit(8 << 20)
	p.ws = ws
	t.peers = append(t.peers, p)
	p.wg.Go(p.read)
	return p, status, nil
}

// close ends the connection and waits.
func (p *peer) close() {
	p.hold(false)
	_ = p.ws.CloseNow()
	p.wg.Wait()
}

// cut breaks the TCP connection without a goodbye.
func (p *peer) cut() {
	_ = p.tcp.Close()
	p.close()
}

// hold makes p stop or go on reading.
func (p *peer) hold(stop bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if stop && p.held == nil {
		p.held = make(chan struct{})
	}
	if !stop && p.held != nil {
		close(p.held)
		p.held = nil
	}
}

func (p *peer) read() {
	for {
		p.mu.Lock()
		held := p.held
		p.mu.Unlock()
		if held != nil {
			<-held
		}
		kind, b, err := p.ws.Read(context.WithoutCancel(p.t.ctx))
		if err == nil && kind != websocket.MessageText {
			err = errors.New("the server sent a binary message")
		}
		var m message
		if err == nil {
			m, err = parse(b)
		}
		p.mu.Lock()
		if err != nil {
			p.err = err
		} else {
			m.at = len(p.got)
			m.reply.at = m.at
			p.got = append(p.got, m)
		}
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// parse takes a message of the server's apart.
func parse(b []byte) (message, error) {
	m := message{raw: b}
	var env struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params obj             `json:"params"`
		Result any             `json:"result"`
		Error  *struct {
			Code    int64  `json:"code"`
			Message string `json:"message"`
			Data    obj    `json:"data"`
		} `json:"error"`
	}
	if err := json.Unmarshal(b, &env); err != nil {
		return m, fmt.Errorf("the server sent no JSON: %w: %.200s", err, b)
	}
	m.id, m.method, m.params = string(env.ID), env.Method, env.Params
	m.event = env.Params.obj("event")
	m.reply.result = env.Result
	if e := env.Error; e != nil {
		m.reply.err = &fault{e.Code, e.Message, e.Data}
	}
	return m, nil
}

// sendRaw writes one text message as it is.
func (p *peer) sendRaw(s string) { p.write(websocket.MessageText, []byte(s)) }

// write writes one message of any kind. The server may have closed: reading tells.
func (p *peer) write(kind websocket.MessageType, b []byte) {
	p.t.sent = clip(string(b))
	ctx, cancel := context.WithTimeout(p.t.ctx, p.t.deadline())
	defer cancel()
	_ = p.ws.Write(ctx, kind, b)
}

// send sends a call and returns its id, as JSON.
func (p *peer) send(method string, params any) string {
	p.next++
	id := fmt.Sprint(p.next)
	p.sendRaw(text(obj{"jsonrpc": "2.0", "id": p.next, "method": method, "params": params}))
	return id
}

// call makes a call and waits for its response.
func (p *peer) call(method string, params any) reply {
	return p.response(p.send(method, params))
}

// response waits for the response with an id, as JSON.
func (p *peer) response(id string) reply {
	m, ok := p.find(0, p.t.deadline(), func(m message) bool { return m.method == "" && m.id == id })
	if !ok {
		p.t.fail("a response with the id "+id, "%s", p.recent())
	}
	return m.reply
}

// answered makes a call that must succeed, and returns the reply.
func (p *peer) answered(method string, params any) reply {
	r := p.call(method, params)
	p.t.must(r.err == nil, method+" succeeds", r.String())
	return r
}

// ok makes a call that must succeed, and returns its result.
func (p *peer) ok(method string, params any) obj { return p.answered(method, params).obj() }

// refused makes a call that must fail with a kind, or a code, and returns the
// details.
func (p *peer) refused(method string, params any, kind string) obj {
	r := p.call(method, params)
	if r.kind() != kind {
		p.t.fail("the error "+kind, "%s", r)
	}
	return r.err.data.obj("details")
}

// find waits for the first message from a place on for which ok holds, as long as
// messages come, and for so long when none does.
func (p *peer) find(from int, wait time.Duration, ok func(message) bool) (message, bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		p.mu.Lock()
		fresh, err, changed := p.got[min(from, len(p.got)):], p.err, p.changed
		p.mu.Unlock()
		for _, m := range fresh {
			if ok(m) {
				return m, true
			}
		}
		from += len(fresh)
		if len(fresh) > 0 {
			timer.Reset(wait)
		}
		if err != nil {
			return message{}, false
		}
		select {
		case <-changed:
		case <-timer.C:
			return message{}, false
		case <-p.t.ctx.Done():
			return message{}, false
		}
	}
}

// wait waits for the next message for which ok holds, and goes on behind it.
func (p *peer) wait(what string, ok func(message) bool) message {
	m, found := p.find(p.at, p.t.deadline(), ok)
	if !found {
		p.t.fail(what, "%s", p.recent())
	}
	p.at = m.at + 1
	return m
}

// frame waits for the next frame of a type about a session; "" means any.
func (p *peer) frame(method string, s session) message {
	return p.wait("the frame "+method, func(m message) bool {
		return m.method == method && (s.id == "" || m.params.str("sessionId") == s.id)
	})
}

// event waits for the next event of a type in a session.
func (p *peer) event(s session, kind string) obj {
	return p.wait("the event "+kind, func(m message) bool {
		return m.event.str("type") == kind && (s.id == "" || m.params.str("sessionId") == s.id)
	}).event
}

// mark returns the place of the next message.
func (p *peer) mark() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.got)
}

// since returns the messages from a place on that have come.
func (p *peer) since(from int) []message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]message(nil), p.got[min(from, len(p.got)):]...)
}

// eventsOf returns the events of a session that have come from a place on.
func (p *peer) eventsOf(s session, from int) []obj {
	var out []obj
	for _, m := range p.since(from) {
		if m.event != nil && m.params.str("sessionId") == s.id {
			out = append(out, m.event)
		}
	}
	return out
}

// fence waits until everything that the server sent before has come: a response is
// never overtaken by what was placed after it.
func (p *peer) fence() { p.answered("host.describe", obj{}) }

// recent says what came last, and how the connection stands.
func (p *peer) recent() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for _, m := range p.got[max(0, len(p.got)-12):] {
		name := m.method
		switch {
		case m.event != nil:
			name = m.event.str("type")
		case name == "":
			name = "response " + m.id
		}
		names = append(names, name)
	}
	out := "nothing came"
	if len(names) > 0 {
		out = "last came: " + strings.Join(names, ", ")
	}
	if p.err != nil {
		out += "; the connection ended: " + p.err.Error()
	}
	return out
}

// closed waits for the end of the connection and returns the close code, -1 where
// it ended without one, 0 where it did not end.
func (p *peer) closed() int {
	_, _ = p.find(p.mark(), p.t.deadline(), func(message) bool { return false })
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		return 0
	}
	return int(websocket.CloseStatus(p.err))
}
