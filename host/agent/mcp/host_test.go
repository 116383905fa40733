package mcp_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/demo"
	"github.com/muxhost/muxhost/host/agent/mcp"
	"github.com/muxhost/muxhost/host/agent/shell"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
	"github.com/muxhost/muxhost/store/mem"
)

// world is a whole host with puppets, a demo, a shell and a parrot, and a client of
// people.
type world struct {
	t      *testing.T
	server *mcp.Server
	host   *host.Host
	people *client.Client
	opened chan *hands
	cwd    string
	down   func()
}

func newWorld(t *testing.T, edit func(*host.Config)) *world {
	t.Helper()
	w := &world{t: t, opened: make(chan *hands, 10), cwd: realDir(t)}
	cfg := host.Config{Store: mem.New(), Token: host.NewToken(), DrainTimeout: 50 * time.Millisecond}
	w.server = newServer(t, mcp.Options{Agents: func() []agent.Info {
		var all []agent.Info
		for _, d := range cfg.Drivers {
			all = append(all, d.Info())
		}
		return all
	}})
	cfg.Drivers = []agent.Driver{&puppet{"puppet", w.server, w.opened}, demo.New(demo.Options{}), shell.New(shell.Options{}), &child{"parrot", echo}}
	if edit != nil {
		edit(&cfg)
	}
	var err error
	if w.host, err = host.New(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(w.host.Handler())
	w.down = sync.OnceFunc(func() {
		if err := w.host.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		srv.Close()
	})
	t.Cleanup(w.down)
	if w.people, err = client.Dial(t.Context(), client.Options{URL: srv.URL, Token: cfg.Token, Label: "people"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.people.Close() })
	return w
}

// root begins a turn of a puppet and returns it, and a client at its door.
func (w *world) root(p rpc.CreateParams) (*client.Session, frames.TurnID, *hands, *sdk.ClientSession) {
	w.t.Helper()
	p.Agent, p.Cwd = "puppet", w.cwd
	s, err := w.people.Open(w.t.Context(), p)
	if err != nil {
		w.t.Fatal(err)
	}
	turn, err := s.Prompt(w.t.Context(), "go")
	if err != nil {
		w.t.Fatal(err)
	}
	h, c := w.next()
	return s, turn, h, c
}

// next waits for a puppet's turn.
func (w *world) next() (*hands, *sdk.ClientSession) {
	w.t.Helper()
	h := <-w.opened
	<-h.open
	return h, dial(w.t, h.offer)
}

// allow is a policy that asks for neither spawns nor commands.
func allow(more ...frames.Rule) *frames.Policy {
	return &frames.Policy{Rules: append(append(mcp.DefaultRules(), frames.Rule{Tool: "sh", Decision: "allow"}), more...)}
}

// An agent that can call tools gets a tree of agents of any kind: here a puppet, a
// demo, a shell and a parrot, two levels deep.
func TestTreeOfMixedAgents(t *testing.T) {
	w := newWorld(t, nil)
	s, turn, h, c := w.root(rpc.CreateParams{Policy: allow()})
	var calls sync.WaitGroup
	calls.Go(func() {
		text, bad := use(t, t.Context(), c, "spawn_subagent", args{"agent": "puppet", "prompt": "below"})
		if bad {
			t.Error(text)
		}
	})
	below, its := w.next()
	for _, k := range []struct{ agent, prompt, want string }{
		{"parrot", "hello", "echo: hello"}, {"demo", "hello", "hello"}, {"shell", "true", "[It said nothing.]"},
	} {
		for _, at := range []*sdk.ClientSession{c, its} {
			text, bad := use(t, t.Context(), at, "spawn_subagent", args{"agent": k.agent, "prompt": k.prompt, "title": k.agent})
			if bad || !strings.Contains(text, k.want) {
				t.Errorf("%s: %q, error %t; want %q", k.agent, text, bad, k.want)
			}
		}
	}
	text, bad := use(t, t.Context(), its, "spawn_subagent", args{"agent": "shell", "prompt": "exit 4"})
	if bad || !strings.HasSuffix(text, ": completed: exit 4]") {
		t.Errorf("a shell whose command failed: %q, error %t; want its exit code", text, bad)
	}
	close(below.cut)
	calls.Wait()
	close(h.cut)
	view, err := s.Wait(t.Context(), turn, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(view.Children()); n != 4 {
		t.Errorf("the root has %d children in its view, want 4", n)
	}
	w.lineage(s.ID, below.session.ID, map[string]int{"puppet": 2, "parrot": 2, "demo": 2, "shell": 3})
}

// lineage checks that of every session of a tree: those that are not the root's
// children are those of the one child that has some.
func (w *world) lineage(root, below frames.SessionID, want map[string]int) {
	w.t.Helper()
	got := map[string]int{}
	for s, err := range w.people.ListAll(w.t.Context(), rpc.ListParams{Tree: root}) {
		if err != nil {
			w.t.Fatal(err)
		}
		got[s.Agent]++
		if s.SessionID == root {
			continue
		}
		depth := 1
		if s.ParentSessionID == below {
			depth = 2
		} else if s.ParentSessionID != root {
			w.t.Errorf("%s has the parent %s", s.Agent, s.ParentSessionID)
		}
		if s.RootSessionID != root || s.Depth != depth || s.Origin != frames.OriginSubagent {
			w.t.Errorf("%s is %s at depth %d below %s", s.Agent, s.Origin, s.Depth, s.RootSessionID)
		}
	}
	for name, n := range want {
		if got[name] != n {
			w.t.Errorf("there are %d sessions of %s, want %d", got[name], name, n)
		}
	}
}

// The host's bounds reach the model as words: how deep a tree may be, how fast it
// grows, and what it may use.
func TestBoundsOfTheTreeAreTold(t *testing.T) {
	spawn := args{"agent": "parrot", "prompt": "hello"}
	t.Run("depth", func(t *testing.T) {
		w := newWorld(t, func(c *host.Config) { c.MaxDepth = 1 })
		_, _, _, c := w.root(rpc.CreateParams{Policy: allow()})
		var calls sync.WaitGroup
		calls.Go(func() { use(t, t.Context(), c, "spawn_subagent", args{"prompt": "below"}) })
		below, its := w.next()
		if text, bad := use(t, t.Context(), its, "spawn_subagent", spawn); !bad || !strings.Contains(text, "levels deep, want at most 1") {
			t.Errorf("spawn_subagent = %q, error %t", text, bad)
		}
		close(below.cut)
		calls.Wait()
	})
	t.Run("rate", func(t *testing.T) {
		w := newWorld(t, func(c *host.Config) { c.SpawnRate = 1 })
		_, _, _, c := w.root(rpc.CreateParams{Policy: allow()})
		if text, bad := use(t, t.Context(), c, "spawn_subagent", spawn); bad {
			t.Fatal(text)
		}
		if text, bad := use(t, t.Context(), c, "spawn_subagent", spawn); !bad || !strings.Contains(text, "children a minute") {
			t.Errorf("spawn_subagent = %q, error %t", text, bad)
		}
	})
	t.Run("budget", func(t *testing.T) {
		w := newWorld(t, nil)
		_, _, h, c := w.root(rpc.CreateParams{Policy: allow(), Budget: &frames.Budget{Tokens: 10}})
		if err := h.turn.Emit(t.Context(), frames.UsageUpdated{Usage: frames.Usage{InputTokens: 20}}); err != nil {
			t.Fatal(err)
		}
		if text, bad := use(t, t.Context(), c, "spawn_subagent", spawn); !bad || !strings.Contains(text, "budget") {
			t.Errorf("spawn_subagent = %q, error %t", text, bad)
		}
	})
}

// Who cancels the parent cancels the child, and the call is over with it.
func TestCancelOfTheParentEndsChildAndCall(t *testing.T) {
	w := newWorld(t, nil)
	s, turn, _, c := w.root(rpc.CreateParams{Policy: allow()})
	over := make(chan string, 1)
	var calls sync.WaitGroup
	calls.Go(func() {
		text, bad := use(t, t.Context(), c, "spawn_subagent", args{"prompt": "below"})
		if !bad {
			t.Errorf("a call whose child was cancelled = %q", text)
		}
		over <- text
	})
	below, _ := w.next()
	if _, err := w.people.Cancel(t.Context(), rpc.CancelParams{SessionID: s.ID}); err != nil {
		t.Fatal(err)
	}
	var ends []frames.SessionID
	_, err := s.Wait(t.Context(), turn, func(f frames.Frame) error {
		if e, ok := f.(*frames.SessionEvent); ok && strings.Contains(string(e.Event), `"turn/end"`) {
			ends = append(ends, e.SessionID)
		}
		return nil
	})
	if te, ok := errors.AsType[*client.TurnError](err); !ok || te.Reason != frames.TurnCancelled {
		t.Errorf("the parent's turn ended %v, want cancelled", err)
	}
	if text := <-over; !strings.Contains(text, "cancelled") && !strings.Contains(text, "the turn is over") {
		t.Errorf("the call says %q", text)
	}
	calls.Wait()
	if want := []frames.SessionID{below.session.ID, s.ID}; !slices.Equal(ends, want) {
		t.Errorf("the turns ended in the order %v, want %v", ends, want)
	}
}

// Without a rule a person is asked about a spawn, and a rejection is told to the
// model; a deny rule needs no person.
func TestSpawnsAreGatedByThePolicy(t *testing.T) {
	w := newWorld(t, nil)
	s, turn, h, c := w.root(rpc.CreateParams{})
	var calls sync.WaitGroup
	calls.Go(func() {
		text, bad := use(t, t.Context(), c, "spawn_subagent", args{"agent": "parrot", "prompt": "hello"})
		if !bad || !strings.Contains(text, "Not run: rejected by a person. Feedback: not now") {
			t.Errorf("spawn_subagent = %q, error %t", text, bad)
		}
		close(h.cut)
	})
	cards := 0
	_, err := s.Wait(t.Context(), turn, func(f frames.Frame) error {
		card, ok := f.(*frames.ApprovalRequested)
		if !ok {
			return nil
		}
		cards++
		if want := `{"agent":"parrot","prompt":"hello","cwd":"` + w.cwd + `"}`; card.Tool.Name != "muxhost.spawn_subagent" || string(card.Input) != want {
			t.Errorf("people are asked about %s %s, want spawn_subagent %s", card.Tool.Name, card.Input, want)
		}
		return w.people.Respond(t.Context(), rpc.ApprovalParams{SessionID: s.ID, ID: card.ID, Outcome: frames.Rejected, Feedback: "not now"})
	})
	calls.Wait()
	if err != nil || cards != 1 {
		t.Errorf("%d cards, %v; want 1", cards, err)
	}
	_, _, _, c = w.root(rpc.CreateParams{Policy: allow(frames.Rule{Tool: "muxhost.spawn_subagent", Decision: "deny"})})
	if text, bad := use(t, t.Context(), c, "spawn_subagent", args{"agent": "parrot", "prompt": "hello"}); !bad || !strings.Contains(text, "policy does not allow") {
		t.Errorf("against a deny rule: %q, error %t", text, bad)
	}
	for s, err := range w.people.ListAll(t.Context(), rpc.ListParams{}) {
		if err != nil || s.Agent == "parrot" {
			t.Errorf("there is a session of %s, %v", s.Agent, err)
		}
	}
}

// A question reaches people and their answer the model; where nobody is asked the
// model is told so at once.
func TestQuestionsReachPeople(t *testing.T) {
	w := newWorld(t, nil)
	ask := args{"questions": []args{{"question": "Which?", "options": []args{{"label": "this"}, {"label": "that"}}}}}
	s, turn, h, c := w.root(rpc.CreateParams{})
	var calls sync.WaitGroup
	calls.Go(func() {
		if text, bad := use(t, t.Context(), c, "ask_user", ask); bad || text != "Which?\nAnswer: that" {
			t.Errorf("ask_user = %q, error %t", text, bad)
		}
		close(h.cut)
	})
	_, err := s.Wait(t.Context(), turn, func(f frames.Frame) error {
		if q, ok := f.(*frames.QuestionRequested); ok {
			return w.people.Answer(t.Context(), rpc.QuestionParams{SessionID: s.ID, ID: q.ID, Answers: []frames.Answer{{ID: q.Questions[0].ID, Labels: []string{"that"}}}})
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	calls.Wait()
	_, _, _, c = w.root(rpc.CreateParams{Policy: &frames.Policy{Mode: "deny"}})
	if text, bad := use(t, t.Context(), c, "ask_user", ask); bad || !strings.Contains(text, "nobody is asked") {
		t.Errorf("ask_user = %q, error %t", text, bad)
	}
}

// A host that goes down ends the calls, and the doors with their agents.
func TestShutdownOfTheHostEndsCalls(t *testing.T) {
	w := newWorld(t, nil)
	_, _, h, c := w.root(rpc.CreateParams{Policy: allow()})
	var calls sync.WaitGroup
	calls.Go(func() {
		_, _ = c.CallTool(t.Context(), &sdk.CallToolParams{Name: "spawn_subagent", Arguments: args{"prompt": "below"}})
	})
	w.next()
	w.down()
	calls.Wait()
	if resp, _ := raw(t, "POST", h.offer.URL(), initialize, withToken(h.offer)); resp.StatusCode != 401 {
		t.Errorf("the door of a host that is down: %s, want 401", resp.Status)
	}
}
