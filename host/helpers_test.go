package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/store/mem"
)

// canary is the main token of tests; it must never appear anywhere but in
// requests.
const canary = "canary-7f3a9c2e-main-token-0123456789abc"

// script is an agent that does what its prompt says: "say TEXT" streams and
// records TEXT, "ask JSON" asks for the tool "sh" with that input, "question"
// asks a person, "spawn PROMPT" runs a child, "wait" waits for its cancellation.
type script struct {
	opened atomic.Int64
	mu     sync.Mutex
	env    []string
	ran    []string // inputs that were allowed, byte for byte
}

func (d *script) Info() agent.Info {
	return agent.Info{Name: "script", Kind: "test", Capabilities: []string{"questions", "subagents"}}
}

func (d *script) Open(_ context.Context, s agent.Session) (agent.Agent, error) {
	d.opened.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.env = s.Env
	return &scripted{d: d}, nil
}

func (d *script) allowed() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.ran...)
}

type scripted struct{ d *script }

func (a *scripted) Steer(context.Context, agent.Prompt) error { return agent.ErrNotTaken }
func (a *scripted) Close(context.Context) error               { return nil }

func (a *scripted) Prompt(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
	verb, rest, _ := strings.Cut(p.Text(), " ")
	switch verb {
	case "say":
		return agent.Result{}, a.say(ctx, t, rest)
	case "ask":
		return agent.Result{}, a.ask(ctx, t, rest)
	case "question":
		_, err := t.Question(ctx, frames.Question{ID: "q", Question: "which?", Options: []frames.QuestionOption{{Label: "a"}, {Label: "b"}}})
		return agent.Result{}, err
	case "spawn":
		c, err := t.Spawn(ctx, agent.Spawn{Prompt: []frames.ContentBlock{frames.Text(rest)}})
		if err == nil {
			_, err = c.Wait(ctx)
		}
		return agent.Result{}, err
	case "wait":
		<-ctx.Done()
		return agent.Result{}, context.Cause(ctx)
	}
	return agent.Result{}, errors.New("unknown verb " + verb)
}

func (a *scripted) say(ctx context.Context, t agent.Turn, text string) error {
	b := t.NewBlock()
	for word := range strings.SplitAfterSeq(text, " ") {
		if err := t.Text(ctx, b, word); err != nil {
			return err
		}
	}
	return t.Emit(ctx, frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text(text)}, Blocks: []int{b}})
}

func (a *scripted) ask(ctx context.Context, t agent.Turn, input string) error {
	d, err := t.Ask(ctx, agent.Approval{Call: "c1", Tool: frames.Tool{Name: "sh", Kind: "read", Title: "harmless"}, Input: json.RawMessage(input)})
	if err != nil {
		return err
	}
	if d.Allowed() {
		a.d.mu.Lock()
		a.d.ran = append(a.d.ran, string(d.Input))
		a.d.mu.Unlock()
	}
	return a.say(ctx, t, fmt.Sprintf("%s by %s", d.Outcome, d.Cause))
}

// rig is a host behind a real server.
type rig struct {
	t     *testing.T
	host  *host.Host
	srv   *httptest.Server
	agent *script
	cwd   string
}

// start runs a host over memory; edit may change its configuration.
func start(t *testing.T, edit func(*host.Config)) *rig {
	t.Helper()
	r := &rig{t: t, agent: &script{}, cwd: t.TempDir()}
	cfg := host.Config{
		Store: mem.New(), Drivers: []agent.Driver{r.agent}, Token: canary, DrainTimeout: 50 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if edit != nil {
		edit(&cfg)
	}
	var err error
	if r.host, err = host.New(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	r.srv = httptest.NewServer(r.host.Handler())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := r.host.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		r.srv.Close()
	})
	return r
}

// peer is one raw client that sees everything in the order received.
type peer struct {
	t    *testing.T
	ws   *websocket.Conn
	next int
	// seen are the messages received and not yet looked for.
	seen []message
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *rpc.WireError  `json:"error"`
}

// dial connects with a token.
func (r *rig) dial(token string) *peer {
	r.t.Helper()
	ws, _, err := websocket.Dial(r.t.Context(), r.srv.URL+"/v1/ws?label=test", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{"muxhost.v1"},
	})
	if err != nil {
		r.t.Fatalf("dial: %v", err)
	}
	ws.SetReadLimit(1 << 20)
	r.t.Cleanup(func() { _ = ws.CloseNow() })
	return &peer{t: r.t, ws: ws}
}

