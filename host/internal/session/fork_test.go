package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// fork forks a session; it must succeed.
func (r *rig) fork(f session.ForkArgs) frames.Session {
	r.t.Helper()
	s, err := r.tryFork(f)
	if err != nil {
		r.t.Fatalf("fork: %v", err)
	}
	return s
}

func (r *rig) tryFork(f session.ForkArgs) (got frames.Session, err error) {
	n := 0
	err = r.m.Fork(r.t.Context(), f, nil, func(s frames.Session) { n++; got = s; r.pub.placed(s.SessionID) })
	if err == nil && n != 1 {
		r.t.Errorf("fork: placed was called %d times, want once", n)
	}
	return got, err
}

// ends returns the seqs of a log's turn ends.
func (r *rig) ends(sid frames.SessionID) []frames.Seq {
	var out []frames.Seq
	for _, e := range r.log(sid) {
		if e.Type == frames.TurnEndEvent {
			out = append(out, e.Seq)
		}
	}
	return out
}

// view returns the fold that the manager tells of a session.
func (r *rig) view(sid frames.SessionID) *frames.View {
	r.t.Helper()
	b, _, err := r.m.View(r.t.Context(), sid)
	if err != nil {
		r.t.Fatal(err)
	}
	v := frames.NewView()
	if err := json.Unmarshal(b, v); err != nil {
		r.t.Fatal(err)
	}
	return v
}

// A fork's log is its own first event and then the source's events, byte for byte
// but for their numbers: what agents made up too, and fields nobody knows.
func TestForkCopiesTheSource(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			return agent.Result{}, t.Emit(ctx,
				agent.Raw{Type: "acme.com/odd", Data: json.RawMessage(`{"seq":7, "upTo":1,  "x":"é"}`)},
				frames.ToolCall{CallID: "c1", Name: "sh", Input: json.RawMessage(`{"a":1.50}`)},
				frames.ToolResult{CallID: "c1"},
				frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text("done")}, Blocks: []int{t.NewBlock()}},
				frames.SessionCompacted{UpTo: 2},
			)
		})
		src := r.create(session.CreateArgs{Title: "one", Labels: map[string]string{"k": "v"}, Policy: &frames.Policy{Mode: "deny"}})
		r.prompt(src, "go", withID("p1"))
		r.wait()
		r.prompt(src, "again")
		r.wait()
		at := r.ends(src)[0]
		f := r.fork(session.ForkArgs{Session: src, At: &at, By: &frames.By{ClientID: "me"}})
		if f.Origin != frames.OriginFork || f.ParentSessionID != src || f.RootSessionID != src || f.Depth != 1 ||
			f.Title != "one" || f.Labels["k"] != "v" || f.Head != at+1 || f.State != frames.StateIdle || f.SessionID == src {
			t.Errorf("the fork is %+v", f)
		}
		own, from := r.raw(f.SessionID), r.raw(src)
		if len(own) != int(at)+1 {
			t.Fatalf("%d events, want the first and %d copies", len(own), at)
		}
		for i, e := range from[:at] {
			want, err := frames.Renumber(e.Data, 1)
			if err != nil || string(own[i+1].Data) != string(want) || own[i+1].Seq != e.Seq+1 {
				t.Errorf("event %d:\n got %s\nwant %s %v", i+2, own[i+1].Data, want, err)
			}
		}
		v := r.view(f.SessionID)
		if v.ForkedFrom == nil || *v.ForkedFrom != (frames.ForkPoint{SessionID: src, Seq: at}) || v.Origin != frames.OriginFork || v.Policy == nil || v.Policy.Mode != "deny" {
			t.Errorf("the fork folds to %+v", v)
		}
		if up := last[frames.SessionCompacted](r, f.SessionID).UpTo; up != 3 {
			t.Errorf("the compaction goes up to %d, want 3", up)
		}
		// It goes on by itself, and its source does not notice.
		before := len(r.log(src))
		r.prompt(f.SessionID, "go", withID("p1"))
		r.wait()
		if got := r.types(f.SessionID)[at+1:]; got[0] != "turn/start" || got[len(got)-1] != "turn/end" {
			t.Errorf("the fork went on with %v", got)
		}
		if n := len(r.log(src)); n != before {
			t.Errorf("the source has %d events, had %d", n, before)
		}
	})
}

