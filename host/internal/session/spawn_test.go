package session_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// spawns is a turn that starts a child for each text and waits for them.
func spawns(texts ...string) turnFunc {
	return func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
		var kids []agent.Child
		for _, text := range texts {
			k, err := t.Spawn(ctx, agent.Spawn{Call: "c1", Prompt: []frames.ContentBlock{frames.Text(text)}})
			if err != nil {
				return agent.Result{}, err
			}
			kids = append(kids, k)
		}
		for _, k := range kids {
			if _, err := k.Wait(ctx); err != nil {
				return agent.Result{}, err
			}
		}
		return agent.Result{}, nil
	}
}

// children returns the ids of a session's children, oldest first.
func (r *rig) children(sid frames.SessionID) []frames.SessionID {
	ss, _, err := r.m.List(session.Filter{Parent: sid})
	if err != nil {
		r.t.Fatal(err)
	}
	var out []frames.SessionID
	for _, s := range slices.Backward(ss) {
		out = append(out, s.SessionID)
	}
	return out
}

// A child has its parent's lineage, agent, cwd and policy; it is announced
// before its first event, and its end is in the parent's log before the turn
// that waits goes on.
func TestSpawnTellsBothLogs(t *testing.T) {
	bubble(t, func(r *rig) {
		var res agent.ChildResult
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			k, err := t.Spawn(ctx, agent.Spawn{Call: "c1", Title: "kid", Prompt: []frames.ContentBlock{frames.Text("work")}})
			if err != nil {
				return agent.Result{}, err
			}
			res, err = k.Wait(ctx)
			return agent.Result{}, err
		})
		sid := r.create(session.CreateArgs{Policy: &frames.Policy{AskTimeoutMs: 5000}})
		r.prompt(sid, "go")
		r.wait()
		r.wantTypes(sid, "turn/start", "user/message", "agent/spawned", "agent/completed", "turn/end")
		kid := r.children(sid)[0]
		s, _ := r.m.Get(kid)
		if s.ParentSessionID != sid || s.RootSessionID != sid || s.Depth != 1 || s.Origin != frames.OriginSubagent || s.Cwd == "" || s.Title != "kid" {
			t.Errorf("child = %+v", s)
		}
		if p := last[frames.SessionCreated](r, kid); p.Policy == nil || p.Policy.AskTimeoutMs != 5000 || p.CallID != "c1" {
			t.Errorf("created = %+v, want the parent's policy and the call", p)
		}
		if st := last[frames.TurnStart](r, kid); st.Trigger != "spawn" {
			t.Errorf("trigger = %q, want spawn", st.Trigger)
		}
		if res.Reason != frames.TurnCompleted || len(res.Result) != 1 || res.Result[0].Text != "work" {
			t.Errorf("result = %+v, want the child's last message", res)
		}
		script := r.pub.script()
		spawned := slices.Index(script, "agent/spawned "+string(sid))
		added := slices.Index(script, "add "+string(kid))
		first := slices.IndexFunc(script, func(s string) bool { return s == "turn/start "+string(kid) })
		if spawned < 0 || added < spawned || first < added {
			t.Errorf("spawned at %d, added at %d, first event at %d of %v", spawned, added, first, script)
		}
	})
}

// A cancel reaches grandchildren, and every turn ends after those below it.
func TestCancelCascades(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", spawns("mid"))
		r.agent.on("mid", spawns("leaf"))
		var leaf agent.Decision
		r.agent.on("leaf", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			var err error
			leaf, err = t.Ask(ctx, ask("c1", `{}`))
			<-ctx.Done()
			time.Sleep(second)
			return agent.Result{}, err
		})
		sid := r.create(session.CreateArgs{})
		a := r.prompt(sid, "go")
		r.wait()
		mid := r.children(sid)[0]
		low := r.children(mid)[0]
		if st := r.pub.status(sid); st.PendingBelow != 1 || st.Pending != 0 || st.State != frames.StateRunning {
			t.Errorf("root status %+v, want running with one pending below", st)
		}
		if ps := r.approvals(sid); len(ps) != 1 || ps[0].SessionID != low || ps[0].Depth != 2 || ps[0].RootSessionID != sid {
			t.Errorf("pending of the root's tree: %+v, want the grandchild's", ps)
		}
		r.cancel(sid, a.Turn, true)
		time.Sleep(2 * second)
		r.wait()
		for _, s := range []frames.SessionID{sid, mid, low} {
			if end := last[frames.TurnEnd](r, s); end.Reason != frames.TurnCancelled {
				t.Errorf("%s ended %+v, want cancelled", s, end)
			}
		}
		if leaf.Outcome != frames.Cancelled || leaf.Cause != frames.CauseCascade {
			t.Errorf("the grandchild's ask got %+v, want cancelled/cascade", leaf)
		}
		var ends []string
		for _, s := range r.pub.script() {
			if after, ok := strings.CutPrefix(s, "turn/end "); ok {
				ends = append(ends, after)
			}
		}
		if want := []string{string(low), string(mid), string(sid)}; !slices.Equal(ends, want) {
			t.Errorf("turns ended in order %v, want %v", ends, want)
		}
		if st := r.pub.status(sid); st.PendingBelow != 0 || st.State != frames.StateIdle {
			t.Errorf("root status %+v, want idle with nothing pending", st)
		}
		if c := last[frames.AgentCompleted](r, sid); c.Status != "cancelled" {
			t.Errorf("completed %+v, want cancelled", c)
		}
	})
}

