package llm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/llm"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
	"github.com/muxhost/muxhost/store/mem"
)

// quietHost shows nobody anything and keeps no blobs.
type quietHost struct{}

func (quietHost) Add(frames.Session, frames.Seq, bool)     {}
func (quietHost) SetLive(frames.SessionID, bool)           {}
func (quietHost) Remove(frames.SessionID, string)          {}
func (quietHost) Trimmed(frames.SessionID, frames.Seq)     {}
func (quietHost) Publish(frames.SessionID, session.Update) {}
func (quietHost) Put(_ context.Context, r io.Reader) (frames.BlobID, int64, error) {
	n, err := io.Copy(io.Discard, r)
	return "sha256-x", n, err
}

// real is the host's own sessions over a store in memory.
type real struct {
	t     *testing.T
	store store.Store
	opt   llm.Options
	ids   int
	m     *session.Manager
	keep  session.Retention
}

func (r *real) start() {
	r.t.Helper()
	m, err := session.New(r.t.Context(), session.Config{
		Store: r.store, Publisher: quietHost{}, Blobs: quietHost{}, DefaultAgent: "llm",
		Drivers: map[string]agent.Driver{"llm": llm.New(r.opt)}, Retention: r.keep,
		NewID: func() string { r.ids++; return fmt.Sprintf("id-%06d", r.ids) },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.m = m
}

func (r *real) stop() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	cancel()
	if err := r.m.Shutdown(ctx); err != nil {
		r.t.Error(err)
	}
}

func (r *real) create(a session.CreateArgs) (id frames.SessionID) {
	r.t.Helper()
	if err := r.m.Create(r.t.Context(), a, func(s frames.Session) { id = s.SessionID }); err != nil {
		r.t.Fatal(err)
	}
	return id
}

func (r *real) prompt(id frames.SessionID, mode frames.PromptMode, text string) {
	r.t.Helper()
	err := r.m.Prompt(r.t.Context(), session.PromptArgs{
		Session: id, Mode: mode, Content: []frames.ContentBlock{frames.Text(text)},
	}, func(session.PromptAnswer) {})
	if err != nil {
		r.t.Fatalf("prompt %q: %v", text, err)
	}
}

// events returns the session's log, by type.
func (r *real) events(id frames.SessionID, types ...frames.EventType) (all []frames.Event) {
	r.t.Helper()
	page, err := r.m.History(r.t.Context(), id, new(frames.Seq(0)), nil, 1000, 1<<20)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, raw := range page.Events {
		var e frames.Event
		if e, err = frames.DecodeEvent(raw.Data); err != nil {
			r.t.Fatal(err)
		}
		if len(types) == 0 || slices.Contains(types, e.Type) {
			all = append(all, e)
		}
	}
	return all
}

func (r *real) ends(id frames.SessionID) (reasons []frames.TurnEndReason) {
	r.t.Helper()
	for _, e := range r.events(id, frames.TurnEndEvent) {
		var end frames.TurnEnd
		if err := json.Unmarshal(e.Data, &end); err != nil {
			r.t.Fatal(err)
		}
		reasons = append(reasons, end.Reason)
	}
	return reasons
}

// hosted runs f with the host's own sessions in virtual time.
func hosted(t *testing.T, f func(t *testing.T, r *real, srv *stub, cwd string), tweak ...func(*llm.Options)) {
	t.Helper()
	cwd := dir(t)
	synctest.Test(t, func(t *testing.T) {
		srv := &stub{}
		r := &real{t: t, store: mem.New(), opt: options(t, srv)}
		for _, f := range tweak {
			f(&r.opt)
		}
		r.start()
		f(t, r, srv, cwd)
		r.stop()
	})
}

var reads = &frames.Policy{Rules: []frames.Rule{{Tool: "list", Decision: "allow"}}}

// In the host a steer, an injected context and prompts reach the model once each
// and in order, and a restarted host shows it the same.
func TestHostTellsEverythingOnce(t *testing.T) {
	hosted(t, func(t *testing.T, r *real, srv *stub, cwd string) {
		id := r.create(session.CreateArgs{Cwd: cwd, Policy: reads})
		r.prompt(id, frames.ModeInject, "by the way")
		srv.push(step{Text: "slow answer", Delay: time.Minute}, step{Text: "steered"})
		r.prompt(id, frames.ModeQueue, "go")
		time.Sleep(time.Second) // virtual
		r.prompt(id, frames.ModeSteer, "left")
		time.Sleep(4 * time.Minute) // less than makes it cold
		srv.push(step{Tools: tool("list", "{}")}, step{Text: "listed"})
		r.prompt(id, frames.ModeQueue, "list it")
		time.Sleep(time.Minute)
		r.stop()
		r.start()
		r.prompt(id, frames.ModeQueue, "after")
		time.Sleep(time.Minute)
		if got := r.ends(id); !slices.Equal(got, []frames.TurnEndReason{"completed", "completed", "completed"}) {
			t.Fatalf("turns ended %v: %+v", got, r.events(id, frames.TurnEndEvent, frames.ErrorReportedEvent))
		}
		seen := srv.requests()
		want := "system:|user:by the way|assistant:slow answer|user:left|assistant:steered|user:list it|assistant:+1|tool:[The directory is empty.]|assistant:listed|user:after"
		if got := roles(seen[len(seen)-1]); got != want {
			t.Errorf("the model saw\n%s; want\n%s", got, want)
		}
		for _, q := range seen[len(seen)-2:] { // before and after the restart
			for _, said := range []string{"by the way", "go", "left", "list it"} {
				if n := strings.Count("\n"+userText(q)+"\n", "\n"+said+"\n"); n != 1 {
					t.Errorf("the model saw %q %d times", said, n)
				}
			}
		}
		if got := seen[0].Messages[1].text(); got != "by the way\n\ngo" {
			t.Errorf("the first prompt was %q", got)
		}
		if got := roles(seen[1]); got != "system:|user:by the way|assistant:slow answer|user:left" {
			t.Errorf("after the steer the model saw %s", got)
		}
	})
}

// userText is all that the user said.
func userText(q seen) string {
	var all []string
	for _, m := range q.Messages {
		if m.Role == "user" {
			all = append(all, m.text())
		}
	}
	return strings.Join(all, "\n\n")
}

// A host that stops in the middle of an answer keeps what had come, and the model
// goes on from there.
func TestHostThatStopsInTheMiddle(t *testing.T) {
	hosted(t, func(t *testing.T, r *real, srv *stub, cwd string) {
		id := r.create(session.CreateArgs{Cwd: cwd})
		srv.push(step{Text: "half an", Hang: true})
		r.prompt(id, frames.ModeQueue, "go")
		time.Sleep(time.Second)
		r.stop()
		r.start()
		r.prompt(id, frames.ModeQueue, "on")
		time.Sleep(time.Minute)
		seen := srv.requests()
		if got, want := roles(seen[len(seen)-1]), "system:|user:go|assistant:half an|user:on"; got != want {
			t.Errorf("the model saw %s; want %s", got, want)
		}
		if got := r.ends(id); !slices.Equal(got, []frames.TurnEndReason{"interrupted", "completed"}) {
			t.Errorf("turns ended %v", got)
		}
	})
}

// A budget that an answer used up ends the turn before the next request.
func TestHostStopsAtTheBudget(t *testing.T) {
	hosted(t, func(t *testing.T, r *real, srv *stub, cwd string) {
		id := r.create(session.CreateArgs{Cwd: cwd, Policy: reads, Budget: &frames.Budget{Tokens: 1500}})
		r.prompt(id, frames.ModeQueue, script(step{Tools: tool("todo", `{"todos":[]}`)}))
		time.Sleep(time.Minute)
		if got := r.ends(id); len(srv.requests()) != 2 || !slices.Equal(got, []frames.TurnEndReason{"budget-exceeded"}) {
			t.Errorf("turns ended %v after %d requests; want budget-exceeded after 2", got, len(srv.requests()))
		}
	})
}

// What policy denies is not done; the model is told and goes on.
func TestHostPolicyHolds(t *testing.T) {
	hosted(t, func(t *testing.T, r *real, _ *stub, cwd string) {
		id := r.create(session.CreateArgs{Cwd: cwd, Policy: &frames.Policy{Mode: "deny"}})
		r.prompt(id, frames.ModeQueue, script(step{Tools: tool("write", `{"path":"a","content":"x"}`)}, step{Text: "Pity."}))
		time.Sleep(time.Minute)
		res := r.events(id, frames.ToolResultEvent)
		if len(res) != 1 || !strings.Contains(string(res[0].Data), "rejected") || exists(cwd+"/a") || !slices.Equal(r.ends(id), []frames.TurnEndReason{"completed"}) {
			t.Errorf("results %+v, turns ended %v; want one rejection and a completed turn", res, r.ends(id))
		}
	})
}

// Summaries are accepted by the host, and hold after a restart.
func TestHostKeepsSummaries(t *testing.T) {
	hosted(t, func(t *testing.T, r *real, srv *stub, cwd string) {
		id := r.create(session.CreateArgs{Cwd: cwd})
		for i := range 8 {
			srv.push(step{Text: strings.Repeat("a", 2200), NoUsage: true})
			r.prompt(id, frames.ModeQueue, fmt.Sprintf("round %d", i))
			time.Sleep(time.Minute)
		}
		if len(r.events(id, frames.SessionCompactedEvent)) == 0 {
			t.Fatal("nothing was compacted")
		}
		r.stop()
		r.start()
		r.prompt(id, frames.ModeQueue, "after")
		time.Sleep(time.Minute)
		seen := srv.requests()
		if got := roles(seen[len(seen)-1]); !strings.HasPrefix(got, "system:|user:What happened so far") || strings.Contains(got, "round 0|") {
			t.Errorf("the model saw %s", got)
		}
		if slices.ContainsFunc(r.ends(id), func(e frames.TurnEndReason) bool { return e != "completed" }) {
			t.Errorf("turns ended %v", r.ends(id))
		}
	}, func(o *llm.Options) { o.ContextWindow = 5000 })
}

// A log that the host trims is no loss for the model: an agent that stays open and one
// of a restarted host see every round, once.
func TestHostThatTrims(t *testing.T) {
	hosted(t, func(t *testing.T, r *real, srv *stub, cwd string) {
		r.stop()
		r.keep = session.Retention{MaxEvents: 30}
		r.start()
		id := r.create(session.CreateArgs{Cwd: cwd})
		var want strings.Builder
		want.WriteString("system:")
		for i := range 12 {
			r.prompt(id, frames.ModeQueue, fmt.Sprintf("round %d", i))
			time.Sleep(2 * time.Minute) // virtual; the agent stays open
			want.WriteString(fmt.Sprintf("|user:round %d|assistant:Stub answer", i))
		}
		seen := srv.requests()
		if got := roles(seen[len(seen)-1]); got != strings.TrimSuffix(want.String(), "|assistant:Stub answer") {
			t.Errorf("the open agent's model saw %s", got)
		}
		page, err := r.m.History(t.Context(), id, nil, nil, 1, 1<<20)
		if err != nil || page.First < 40 {
			t.Fatalf("the log begins at %d, %v; the check needs a trim", page.First, err)
		}
		r.stop()
		r.start()
		r.prompt(id, frames.ModeQueue, "after")
		time.Sleep(time.Minute)
		seen = srv.requests()
		if got := roles(seen[len(seen)-1]); got != want.String()+"|user:after" {
			t.Errorf("after a restart the model saw\n%s\nwant\n%s", got, want.String()+"|user:after")
		}
	})
}
