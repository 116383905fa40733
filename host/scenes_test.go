package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/hosttest"
	"github.com/muxhost/muxhost/mux/muxtest"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/store"
	"github.com/muxhost/muxhost/store/mem"
)

// act is what the puppet does in one turn.
type act func(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error)

// puppet is an agent whose turns are functions of the test: the first word of a
// prompt names the act, and acts may read the rest of it.
type puppet struct {
	mu    sync.Mutex
	acts  map[string]act
	steer func(agent.Prompt) error
	open  func(ctx context.Context) error
}

func (d *puppet) on(name string, a act) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.acts == nil {
		d.acts = map[string]act{}
	}
	d.acts[name] = a
}

func (d *puppet) Info() agent.Info {
	return agent.Info{Name: "puppet", Kind: "test", Capabilities: []string{"questions", "subagents", "steer"}}
}

func (d *puppet) Open(ctx context.Context, _ agent.Session) (agent.Agent, error) {
	d.mu.Lock()
	open := d.open
	d.mu.Unlock()
	if open != nil {
		if err := open(ctx); err != nil {
			return nil, err
		}
	}
	return held{d}, nil
}

// held is one open agent of a puppet.
type held struct{ d *puppet }

func (a held) Prompt(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
	name, _, _ := strings.Cut(p.Text(), " ")
	a.d.mu.Lock()
	f := a.d.acts[name]
	a.d.mu.Unlock()
	if f == nil {
		return agent.Result{}, errors.New("no act is named " + name)
	}
	return f(ctx, t, p)
}

func (a held) Steer(_ context.Context, p agent.Prompt) error {
	a.d.mu.Lock()
	f := a.d.steer
	a.d.mu.Unlock()
	if f == nil {
		return agent.ErrNotTaken
	}
	return f(p)
}

func (a held) Close(context.Context) error { return nil }

// scene is a whole host in a bubble of virtual time, reached over pipes.
type scene struct {
	t     *testing.T
	host  *host.Host
	pup   *puppet
	store store.Store
	dir   string
	edit  func(*host.Config)
	open  []*hosttest.Watch
}

// play runs f with a scene, in virtual time; edit may change the host.
func play(t *testing.T, edit func(*host.Config), f func(t *testing.T, s *scene)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{t: t, pup: &puppet{}, store: mem.New(), dir: dir, edit: edit}
		s.start()
		defer s.stop()
		f(t, s)
	})
}

