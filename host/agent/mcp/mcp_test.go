package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/mcp"
)

// puppet is an agent whose turns are open until they are let go: the test plays the
// agent, as a client of its session's door.
type puppet struct {
	name   string
	tools  agent.Tools
	opened chan *hands // gets those that are opened, unless nil
}

func (p *puppet) Info() agent.Info { return agent.Info{Name: p.name, Kind: "puppet"} }

func (p *puppet) Open(_ context.Context, s agent.Session) (agent.Agent, error) {
	o, err := p.tools.Offer(s)
	if err != nil {
		return nil, err
	}
	h := &hands{session: s, offer: o, open: make(chan struct{}, 1), cut: make(chan struct{})}
	if p.opened != nil {
		p.opened <- h
	}
	return h, nil
}

// hands is one open puppet.
type hands struct {
	session agent.Session
	offer   agent.ToolOffer
	open    chan struct{} // a turn runs
	cut     chan struct{} // ends it
	turn    agent.Turn    // set before open is sent
}

func (a *hands) Prompt(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
	defer a.offer.Begin(t)()
	a.turn = t
	a.open <- struct{}{}
	select {
	case <-a.cut:
		return agent.Result{}, nil
	case <-ctx.Done():
		return agent.Result{}, context.Cause(ctx)
	}
}

func (a *hands) Steer(context.Context, agent.Prompt) error { return agent.ErrNotTaken }

func (a *hands) Close(context.Context) error {
	a.offer.Close()
	return nil
}

// child is an agent that does what the test says.
type child struct {
	name string
	do   func(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error)
}

func (c *child) Info() agent.Info { return agent.Info{Name: c.name, Kind: "test", Model: "small"} }

func (c *child) Open(context.Context, agent.Session) (agent.Agent, error) { return c, nil }

func (c *child) Prompt(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
	return c.do(ctx, t, p)
}

func (c *child) Steer(context.Context, agent.Prompt) error { return agent.ErrNotTaken }
func (c *child) Close(context.Context) error               { return nil }

// echo says what it is told.
func echo(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
	return agent.Result{}, t.Emit(ctx, frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text("echo: " + p.Text())}})
}

// rig is a fake host with a puppet whose turn runs, and a client at its door.
type rig struct {
	t       *testing.T
	server  *mcp.Server
	host    *agenttest.Host
	session *agenttest.Session
	puppet  *hands
	turn    sync.WaitGroup
	client  *sdk.ClientSession
}

func newServer(t *testing.T, opt mcp.Options) *mcp.Server {
	t.Helper()
	s, err := mcp.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// start makes a rig whose host has the puppet and what else is given.
func start(t *testing.T, opt mcp.Options, script agenttest.Script, more ...agent.Driver) *rig {
	t.Helper()
	r := &rig{t: t, server: newServer(t, opt)}
	if script.Cwd == "" {
		script.Cwd = realDir(t)
	}
	r.host = agenttest.New(script, append([]agent.Driver{&puppet{"puppet", r.server, nil}}, more...)...)
	t.Cleanup(func() {
		if err := r.host.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := r.host.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.session, r.puppet = s, s.Agent.(*hands)
	r.client = dial(t, r.puppet.offer)
	return r
}

// begin begins a turn, which runs until end is called or the host closes.
func (r *rig) begin() (end func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	r.turn.Go(func() { _, _ = r.session.Prompt(ctx, "go") })
	<-r.puppet.open
	end = sync.OnceFunc(func() {
		cancel()
		r.turn.Wait()
	})
	r.t.Cleanup(end)
	return end
}

// bearer adds a token to requests.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// dial connects a client of the protocol's own library.
func dial(t *testing.T, o agent.ToolOffer) *sdk.ClientSession {
	t.Helper()
	return dialWith(t, o, nil)
}

func dialWith(t *testing.T, o agent.ToolOffer, opt *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	return dialAs(t, o, "test", opt)
}

func dialAs(t *testing.T, o agent.ToolOffer, name string, opt *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: name, Version: "1"}, opt)
	cs, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: o.URL(), HTTPClient: &http.Client{Transport: bearer(o.Token())}, MaxRetries: -1,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cs.Close() })
	return cs
}

// use calls a tool and returns its text, and whether it is an error.
func use(t *testing.T, ctx context.Context, c *sdk.ClientSession, name string, args any) (string, bool) { //nolint:revive // t leads
	t.Helper()
	res, err := c.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Fatalf("%s(%v) = %v", name, args, err)
	}
	var b strings.Builder
	for _, c := range res.Content {
		b.WriteString(c.(*sdk.TextContent).Text)
	}
	return b.String(), res.IsError
}

func (r *rig) use(name string, args any) (string, bool) {
	r.t.Helper()
	return use(r.t, r.t.Context(), r.client, name, args)
}

type args = map[string]any

// An agent's todo list becomes the session's plan.
func TestReportTodoWritesThePlan(t *testing.T) {
	r := start(t, mcp.Options{}, agenttest.Script{})
	r.begin()
	text, bad := r.use("report_todo", args{"todos": []args{
		{"content": "look", "status": "completed"}, {"content": "leap", "status": "in_progress", "priority": "high", "id": "2"},
	}})
	if bad || !strings.Contains(text, "2 entries") {
		t.Fatalf("report_todo = %q, error %t", text, bad)
	}
	got := agenttest.Last[frames.TodoWrite](r.session).Todos
	want := []frames.Todo{{Content: "look", Status: "completed"}, {ID: "2", Content: "leap", Status: "in_progress", Priority: "high"}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("the plan is %v, want %v", got, want)
	}
}

