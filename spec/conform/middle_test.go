package conform_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// middle stands between the kit and a host, and breaks what its hooks break. Without
// hooks it passes everything on. Its fields are set before it serves.
type middle struct {
	host  http.Handler
	back  string // the host's URL
	token string
	wg    sync.WaitGroup

	// request changes a request before the host sees it.
	request func(m *middle, r *http.Request)
	// stream changes the lines of a stream of events.
	stream func(line string) string
	// up changes a message of the client's; nil drops it. It may answer by itself.
	up func(l *link, msg message) []byte
	// down changes a message of the host's into any number of them.
	down func(l *link, msg message) [][]byte
	// code changes the code that the host closes with.
	code func(websocket.StatusCode) websocket.StatusCode
}

// link is one connection through the middleman.
type link struct {
	m           *middle
	client, far *websocket.Conn

	mu    sync.Mutex         // guards what follows
	calls map[string]message // calls under way, by id as JSON
	held  []byte             // this and the rest are for hooks
	count int
	named []string
	// opening is the session whose baseline is on its way.
	opening string
}

// message is one text message, taken apart as far as it can be.
type message struct {
	raw    []byte
	id     string // as JSON
	method string
	params map[string]any
	body   map[string]any // the whole
	call   *message       // of a response: what it answers
}

func (m *message) parse() {
	var env struct {
		ID     json.RawMessage
		Method string
	}
	_ = json.Unmarshal(m.raw, &env)
	_ = json.Unmarshal(m.raw, &m.body)
	m.id, m.method = string(env.ID), env.Method
	m.params, _ = m.body["params"].(map[string]any)
}

// event returns the event of a session/event.
func (m *message) event() map[string]any {
	e, _ := m.params["event"].(map[string]any)
	return e
}

// data returns the data of an event.
func (m *message) data() map[string]any {
	d, _ := m.event()["data"].(map[string]any)
	return d
}

// result and fault return those of a response.
func (m *message) result() map[string]any {
	r, _ := m.body["result"].(map[string]any)
	return r
}

func (m *message) fault() map[string]any {
	f, _ := m.body["error"].(map[string]any)
	return f
}

// kind returns the kind of an error, and what is told of it.
func (m *message) kind() (kind string, details map[string]any) {
	data, _ := m.fault()["data"].(map[string]any)
	kind, _ = data["kind"].(string)
	details, _ = data["details"].(map[string]any)
	return kind, details
}

// encode writes a message that was changed.
func (m *message) encode() []byte {
	b, err := json.Marshal(m.body)
	if err != nil {
		return m.raw
	}
	return b
}

// answer makes a response of a result to a call.
func answer(id string, result any) []byte {
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id), "result": result})
	if err != nil {
		return nil
	}
	return b
}

func (m *middle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m.request != nil {
		m.request(m, r)
	}
	if r.URL.Path == "/v1/ws" && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		m.socket(w, r)
		return
	}
	if m.stream != nil && r.URL.Path == "/v1/events" {
		m.events(w, r)
		return
	}
	m.host.ServeHTTP(w, r)
}

// events carries a stream of events.
func (m *middle) events(w http.ResponseWriter, r *http.Request) {
	to, err := url.Parse(m.back)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	proxy.ModifyResponse = func(resp *http.Response) error {
		resp.Body = &lines{ReadCloser: resp.Body, r: bufio.NewReader(resp.Body), change: m.stream}
		return nil
	}
	proxy.ServeHTTP(w, r)
}

// lines changes each line that is read through it.
type lines struct {
	io.ReadCloser
	r      *bufio.Reader
	change func(string) string
	rest   []byte
}

// Read reads changed lines.
func (l *lines) Read(b []byte) (int, error) {
	for len(l.rest) == 0 {
		line, err := l.r.ReadString('\n')
		if l.rest = []byte(l.change(line)); err != nil && len(l.rest) == 0 {
			return 0, err
		}
	}
	n := copy(b, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// socket dials the host as the client would have, and answers the client so.
func (m *middle) socket(w http.ResponseWriter, r *http.Request) {
	header := http.Header{}
	for _, name := range []string{"Authorization", "Origin", "Cookie"} {
		if v, ok := r.Header[name]; ok {
			header[name] = v
		}
	}
	var protocols []string
	for _, v := range r.Header.Values("Sec-WebSocket-Protocol") {
		for p := range strings.SplitSeq(v, ",") {
			protocols = append(protocols, strings.TrimSpace(p))
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), 20*time.Second)
	defer cancel()
	far, resp, err := websocket.Dial(ctx, m.back+"/v1/ws?"+r.URL.RawQuery, &websocket.DialOptions{HTTPHeader: header, Subprotocols: protocols, Host: r.Host})
	if err != nil {
		refuse(w, resp)
		return
	}
	client, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"muxhost.v1"}, InsecureSkipVerify: true})
	if err != nil {
		_ = far.CloseNow()
		return
	}
	client.SetReadLimit(8 << 20)
	far.SetReadLimit(8 << 20)
	l := &link{m: m, client: client, far: far, calls: map[string]message{}}
	m.wg.Go(func() { l.pump(client, far, l.toHost, nil) })
	m.wg.Go(func() { l.pump(far, client, l.toClient, m.code) })
}

// refuse passes on why the host refused a handshake.
func refuse(w http.ResponseWriter, resp *http.Response) {
	if resp == nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

// pump carries messages one way until an end closes; it closes the other end alike.
func (l *link) pump(from, to *websocket.Conn, carry func(websocket.MessageType, []byte) error, code func(websocket.StatusCode) websocket.StatusCode) {
	ctx := context.Background()
	for {
		kind, b, err := from.Read(ctx)
		if err == nil {
			err = carry(kind, b)
		}
		if err == nil {
			continue
		}
		var end websocket.CloseError
		if !errors.As(err, &end) {
			_ = to.CloseNow()
			_ = from.CloseNow()
			return
		}
		if code != nil {
			end.Code = code(end.Code)
		}
		_ = to.Close(end.Code, end.Reason)
		return
	}
}

// toHost carries a client's message.
func (l *link) toHost(kind websocket.MessageType, b []byte) error {
	if kind == websocket.MessageText {
		msg := message{raw: b}
		msg.parse()
		l.mu.Lock()
		l.calls[msg.id] = msg
		l.mu.Unlock()
		if l.m.up != nil {
			if b = l.m.up(l, msg); b == nil {
				return nil
			}
		}
	}
	return l.far.Write(context.Background(), kind, b)
}

// toClient carries a message of the host's.
func (l *link) toClient(kind websocket.MessageType, b []byte) error {
	if l.m.down == nil {
		return l.client.Write(context.Background(), kind, b)
	}
	msg := message{raw: b}
	msg.parse()
	l.mu.Lock()
	if c, ok := l.calls[msg.id]; ok && msg.method == "" {
		msg.call = &c
		delete(l.calls, msg.id)
	}
	l.mu.Unlock()
	for _, out := range l.m.down(l, msg) {
		if err := l.client.Write(context.Background(), kind, out); err != nil {
			return err
		}
	}
	return nil
}

// reply answers the client in the host's place.
func (l *link) reply(id string, result any) {
	_ = l.client.Write(context.Background(), websocket.MessageText, answer(id, result))
}