func (p *peer) read() message {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	defer cancel()
	_, b, err := p.ws.Read(ctx)
	if err != nil {
		p.t.Fatalf("read: %v", err)
	}
	var m message
	if err := json.Unmarshal(b, &m); err != nil {
		p.t.Fatalf("%s: %v", b, err)
	}
	return m
}

// call makes a call and returns its response; what came before it is kept in seen.
func (p *peer) call(method string, params any) message {
	p.t.Helper()
	id := p.send(method, params)
	for {
		m := p.read()
		if string(m.ID) == id {
			return m
		}
		p.seen = append(p.seen, m)
	}
}

// send makes a call and returns its id.
func (p *peer) send(method string, params any) string {
	p.t.Helper()
	p.next++
	id := fmt.Sprint(p.next)
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": p.next, "method": method, "params": params})
	if err != nil {
		p.t.Fatal(err)
	}
	if raw, ok := params.(string); ok { // verbatim
		b = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, p.next, method, raw)
	}
	if err := p.ws.Write(p.t.Context(), websocket.MessageText, b); err != nil {
		p.t.Fatalf("write: %v", err)
	}
	return id
}

// must makes a call that has to succeed.
func must[R any](p *peer, method string, params any) R {
	p.t.Helper()
	var out R
	m := p.call(method, params)
	if m.Error != nil {
		p.t.Fatalf("%s(%v): %+v %s", method, params, *m.Error, m.Error.Data)
	}
	if err := json.Unmarshal(m.Result, &out); err != nil {
		p.t.Fatalf("%s: %s: %v", method, m.Result, err)
	}
	return out
}

// kindOf returns the kind of an error response, or its code.
func kindOf(m message) string {
	if m.Error == nil {
		return "ok"
	}
	var d struct{ Kind string }
	if json.Unmarshal(m.Error.Data, &d) == nil && d.Kind != "" {
		return d.Kind
	}
	return fmt.Sprint(m.Error.Code)
}

// until returns the next frame for which ok holds, and drops those before it.
func (p *peer) until(what string, ok func(m message) bool) message {
	p.t.Helper()
	for {
		var m message
		if len(p.seen) > 0 {
			m, p.seen = p.seen[0], p.seen[1:]
		} else {
			m = p.read()
		}
		if ok(m) {
			return m
		}
		if m.Method == "" {
			p.t.Fatalf("while waiting for %s: response %s %+v", what, m.ID, m.Error)
		}
	}
}

// frame returns the next frame of a type.
func (p *peer) frame(typ frames.FrameType) message {
	p.t.Helper()
	return p.until(string(typ), func(m message) bool { return m.Method == string(typ) })
}

// event returns the next event of a type.
func (p *peer) event(typ frames.EventType) frames.Event {
	p.t.Helper()
	var e frames.Event
	p.until(string(typ), func(m message) bool {
		ev, ok := eventOf(p.t, m)
		e = ev
		return ok && ev.Type == typ
	})
	return e
}

func eventOf(t *testing.T, m message) (frames.Event, bool) {
	t.Helper()
	if m.Method != string(frames.SessionEventFrame) {
		return frames.Event{}, false
	}
	var f frames.SessionEvent
	if err := json.Unmarshal(m.Params, &f); err != nil {
		t.Fatal(err)
	}
	e, err := frames.DecodeEvent(f.Event)
	if err != nil {
		t.Fatal(err)
	}
	return e, true
}

// create makes a session in the rig's directory.
func (r *rig) create(p *peer, more map[string]any) frames.Session {
	r.t.Helper()
	params := map[string]any{"cwd": r.cwd}
	maps.Copy(params, more)
	return must[rpc.SessionResult](p, "session.create", params).Session
}

// prompt hands text to a session.
func prompt(p *peer, sid frames.SessionID, text string) rpc.PromptResult {
	p.t.Helper()
	return must[rpc.PromptResult](p, "session.prompt", map[string]any{"sessionId": sid, "content": []frames.ContentBlock{frames.Text(text)}})
}

// subscribe attaches to a session from the start.
func subscribe(p *peer, sid frames.SessionID) {
	p.t.Helper()
	must[rpc.SubscribeResult](p, "mux.subscribe", map[string]any{"sessions": []any{map[string]any{"sessionId": sid, "since": 0}}})
}