// While no turn runs, calls are refused with words for the model, before a turn and
// after it.
func TestNoTurnNoTool(t *testing.T) {
	r := start(t, mcp.Options{}, agenttest.Script{})
	check := func(when string) {
		t.Helper()
		text, bad := r.use("report_todo", args{"todos": []args{}})
		if !bad || !strings.Contains(text, "no turn of this session runs") {
			t.Errorf("%s: report_todo = %q, error %t; want an error that says why", when, text, bad)
		}
	}
	check("before the turn")
	r.begin()()
	check("after the turn")
	if n := len(r.session.Events()); n != 0 {
		t.Errorf("%d events were emitted, want none", n)
	}
}

// What a tool does not know is refused with the name of what is wrong.
func TestWrongArgumentsAreNamed(t *testing.T) {
	r := start(t, mcp.Options{}, agenttest.Script{})
	r.begin()
	for _, c := range []struct {
		tool string
		args any
		want string
	}{
		{"report_todo", args{"todos": []args{}, "secret": 1}, `secret`},
		{"report_todo", args{}, `todos`},
		{"report_todo", args{"todos": "all"}, `todos`},
		{"report_todo", args{"todos": []args{{"content": "x", "status": "done"}}}, `in_progress`},
		{"spawn_subagent", args{}, `prompt`},
		{"spawn_subagent", args{"prompt": 5}, `prompt`},
		{"spawn_subagent", args{"prompt": "  "}, `"prompt" is empty`},
		{"spawn_subagent", args{"prompt": "x", "policy": args{"mode": "allow"}}, `policy`},
		{"ask_user", args{"questions": []args{}}, `questions`},
		{"ask_user", args{"questions": []args{{"question": " "}}}, `question 1 is empty`},
		{"ask_user", args{"questions": []args{{"question": "x", "options": []args{{"label": "a"}, {"label": "a"}}}}}, `twice: "a"`},
	} {
		text, bad := r.use(c.tool, c.args)
		if !bad || !strings.Contains(text, c.want) {
			t.Errorf("%s(%v) = %q, error %t; want an error with %q", c.tool, c.args, text, bad, c.want)
		}
	}
	if n := len(r.session.Events()); n != 0 {
		t.Errorf("%d events were emitted, want none", n)
	}
}

// There is no tool but the three.
func TestThreeToolsAndNoMore(t *testing.T) {
	r := start(t, mcp.Options{Agents: func() []agent.Info {
		return []agent.Info{{Name: "claude", Kind: "acp", Model: "opus", Capabilities: []string{"images"}}, {Name: "shell", Kind: "shell"}}
	}}, agenttest.Script{})
	list, err := r.client.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tl := range list.Tools {
		names = append(names, tl.Name)
		if b, err := json.Marshal(tl.InputSchema); err != nil || !strings.Contains(string(b), `"additionalProperties":false`) {
			t.Errorf("%s takes what it does not know: %s, %v", tl.Name, b, err)
		}
		if tl.Name == "spawn_subagent" && !strings.Contains(tl.Description, "- claude: acp, opus (images)\n- shell: shell") {
			t.Errorf("spawn_subagent does not say which agents there are: %q", tl.Description)
		}
	}
	if got, want := strings.Join(names, " "), "ask_user report_todo spawn_subagent"; got != want {
		t.Errorf("the tools are %s, want %s", got, want)
	}
	if _, err := r.client.CallTool(t.Context(), &sdk.CallToolParams{Name: "approve"}); err == nil {
		t.Error("a tool that does not exist was called")
	}
}

// The rules by default let children be spawned and nothing else.
func TestDefaultRulesAllowSpawningOnly(t *testing.T) {
	got := mcp.DefaultRules()
	if len(got) != 1 || got[0].Tool != "muxhost.spawn_subagent" || got[0].Decision != "allow" {
		t.Errorf("DefaultRules = %v", got)
	}
}

// A time between signs of life that cannot be is refused.
func TestNewRefusesANegativeBeat(t *testing.T) {
	if s, err := mcp.New(mcp.Options{Beat: -time.Second}); err == nil {
		_ = s.Close(t.Context())
		t.Error("New took a negative Beat")
	}
}

// Once the server is closed there are no offers.
func TestNoOfferAfterClose(t *testing.T) {
	s := newServer(t, mcp.Options{})
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Offer(agent.Session{}); !errors.Is(err, mcp.ErrClosed) {
		t.Errorf("Offer = %v, want ErrClosed", err)
	}
}

// idle waits until no call runs.
func (r *rig) idle() {
	r.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(10 * time.Second)
	for mcp.Running(r.puppet.offer) > 0 {
		select {
		case <-tick.C:
		case <-limit:
			r.t.Fatal("a call runs still")
		}
	}
}

// Every caller is offered each tool once; one that takes away tools of a name is
// offered that tool under another name, and can call it.
func TestToolsGoByANameThatTheCallerKeeps(t *testing.T) {
	r := start(t, mcp.Options{}, agenttest.Script{})
	r.begin()
	for name, want := range map[string]string{
		"test":                             "ask_user report_todo spawn_subagent",
		"gemini-cli-mcp-client-for-server": "ask_people report_todo spawn_subagent",
	} {
		c := dialAs(t, r.puppet.offer, name, nil)
		list, err := c.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s is offered %s; want %s", name, got, want)
		}
		if text, bad := use(t, t.Context(), c, names[0], args{"questions": []args{{"question": "well?"}}}); bad || !strings.Contains(text, "yes") {
			t.Errorf("%s: %s = %q, error %t; want the answer", name, names[0], text, bad)
		}
	}
}
