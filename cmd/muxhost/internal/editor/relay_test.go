package editor_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/editor"
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
	"github.com/muxhost/muxhost/store/mem"
)

// farEnv makes the test binary an agent to an editor, for the host that it names.
const farEnv = "MUXHOST_TEST_FAR"

func TestMain(m *testing.M) {
	url := os.Getenv(farEnv)
	if url == "" {
		os.Exit(m.Run())
	}
	dial := func(ctx context.Context, label string, onState func(client.State)) (*client.Client, error) {
		return client.Dial(ctx, client.Options{URL: url, Token: token, Label: label, OnState: onState})
	}
	if err := editor.Serve(context.Background(), editor.Options{In: os.Stdin, Out: os.Stdout, Dial: dial}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// relay is two hosts: the near one's agent is this program as an agent of the far one.
type relay struct {
	t         *testing.T
	near, far *client.Client
	session   *client.Session
	cwd       string
}

func newHost(t *testing.T, d agent.Driver) *host.Host {
	t.Helper()
	h, err := host.New(t.Context(), host.Config{Store: mem.New(), Drivers: []agent.Driver{d}, Token: token, DrainTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := h.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return h
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	far := newHost(t, script{"test"})
	srv := httptest.NewServer(far.Handler())
	t.Cleanup(srv.Close)
	near := newHost(t, acp.New(acp.Options{Name: "far", Command: exe, Env: []string{farEnv + "=" + srv.URL}, ApprovalMode: "ask"}))
	r := &relay{t: t, cwd: t.TempDir()}
	for to, h := range map[**client.Client]*host.Host{&r.near: near, &r.far: far} {
		c, err := client.Dial(t.Context(), client.Options{URL: host.LocalURL, HTTPClient: h.Local(), Token: token, Label: "a person"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		*to = c
	}
	if r.session, err = r.near.Open(t.Context(), rpc.CreateParams{Cwd: r.cwd}); err != nil {
		t.Fatal(err)
	}
	return r
}

// turn runs a prompt on the near host to its end; each frame is handed to see.
func (r *relay) turn(text string, see func(frames.Frame) error) *frames.View {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	turn, err := r.session.Prompt(ctx, text)
	if err != nil {
		r.t.Fatal(err)
	}
	if see == nil {
		see = func(frames.Frame) error { return nil }
	}
	v, err := r.session.Wait(ctx, turn, see)
	if err != nil && v == nil {
		r.t.Fatalf("%s: %v", text, err)
	}
	return v
}

// farSession is the only session of the far host that has no parent.
func (r *relay) farSession() string {
	r.t.Helper()
	list, err := r.far.List(r.t.Context(), rpc.ListParams{Roots: true})
	if err != nil || len(list.Sessions) != 1 {
		r.t.Fatalf("%d sessions on the far host, %v; want 1", len(list.Sessions), err)
	}
	return string(list.Sessions[0].SessionID)
}

// story is what a view tells: texts, and calls with their ends.
func story(v *frames.View) string {
	var b strings.Builder
	last := frames.ItemKind("")
	for _, it := range v.Items {
		switch it.Kind {
		case frames.ItemAssistant, frames.ItemReasoning:
			if it.Kind != last {
				fmt.Fprintf(&b, "\n%s: ", it.Kind)
			}
			for _, c := range it.Content {
				b.WriteString(c.Text)
			}
		case frames.ItemTool:
			fmt.Fprintf(&b, "\ncall %s %s %s %s: error %t", it.Tool.CallID, it.Tool.Name, it.Tool.Kind, it.Tool.Input, it.Tool.IsError)
			for _, c := range it.Tool.Content {
				b.WriteString(" " + c.Text)
			}
		default:
			continue
		}
		last = it.Kind
	}
	for _, todo := range v.Todos {
		fmt.Fprintf(&b, "\ntodo %s %s", todo.Content, todo.Status)
	}
	return b.String()
}

// same holds the folds of both hosts against each other.
func (r *relay) same(v *frames.View) {
	r.t.Helper()
	if near, far := story(v), story(view(r.t, r.far, r.farSession())); near != far {
		r.t.Errorf("the near host tells:%s\nthe far host tells:%s", near, far)
	}
}

// answers returns a watcher that answers each approval of the near host.
func (r *relay) answers(outcome frames.Outcome) func(frames.Frame) error {
	return func(f frames.Frame) error {
		a, ok := f.(*frames.ApprovalRequested)
		if !ok {
			return nil
		}
		return r.near.Respond(r.t.Context(), rpc.ApprovalParams{SessionID: a.SessionID, ID: a.ID, Outcome: outcome, InputHash: &a.InputHash})
	}
}

// Two hosts with this program and the driver between them tell the same story: text,
// reasoning, calls that were allowed and rejected, plans; and again after the near one's
// agent was closed and resumed.
func TestRelayTellsTheSameStory(t *testing.T) {
	r := newRelay(t)
	r.same(r.turn(`think hm hm; say one two; run {"x":1}; plan p; say three`, r.answers(frames.AllowedOnce)))
	v := r.turn(`run {"x":2}; say after`, r.answers(frames.Rejected))
	r.same(v)
	if d := decided(view(t, r.far, r.farSession())); d == nil || d.Outcome != frames.Rejected || d.By == nil || d.By.Label != "muxhost" {
		t.Errorf("the far host decided %+v, want rejected by muxhost", d)
	}
	if err := r.near.CloseSession(t.Context(), r.session.ID); err != nil {
		t.Fatal(err)
	}
	r.same(r.turn("say again", nil))
	if got := story(view(t, r.far, r.farSession())); !strings.HasSuffix(strings.Split(got, "\ntodo")[0], "again") {
		t.Errorf("the far host tells:%s", got)
	}
}

// An approval that is answered on the far host is withdrawn on the near one, and the far
// host's answer is what counts.
func TestRelayWithdrawsWhatTheFarHostSettles(t *testing.T) {
	r := newRelay(t)
	var resolved []frames.Outcome
	v := r.turn(`run {"x":1}; say after`, func(f frames.Frame) error {
		switch f := f.(type) {
		case *frames.ApprovalRequested:
			return r.far.Respond(t.Context(), rpc.ApprovalParams{SessionID: frames.SessionID(r.farSession()), ID: pending(t, r.far)[0], Outcome: frames.AllowedOnce})
		case *frames.ApprovalResolved:
			resolved = append(resolved, f.Outcome)
		}
		return nil
	})
	r.same(v)
	if !slices.Equal(resolved, []frames.Outcome{frames.Cancelled}) {
		t.Errorf("on the near host it was %v, want cancelled", resolved)
	}
	if d := decided(view(t, r.far, r.farSession())); d.Outcome != frames.AllowedOnce || d.By.Label != "a person" {
		t.Errorf("the far host decided %+v", d)
	}
}

// A cancel on the near host ends the turn on the far one, and what was asked there.
func TestRelayCancels(t *testing.T) {
	r := newRelay(t)
	v := r.turn(`say begun; run {"x":1}; say never`, func(f frames.Frame) error {
		if _, ok := f.(*frames.ApprovalRequested); !ok {
			return nil
		}
		_, err := r.near.Cancel(t.Context(), rpc.CancelParams{SessionID: r.session.ID})
		return err
	})
	if got := v.Turns[len(v.Turns)-1].Reason; got != frames.TurnCancelled {
		t.Errorf("the near turn ended %q", got)
	}
	far := view(t, r.far, r.farSession())
	if n := len(far.Turns); n != 1 || far.Turns[0].Reason != frames.TurnCancelled || len(far.Pending()) != 0 {
		t.Errorf("the far host: turns %+v, pending %v", far.Turns, far.Pending())
	}
	if d := decided(far); d.Outcome != frames.Cancelled {
		t.Errorf("the far host decided %+v, want cancelled", d)
	}
}

// A question of the far host is the near host's, and its answer comes back; a child of
// the far host is a child on the near one, with what it says and asks.
func TestRelayCarriesQuestionsAndChildren(t *testing.T) {
	r := newRelay(t)
	allow := r.answers(frames.AllowedOnce)
	v := r.turn(`ask; spawn say hello from below, then run {"y":1}; spawn run {"z":1}`, func(f frames.Frame) error {
		q, ok := f.(*frames.QuestionRequested)
		if !ok {
			return allow(f)
		}
		return r.near.Answer(t.Context(), rpc.QuestionParams{
			SessionID: q.SessionID, ID: q.ID, Answers: []frames.Answer{{ID: q.Questions[0].ID, Labels: []string{"b"}}},
		})
	})
	r.same(v)
	if !strings.Contains(story(v), "answered[{q [b] }]") {
		t.Errorf("the answer: %s", story(v))
	}
	if len(v.Children()) != 2 {
		t.Fatalf("%d children on the near host, want 2", len(v.Children()))
	}
	var told []string
	for _, child := range v.Children() {
		told = append(told, story(view(t, r.near, string(child.SessionID))))
	}
	if !strings.Contains(told[0], "hello from below") || !strings.Contains(told[1], `{"z":1}: error false`) {
		t.Errorf("the children tell: %s", told)
	}
}