// raw returns the events of a log as they are stored.
func (r *rig) raw(sid frames.SessionID) []store.Event {
	r.t.Helper()
	h, err := r.store.Head(r.t.Context(), sid)
	if err != nil {
		r.t.Fatal(err)
	}
	var out []store.Event
	for after := max(h.First, 1) - 1; after < h.Seq; after = out[len(out)-1].Seq {
		evs, err := r.store.Read(r.t.Context(), sid, after, 0, 0)
		if err != nil || len(evs) == 0 {
			r.t.Fatalf("read %s after %d: %d events, %v", sid, after, len(evs), err)
		}
		out = append(out, evs...)
	}
	return out
}

// Without a point a fork goes on from the last turn's end, also while the source
// runs; the agent of the fork reads the history of the source.
func TestForkOfARunningSession(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("hang", hang)
		src := r.create(session.CreateArgs{})
		r.prompt(src, "hello")
		r.wait()
		r.prompt(src, "hang")
		r.wait()
		f := r.fork(session.ForkArgs{Session: src, Title: "other"})
		if at := r.ends(src)[0]; f.Head != at+1 || f.Title != "other" {
			t.Errorf("the fork has %d events and the title %q, want %d and other", f.Head, f.Title, at+1)
		}
		r.prompt(f.SessionID, "more")
		r.wait()
		past, err := r.agent.last.History(r.t.Context(), 0, 100)
		if err != nil || len(past) < int(f.Head) || past[3].Type != frames.UserMessageEvent {
			t.Errorf("the fork's agent reads %d events, %v; want the source's", len(past), err)
		}
		if s, _ := r.m.Get(src); s.State != frames.StateRunning {
			t.Errorf("the source is %s, want running", s.State)
		}
	})
}

// A point that ends no turn is refused with the nearest that do; the refusal
// changes nothing.
func TestForkOnlyAtATurnsEnd(t *testing.T) {
	bubble(t, func(r *rig) {
		src := r.create(session.CreateArgs{})
		for _, at := range []*frames.Seq{nil, new(frames.Seq(1)), new(frames.Seq(9))} {
			_, err := r.tryFork(session.ForkArgs{Session: src, At: at})
			if e, ok := errors.AsType[*session.ForkPointError](err); !ok || e.Before != 0 || e.After != 0 {
				t.Errorf("no turn has ended: %v", err)
			}
		}
		for range 40 { // more than one page of the search
			r.prompt(src, "x")
			r.wait()
		}
		ends := r.ends(src)
		for _, c := range []struct{ at, before, after frames.Seq }{
			{0, 0, ends[0]},
			{1, 0, ends[0]},
			{ends[0] - 1, 0, ends[0]},
			{ends[0] + 1, ends[0], ends[1]},
			{ends[38] + 2, ends[38], ends[39]},
			{ends[39] + 1, ends[39], 0},
			{1 << 50, ends[39], 0},
		} {
			_, err := r.tryFork(session.ForkArgs{Session: src, At: &c.at})
			e, ok := errors.AsType[*session.ForkPointError](err)
			if !ok || e.Before != c.before || e.After != c.after {
				t.Errorf("at %d: %v, want before %d and after %d", c.at, err, c.before, c.after)
			}
		}
		if all, _, _ := r.m.List(session.Filter{}); len(all) != 1 {
			t.Errorf("%d sessions, want the source alone", len(all))
		}
		if _, err := r.tryFork(session.ForkArgs{Session: "nobody"}); !errors.Is(err, session.ErrNoSession) {
			t.Errorf("fork of no session: %v", err)
		}
	})
}

// The same request id returns the same fork, also when it comes at the same time,
// and after a restart.
func TestForkIsRepeatable(t *testing.T) {
	bubble(t, func(r *rig) {
		src := r.create(session.CreateArgs{})
		r.prompt(src, "x")
		r.wait()
		var mu sync.Mutex
		got := map[frames.SessionID]int{}
		for range 8 {
			r.goes(func() {
				s, err := r.tryFork(session.ForkArgs{Session: src, RequestID: "r1"})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					r.t.Error(err)
				}
				got[s.SessionID]++
			})
		}
		r.wait()
		r.restart()
		s := r.fork(session.ForkArgs{Session: src, RequestID: "r1"})
		if len(got) != 1 || got[s.SessionID] != 8 {
			t.Errorf("eight calls made %v, later %s; want one fork", got, s.SessionID)
		}
		if o := r.fork(session.ForkArgs{Session: src, RequestID: "r2"}); o.SessionID == s.SessionID {
			t.Error("another request id returned the same fork")
		}
	})
}