// Without tree a cancel ends only the session's own turn; its child goes on and
// its end is told when it comes.
func TestCancelWithoutTreeSparesChildren(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", spawns("kid"))
		r.agent.on("kid", func(ctx context.Context, _ agent.Turn, _ agent.Prompt) (agent.Result, error) {
			return agent.Result{}, pause(ctx, 5*second)
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		r.cancel(sid, "", false)
		r.wait()
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCancelled {
			t.Errorf("ended %+v, want cancelled at once", end)
		}
		time.Sleep(6 * second)
		r.wait()
		if c := last[frames.AgentCompleted](r, sid); c.Status != "completed" {
			t.Errorf("completed %+v, want completed", c)
		}
	})
}

// A spawn under a cancelled turn is refused.
func TestSpawnAfterCancelIsRefused(t *testing.T) {
	bubble(t, func(r *rig) {
		refused := make(chan error, 1)
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			<-ctx.Done()
			_, err := t.Spawn(context.WithoutCancel(ctx), agent.Spawn{Prompt: []frames.ContentBlock{frames.Text("kid")}})
			refused <- err
			return agent.Result{}, nil
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		r.cancel(sid, "", true)
		r.wait()
		if err := <-refused; err == nil {
			t.Error("a cancelled turn started a child")
		}
		if kids := r.children(sid); len(kids) != 0 {
			t.Errorf("children = %v, want none", kids)
		}
	})
}

// A crash of the parent's agent cancels its children.
func TestCrashCascades(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			if _, err := t.Spawn(ctx, agent.Spawn{Prompt: []frames.ContentBlock{frames.Text("kid")}}); err != nil {
				return agent.Result{}, err
			}
			panic("boom")
		})
		r.agent.on("kid", hang)
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		kid := r.children(sid)[0]
		if end := last[frames.TurnEnd](r, kid); end.Reason != frames.TurnCancelled {
			t.Errorf("the child ended %+v, want cancelled", end)
		}
		r.wantTypes(sid, "turn/start", "user/message", "agent/spawned", "agent/completed", "turn/end")
	})
}

// Trees have limits, and what goes beyond is told to the agent.
func TestTreesAreBounded(t *testing.T) {
	bubble(t, func(r *rig) {
		errs := make(chan error, 8)
		r.agent.on("deep", func(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
			k, err := t.Spawn(ctx, agent.Spawn{Prompt: p.Content})
			if err != nil {
				errs <- err
				return agent.Result{}, nil
			}
			_, err = k.Wait(ctx)
			return agent.Result{}, err
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "deep")
		r.wait()
		if err := <-errs; err == nil || !strings.Contains(err.Error(), "at most 2") {
			t.Errorf("err = %v, want the limit", err)
		}
		if ss, _, _ := r.m.List(session.Filter{Tree: sid}); len(ss) != 3 {
			t.Errorf("%d sessions in the tree, want 3", len(ss))
		}
	}, func(c *session.Config) { c.MaxDepth = 2 })
}

// A child whose parent is cancelled while it is being made runs nothing.
func TestCancelReachesAChildBeingMade(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", spawns("kid"))
		r.agent.on("kid", hang)
		sid := r.create(session.CreateArgs{})
		r.disk.set(func(d *disk) {
			d.before = func(evs []store.Event) {
				if evs[0].Type == string(frames.SessionCreatedEvent) {
					r.cancel(sid, "", true)
				}
			}
		})
		r.prompt(sid, "go")
		r.wait()
		kid := r.children(sid)[0]
		for _, s := range []frames.SessionID{kid, sid} {
			if end := last[frames.TurnEnd](r, s); end.Reason != frames.TurnCancelled {
				t.Errorf("%s ended %+v, want cancelled", s, end)
			}
		}
		if ps := r.agent.prompts(); len(ps) != 1 {
			t.Errorf("%d turns reached the agent, want the parent's only", len(ps))
		}
	})
}
