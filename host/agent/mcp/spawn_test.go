package mcp_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/mcp"
)

// A child gets the prompt, the agent, the directory and the title that the call
// names, and its last message is what the call returns.
func TestSpawnReturnsWhatTheChildSaid(t *testing.T) {
	cwd := realDir(t)
	if err := os.MkdirAll(filepath.Join(cwd, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	var asked []agent.Approval
	r := start(t, mcp.Options{}, agenttest.Script{Cwd: cwd, Approve: func(_ context.Context, _ *agenttest.Session, a agent.Approval) agent.Decision {
		asked = append(asked, a)
		return agent.Decision{Outcome: frames.AllowedOnce, Cause: frames.CausePolicy}
	}}, &child{"parrot", echo})
	r.begin()
	text, bad := r.use("spawn_subagent", args{"agent": "parrot", "prompt": "hello", "cwd": "a/b", "title": "  Say \n it  "})
	kid := r.host.Sessions()[1]
	want := "echo: hello\n\n[subagent " + string(kid.Info.ID) + ": completed]"
	if bad || text != want {
		t.Errorf("spawn_subagent = %q, error %t; want %q", text, bad, want)
	}
	if kid.Parent != r.session || kid.Title != "Say it" || kid.Info.Cwd != filepath.Join(cwd, "a", "b") {
		t.Errorf("the child is %q in %q below %v", kid.Title, kid.Info.Cwd, kid.Parent)
	}
	wantInput := `{"agent":"parrot","prompt":"hello","cwd":"` + filepath.Join(cwd, "a", "b") + `","title":"Say it"}`
	if len(asked) != 1 || asked[0].Tool.Name != "muxhost.spawn_subagent" || string(asked[0].Input) != wantInput {
		t.Errorf("the policy was asked for %+v, want once for spawn_subagent with %s", asked, wantInput)
	}
}

// Without a directory the child works where its parent does.
func TestSpawnInheritsTheDirectory(t *testing.T) {
	r := start(t, mcp.Options{}, agenttest.Script{}, &child{"parrot", echo})
	r.begin()
	if text, bad := r.use("spawn_subagent", args{"agent": "parrot", "prompt": "hello"}); bad {
		t.Fatal(text)
	}
	if got := r.host.Sessions()[1].Info.Cwd; got != r.session.Info.Cwd {
		t.Errorf("the child works in %q, want %q", got, r.session.Info.Cwd)
	}
}

// What is not allowed is not spawned, and the model reads why.
func TestSpawnThatIsNotAllowedStartsNothing(t *testing.T) {
	r := start(t, mcp.Options{}, agenttest.Script{Approve: func(context.Context, *agenttest.Session, agent.Approval) agent.Decision {
		return agent.Decision{Outcome: frames.Rejected, Cause: frames.CauseReply, Feedback: "do it yourself"}
	}}, &child{"parrot", echo})
	r.begin()
	text, bad := r.use("spawn_subagent", args{"agent": "parrot", "prompt": "hello"})
	if !bad || !strings.Contains(text, "Not run: rejected by a person. Feedback: do it yourself") {
		t.Errorf("spawn_subagent = %q, error %t; want the refusal", text, bad)
	}
	if n := len(r.host.Sessions()); n != 1 {
		t.Errorf("there are %d sessions, want 1", n)
	}
}

// What runs is what was allowed, not what was asked for.
func TestSpawnRunsWhatWasAllowed(t *testing.T) {
	r := start(t, mcp.Options{}, agenttest.Script{Approve: func(_ context.Context, s *agenttest.Session, _ agent.Approval) agent.Decision {
		in := `{"agent":"parrot","prompt":"something else","cwd":"` + s.Info.Cwd + `"}`
		return agent.Decision{Outcome: frames.AllowedOnce, Cause: frames.CauseReply, Input: []byte(in)}
	}}, &child{"parrot", echo})
	r.begin()
	if text, bad := r.use("spawn_subagent", args{"agent": "parrot", "prompt": "hello"}); bad || !strings.HasPrefix(text, "echo: something else") {
		t.Errorf("spawn_subagent = %q, error %t", text, bad)
	}
}

// A directory outside of the parent's is refused, however it is written.
func TestSpawnStaysInTheParentsDirectory(t *testing.T) {
	out, cwd := realDir(t), realDir(t)
	for link, to := range map[string]string{"away": out, "up": "..", "twice": "away", "gone": "nowhere", "in": "sub"} {
		if err := os.Symlink(to, filepath.Join(cwd, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(cwd, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cwd, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, mcp.Options{}, agenttest.Script{Cwd: cwd}, &child{"parrot", echo})
	r.begin()
	for _, dir := range []string{out, "/", "..", "sub/../..", "away", "up", "twice", "gone", "file", "nowhere", cwd + "x", "in/../../" + filepath.Base(out)} {
		text, bad := r.use("spawn_subagent", args{"agent": "parrot", "prompt": "hello", "cwd": dir})
		if !bad || !strings.Contains(text, `"cwd" is `) {
			t.Errorf("cwd %q: %q, error %t; want it refused", dir, text, bad)
		}
	}
	if n := len(r.host.Sessions()); n != 1 {
		t.Fatalf("there are %d sessions, want 1", n)
	}
	for _, dir := range []string{".", cwd, "sub", "in", "sub/../in"} {
		if text, bad := r.use("spawn_subagent", args{"agent": "parrot", "prompt": "hello", "cwd": dir}); bad {
			t.Errorf("cwd %q: %s", dir, text)
		}
	}
}

// A directory that is put out of place while a person thinks about it is refused.
func TestSpawnChecksTheDirectoryAgain(t *testing.T) {
	out, cwd := realDir(t), realDir(t)
	sub := filepath.Join(cwd, "sub")
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	r := start(t, mcp.Options{}, agenttest.Script{Cwd: cwd, Approve: func(context.Context, *agenttest.Session, agent.Approval) agent.Decision {
		if err := errors.Join(os.Remove(sub), os.Symlink(out, sub)); err != nil {
			t.Error(err)
		}
		return agent.Decision{Outcome: frames.AllowedOnce, Cause: frames.CauseReply}
	}}, &child{"parrot", echo})
	r.begin()
	text, bad := r.use("spawn_subagent", args{"agent": "parrot", "prompt": "hello", "cwd": "sub"})
	if !bad || !strings.Contains(text, "has changed since") || len(r.host.Sessions()) != 1 {
		t.Errorf("spawn_subagent = %q, error %t, %d sessions; want it refused", text, bad, len(r.host.Sessions()))
	}
}

// A prompt that is too long is refused with what to do instead.
func TestSpawnRefusesAVeryLongPrompt(t *testing.T) {
	r := start(t, mcp.Options{}, agenttest.Script{}, &child{"parrot", echo})
	r.begin()
	text, bad := r.use("spawn_subagent", args{"agent": "parrot", "prompt": strings.Repeat("x", 1<<20)})
	if !bad || !strings.Contains(text, "1048576 bytes, want at most 196608") || !strings.Contains(text, "write it to a file") {
		t.Errorf("spawn_subagent = %.200q, error %t", text, bad)
	}
	if text, bad := r.use("spawn_subagent", args{"agent": "parrot", "prompt": strings.Repeat("x", 192<<10)}); bad || !strings.Contains(text, "[cut: the rest stands") {
		t.Errorf("a prompt of just that size: %.200q, error %t; want its echo, cut", text, bad)
	}
}

// An agent that is not on the list is refused with the list.
func TestSpawnNamesTheAgentsThereAre(t *testing.T) {
	infos := []agent.Info{{Name: "parrot"}, {Name: "shell"}}
	r := start(t, mcp.Options{Agents: func() []agent.Info { return infos }}, agenttest.Script{}, &child{"parrot", echo})
	r.begin()
	text, bad := r.use("spawn_subagent", args{"agent": "parot", "prompt": "hello"})
	if !bad || !strings.Contains(text, `"agent" is "parot"; want one of "parrot", "shell"`) {
		t.Errorf("spawn_subagent = %q, error %t", text, bad)
	}
}

// A child that does not complete its work makes an error that tells all there is.
func TestSpawnTellsHowAChildFailed(t *testing.T) {
	r := start(t, mcp.Options{}, agenttest.Script{}, &child{"parrot", func(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
		_, _ = echo(ctx, t, p)
		return agent.Result{Reason: frames.TurnRefused, Message: "exit 4"}, nil
	}})
	r.begin()
	text, bad := r.use("spawn_subagent", args{"agent": "parrot", "prompt": "hello"})
	if !bad || !strings.HasSuffix(text, "ended: refused: exit 4\n\nIts last message:\necho: hello") {
		t.Errorf("spawn_subagent = %q, error %t", text, bad)
	}
}

// Children run beside each other: here each waits for the other.
func TestSpawnsRunInParallel(t *testing.T) {
	met := make(chan struct{})
	r := start(t, mcp.Options{}, agenttest.Script{}, &child{"parrot", func(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
		select {
		case met <- struct{}{}:
		case <-met:
		case <-ctx.Done():
		}
		return echo(ctx, t, p)
	}})
	r.begin()
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			if text, bad := r.use("spawn_subagent", args{"agent": "parrot", "prompt": "hello"}); bad {
				t.Error(text)
			}
		})
	}
	calls.Wait()
}

// A caller that gave up waits for the same child when it calls again with the same
// arguments, and with others it starts another.
func TestCallAgainWaitsForTheSameChild(t *testing.T) {
	began, on := make(chan string, 3), make(chan struct{})
	r := start(t, mcp.Options{}, agenttest.Script{}, &child{"parrot", func(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
		began <- p.Text()
		select {
		case <-on:
		case <-ctx.Done():
		}
		return echo(ctx, t, p)
	}})
	r.begin()
	ctx, cancel := context.WithCancel(t.Context())
	r.turn.Go(func() {
		<-began
		cancel()
	})
	first := args{"agent": "parrot", "prompt": "one"}
	if _, err := r.client.CallTool(ctx, &sdk.CallToolParams{Name: "spawn_subagent", Arguments: first}); err == nil {
		t.Error("a withdrawn call was answered")
	}
	r.idle()
	close(on)
	if text, bad := r.use("spawn_subagent", first); bad || !strings.HasPrefix(text, "echo: one") {
		t.Errorf("the call again = %q, error %t", text, bad)
	}
	if n := len(r.host.Sessions()); n != 2 {
		t.Errorf("there are %d sessions, want the parent and one child", n)
	}
	for _, again := range []args{first, {"agent": "parrot", "prompt": "two"}} {
		if text, bad := r.use("spawn_subagent", again); bad {
			t.Error(text)
		}
	}
	if n := len(r.host.Sessions()); n != 4 {
		t.Errorf("there are %d sessions, want 4: who was waited for is not there again", n)
	}
}

// A budget that is used up is told in words for the model.
func TestSpawnTellsThatTheBudgetIsUsedUp(t *testing.T) {
	r := start(t, mcp.Options{}, agenttest.Script{Event: func(_ *agenttest.Session, p frames.Payload) error {
		if p.EventType() == frames.AgentSpawnedEvent {
			return agent.ErrBudget
		}
		return nil
	}}, &child{"parrot", echo})
	r.begin()
	text, bad := r.use("spawn_subagent", args{"agent": "parrot", "prompt": "hello"})
	if !bad || !strings.Contains(text, "the budget of this session, or of one above it, is used up") {
		t.Errorf("spawn_subagent = %q, error %t", text, bad)
	}
}

// A crash in a call is the call's, not the host's.
func TestCrashInACallIsTold(t *testing.T) {
	r := start(t, mcp.Options{}, agenttest.Script{Approve: func(context.Context, *agenttest.Session, agent.Approval) agent.Decision {
		panic("ouch")
	}})
	r.begin()
	text, bad := r.use("spawn_subagent", args{"prompt": "hello"})
	if !bad || text != "the host failed in spawn_subagent; its log says why" {
		t.Errorf("spawn_subagent = %q, error %t", text, bad)
	}
}

// The tokens of two sessions lead to their own turns only.
func TestTokensOfTwoSessionsDoNotCross(t *testing.T) {
	r := start(t, mcp.Options{}, agenttest.Script{})
	other, err := r.host.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	client := dial(t, other.Agent.(*hands).offer)
	r.begin()
	plan := args{"todos": []args{{"content": "mine", "status": "pending"}}}
	if text, bad := use(t, t.Context(), client, "report_todo", plan); !bad {
		t.Errorf("the session without a turn did %q in that of another", text)
	}
	if text, bad := r.use("report_todo", plan); bad {
		t.Error(text)
	}
	if mine, its := len(r.session.Events()), len(other.Events()); mine != 1 || its != 0 {
		t.Errorf("the sessions have %d and %d events, want 1 and 0", mine, its)
	}
}