// What governs the source now governs the fork, whatever held at the point that
// it goes on from; what was said there stays.
func TestForkKeepsLaterRules(t *testing.T) {
	bubble(t, func(r *rig) {
		src := r.create(session.CreateArgs{Title: "first", Labels: map[string]string{"a": "1"}})
		lax := &frames.Policy{Rules: []frames.Rule{{Tool: "sh", Decision: "allow"}}}
		r.configure(session.ConfigureArgs{Session: src, Title: new("second"), Policy: lax, Options: json.RawMessage(`{"model":"old"}`)})
		r.prompt(src, "x")
		r.wait()
		at := r.ends(src)[0]
		deny := &frames.Policy{Rules: []frames.Rule{{Tool: "sh", Decision: "deny"}}}
		r.configure(session.ConfigureArgs{Session: src, Title: new("third"), Policy: deny, Budget: &frames.Budget{Turns: 9}, Options: json.RawMessage(`{"model":"new"}`)})
		f := r.fork(session.ForkArgs{Session: src, At: &at})
		v := r.view(f.SessionID)
		if f.Title != "third" || v.Title != "third" || v.Policy == nil || v.Policy.Rules[0].Decision != "deny" || v.Budget == nil || v.Budget.Turns != 9 {
			t.Errorf("the fork is %q, folds to %q with %+v and %+v; want what holds now", f.Title, v.Title, v.Policy, v.Budget)
		}
		if string(v.Options["model"]) != `"old"` {
			t.Errorf("the fork's model is %s, want the one of then", v.Options["model"])
		}
		r.agent.on("try", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			d, err := t.Ask(ctx, ask("c1", `{}`))
			if err == nil && d.Allowed() {
				err = errors.New("it was allowed")
			}
			return agent.Result{}, err
		})
		if err := r.m.Delete(r.t.Context(), nil, src, false, nil, nil); err != nil {
			t.Fatal(err)
		}
		r.prompt(f.SessionID, "try")
		r.wait()
		if o := last[frames.ApprovalDecided](r, f.SessionID); o.Outcome != frames.Rejected || o.Origin != frames.CausePolicy {
			t.Errorf("the call was %s by %s, want the source's rule to hold", o.Outcome, o.Origin)
		}
		if string(r.agent.last.Options) != `{"model":"old"}` {
			t.Errorf("the agent was opened with %s", r.agent.last.Options)
		}
	})
}

// What the source left open at the point does not go on in the fork, and the log
// of the fork says so: prompts that wait, children, tasks. Context that no turn has
// taken reaches the fork's next turn.
func TestForkClosesWhatIsNotItsOwn(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("spawn", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			if _, err := t.Task(ctx, "command", "make"); err != nil {
				return agent.Result{}, err
			}
			_, err := t.Spawn(ctx, agent.Spawn{Prompt: []frames.ContentBlock{frames.Text("hang")}})
			if err == nil {
				err = pause(ctx, second)
			}
			return agent.Result{}, err
		})
		r.agent.on("hang", hang)
		src := r.create(session.CreateArgs{})
		r.prompt(src, "spawn")
		r.wait()
		r.prompt(src, "hang", withID("waits"))
		r.prompt(src, "by the way", mode(frames.ModeInject), withID("note"))
		for len(r.ends(src)) == 0 {
			_ = pause(r.t.Context(), second)
			r.wait()
		}
		f := r.fork(session.ForkArgs{Session: src})
		v := r.view(f.SessionID)
		if len(v.Queue()) != 0 || v.Status != frames.StateIdle || v.Seq != f.Head {
			t.Errorf("the fork folds to the queue %v, %s at %d of %d", v.Queue(), v.Status, v.Seq, f.Head)
		}
		for _, c := range v.Children() {
			if c.Status == "" {
				t.Errorf("child %s still works in the fork", c.SessionID)
			}
		}
		for _, k := range v.Tasks() {
			if k.Status != "interrupted" {
				t.Errorf("task %s is %q in the fork", k.TaskID, k.Status)
			}
		}
		if len(v.Children()) != 1 || len(v.Tasks()) != 1 {
			t.Errorf("children %v, tasks %v; want the history of both", v.Children(), v.Tasks())
		}
		if all, _, _ := r.m.List(session.Filter{Parent: f.SessionID}); len(all) != 0 {
			t.Errorf("the source's child became the fork's: %v", all)
		}
		r.prompt(f.SessionID, "more", withID("waits"))
		r.wait()
		p := r.agent.prompts()
		if c := p[len(p)-1].Context; len(c) != 1 || c[0].Text != "by the way" {
			t.Errorf("the fork's turn was given the context %v", c)
		}
		r.cancel(src, "", true)
		r.wait()
	})
}