// start starts the host over what is stored.
func (s *scene) start() {
	s.t.Helper()
	cfg := host.Config{
		Store: s.store, Drivers: []agent.Driver{s.pup}, Token: canary, AllowHosts: []string{"muxhost.test"},
		MaxConns: 2000, MaxConnsPerToken: 2000, DrainTimeout: time.Second,
		Logger: slog.New(slog.NewTextHandler(s.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if s.edit != nil {
		s.edit(&cfg)
	}
	var err error
	if s.host, err = host.New(s.t.Context(), cfg); err != nil {
		s.t.Fatal(err)
	}
}

// stop shuts the host down, and holds every client that is still there to the
// rules.
func (s *scene) stop() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.host.Shutdown(ctx); err != nil {
		s.t.Errorf("Shutdown: %v", err)
	}
	for _, w := range s.open {
		s.leave(w)
	}
	s.open = nil
}

// raw opens a socket that nobody reads.
func (s *scene) raw() *websocket.Conn {
	s.t.Helper()
	ws, _, err := muxtest.Dial(s.t.Context(), s.host.Handler(), http.Header{"Authorization": {"Bearer " + canary}})
	if err != nil {
		s.t.Fatalf("dial: %v", err)
	}
	return ws
}

// dial opens a client that reads all the time.
func (s *scene) dial() *hosttest.Watch {
	s.t.Helper()
	w := hosttest.NewWatch(s.raw())
	s.open = append(s.open, w)
	return w
}

// leave cuts a client and reports what rules were broken towards it.
func (s *scene) leave(w *hosttest.Watch) {
	s.t.Helper()
	w.Close()
	for _, f := range w.Faults() {
		s.t.Errorf("a client noticed: %s", f)
	}
	for i, o := range s.open {
		if o == w {
			s.open = append(s.open[:i], s.open[i+1:]...)
			return
		}
	}
}

// ask makes a call that has to succeed.
func ask[R any](s *scene, w *hosttest.Watch, method string, params any) R {
	s.t.Helper()
	var out R
	r, err := w.Call(s.t.Context(), method, params)
	if err != nil || r.Error != nil {
		s.t.Fatalf("%s(%v): %v %+v", method, params, err, r.Error)
	}
	if err := json.Unmarshal(r.Result, &out); err != nil {
		s.t.Fatalf("%s: %s: %v", method, r.Result, err)
	}
	return out
}

// create makes a session.
func (s *scene) create(w *hosttest.Watch) frames.SessionID {
	s.t.Helper()
	return ask[rpc.SessionResult](s, w, "session.create", map[string]any{"cwd": s.dir}).Session.SessionID
}

// prompt hands text to a session.
func (s *scene) prompt(w *hosttest.Watch, sid frames.SessionID, text string) rpc.PromptResult {
	s.t.Helper()
	return ask[rpc.PromptResult](s, w, "session.prompt", promptParams(sid, text))
}

func promptParams(sid frames.SessionID, text string) map[string]any {
	return map[string]any{"sessionId": sid, "content": []frames.ContentBlock{frames.Text(text)}}
}

// from asks for one session; since < 0 leaves the cursor out.
func from(sid frames.SessionID, since int, tree bool) map[string]any {
	e := map[string]any{"sessionId": sid, "tree": tree}
	if since >= 0 {
		e["since"] = since
	}
	return map[string]any{"sessions": []any{e}}
}

// watch subscribes to a session.
func (s *scene) watch(w *hosttest.Watch, sid frames.SessionID, since int) {
	s.t.Helper()
	ask[rpc.SubscribeResult](s, w, "mux.subscribe", from(sid, since, false))
}

// watchTree subscribes to a tree from its start.
func (s *scene) watchTree(w *hosttest.Watch, sid frames.SessionID) {
	s.t.Helper()
	ask[rpc.SubscribeResult](s, w, "mux.subscribe", from(sid, 0, true))
}

// inbox subscribes to the host.
func (s *scene) inbox(w *hosttest.Watch) {
	s.t.Helper()
	ask[rpc.SubscribeResult](s, w, "mux.subscribe", map[string]any{"host": true})
}

// list returns all sessions by id.
func (s *scene) list(w *hosttest.Watch) map[frames.SessionID]frames.Session {
	s.t.Helper()
	out := map[frames.SessionID]frames.Session{}
	for cursor := ""; ; {
		res := ask[rpc.ListResult](s, w, "sessions.list", map[string]any{"limit": 500, "cursor": cursor})
		for _, x := range res.Sessions {
			out[x.SessionID] = x
		}
		if cursor = res.Next; cursor == "" {
			return out
		}
	}
}

// log returns all events of a session.
func (s *scene) log(w *hosttest.Watch, sid frames.SessionID) []frames.Event {
	s.t.Helper()
	var out []frames.Event
	for after := frames.Seq(0); ; {
		page := ask[rpc.HistoryResult](s, w, "session.history", map[string]any{"sessionId": sid, "after": after, "limit": 1000})
		for _, raw := range page.Events {
			e, err := frames.DecodeEvent(raw)
			if err != nil {
				s.t.Fatal(err)
			}
			out = append(out, e)
			after = e.Seq
		}
		if !page.More {
			return out
		}
	}
}

// payloads returns the payloads of one type in a log, with their events.
func payloads[P any](t *testing.T, log []frames.Event, typ frames.EventType) (ps []P, es []frames.Event) {
	t.Helper()
	for _, e := range log {
		if e.Type != typ {
			continue
		}
		var p P
		if err := json.Unmarshal(e.Data, &p); err != nil {
			t.Fatal(err)
		}
		ps, es = append(ps, p), append(es, e)
	}
	return ps, es
}

// framesOf returns the frames of one type that a client got, in order.
func framesOf[F any](w *hosttest.Watch) []F {
	var out []F
	for _, g := range w.Got() {
		if f, ok := g.Frame.(F); ok {
			out = append(out, f)
		}
	}
	return out
}

// respond answers an approval and returns how that went.
func (s *scene) respond(w *hosttest.Watch, sid frames.SessionID, id frames.RequestID, o frames.Outcome) string {
	s.t.Helper()
	r, err := w.Call(s.t.Context(), "approval.respond", map[string]any{"sessionId": sid, "id": id, "outcome": o})
	if err != nil {
		s.t.Fatalf("approval.respond: %v", err)
	}
	return r.Kind()
}

// rest blocks for d of virtual time, or until ctx ends.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// say streams and records words.
func say(ctx context.Context, t agent.Turn, words ...string) error {
	b := t.NewBlock()
	for _, w := range words {
		if err := t.Text(ctx, b, w); err != nil {
			return err
		}
	}
	return t.Emit(ctx, frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text(strings.Join(words, ""))}, Blocks: []int{b}})
}

// gatedCall asks for a call and records its result.
func gatedCall(ctx context.Context, t agent.Turn, id string) (agent.Decision, error) {
	call := frames.CallID(id)
	input := json.RawMessage(fmt.Sprintf(`{"call":%q}`, id))
	if err := t.Emit(ctx, frames.ToolCall{CallID: call, Name: "sh", Input: input}); err != nil {
		return agent.Decision{}, err
	}
	d, err := t.Ask(ctx, agent.Approval{Call: call, Tool: frames.Tool{Name: "sh"}, Input: input})
	if err != nil {
		return d, err
	}
	return d, t.Emit(ctx, frames.ToolResult{
		CallID: call, IsError: !d.Allowed(), Content: []frames.ContentBlock{frames.Text(fmt.Sprintf("%s by %s", d.Outcome, d.Cause))},
	})
}

// seeded returns a generator that a failing round can be repeated with.
func seeded(round int) *rand.Rand { return rand.New(rand.NewPCG(uint64(round), 77)) }