// The limits of trees hold for forks.
func TestForkWithinTheLimitsOfTrees(t *testing.T) {
	bubble(t, func(r *rig) {
		src := r.create(session.CreateArgs{})
		r.prompt(src, "x")
		r.wait()
		f := r.fork(session.ForkArgs{Session: src})
		if _, err := r.tryFork(session.ForkArgs{Session: f.SessionID}); err == nil || !strings.Contains(err.Error(), "deep") {
			t.Errorf("a fork too deep: %v", err)
		}
		r.fork(session.ForkArgs{Session: src})
		if _, err := r.tryFork(session.ForkArgs{Session: src}); err == nil || !strings.Contains(err.Error(), "want at most 3") {
			t.Errorf("a fork too many: %v", err)
		}
		r.m.Drain()
		if _, err := r.tryFork(session.ForkArgs{Session: src}); !errors.Is(err, session.ErrDraining) {
			t.Errorf("a fork while draining: %v", err)
		}
	}, func(c *session.Config) { c.MaxDepth, c.MaxTree = 1, 3 })
}

// What a fork uses counts towards the budget of its source, and its own holds from
// the first turn on, also when the source is gone.
func TestForkWithinBudgets(t *testing.T) {
	bubble(t, func(r *rig) {
		src := r.create(session.CreateArgs{Budget: &frames.Budget{Turns: 3}})
		r.prompt(src, "x")
		r.wait()
		f, g := r.fork(session.ForkArgs{Session: src}), r.fork(session.ForkArgs{Session: src})
		for range 2 {
			r.prompt(f.SessionID, "y")
			r.wait()
		}
		for _, sid := range []frames.SessionID{src, f.SessionID, g.SessionID} {
			_, err := r.tryPrompt(sid, "z")
			if e, ok := errors.AsType[*session.BudgetError](err); !ok || e.Session != src {
				t.Errorf("a prompt to %s: %v, want the budget of the source to be used up", sid, err)
			}
		}
		if _, err := r.tryFork(session.ForkArgs{Session: src}); err == nil {
			t.Error("a session whose budget is used up was forked")
		}
		if err := r.m.Delete(r.t.Context(), nil, src, false, nil, nil); err != nil {
			t.Fatal(err)
		}
		r.prompt(f.SessionID, "y")
		r.wait()
		if _, err := r.tryPrompt(f.SessionID, "z"); err == nil {
			t.Error("the fork has no budget of its own")
		}
	})
}

// Deleting the source leaves the fork as it is.
func TestForkOutlivesItsSource(t *testing.T) {
	bubble(t, func(r *rig) {
		src := r.create(session.CreateArgs{})
		r.prompt(src, "x")
		r.wait()
		f := r.fork(session.ForkArgs{Session: src})
		want := r.raw(f.SessionID)
		if err := r.m.Delete(r.t.Context(), nil, src, false, nil, nil); err != nil {
			t.Fatal(err)
		}
		r.restart()
		if got := r.raw(f.SessionID); !slices.EqualFunc(got, want, func(a, b store.Event) bool { return string(a.Data) == string(b.Data) }) {
			t.Error("the fork's log changed")
		}
		r.prompt(f.SessionID, "y")
		r.wait()
		if got := said(r, f.SessionID); !slices.Equal(got, []string{"x", "y"}) {
			t.Errorf("the fork's turns are %v", got)
		}
	})
}
