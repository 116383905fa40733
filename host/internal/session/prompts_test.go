package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
)

// said returns the prompts that became turns, in order.
func said(r *rig, sid frames.SessionID) []string {
	var out []string
	for _, m := range every[frames.UserMessage](r, sid) {
		out = append(out, m.Content[0].Text)
	}
	return out
}

// The same prompt id runs one turn and gets the first answer again: at once,
// later, after a restart, and where the session is cold.
func TestPromptIDRunsOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		first := r.prompt(sid, "hello", withID("p1"))
		r.wait()
		if again := r.prompt(sid, "hello", withID("p1")); again != first {
			t.Errorf("again = %+v, want %+v", again, first)
		}
		r.restart()
		if again := r.prompt(sid, "hello", withID("p1")); again != first {
			t.Errorf("after a restart = %+v, want %+v", again, first)
		}
		r.wait()
		if got := said(r, sid); len(got) != 1 {
			t.Errorf("turns for %v, want one", got)
		}
		if slices.ContainsFunc(r.pub.script(), func(s string) bool { return strings.HasPrefix(s, "live") }) {
			t.Error("a repeated prompt woke the session")
		}
	})
}

// A prompt id that comes again with another content or mode is a conflict.
func TestPromptIDConflicts(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "hello", withID("p1"))
		if _, err := r.tryPrompt(sid, "other", withID("p1")); !errors.Is(err, session.ErrPromptConflict) {
			t.Errorf("other content: %v, want ErrPromptConflict", err)
		}
		if _, err := r.tryPrompt(sid, "hello", withID("p1"), mode(frames.ModeSteer)); !errors.Is(err, session.ErrPromptConflict) {
			t.Errorf("other mode: %v, want ErrPromptConflict", err)
		}
	})
}

// Two clients that send the same prompt id at the same time start one turn.
func TestPromptIDRaces(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		answers := make(chan session.PromptAnswer, 8)
		for range cap(answers) {
			r.goes(func() { answers <- r.prompt(sid, "hello", withID("p1")) })
		}
		first := <-answers
		for range cap(answers) - 1 {
			if a := <-answers; a != first {
				t.Errorf("answer = %+v, want %+v", a, first)
			}
		}
		r.wait()
		if got := said(r, sid); len(got) != 1 {
			t.Errorf("turns for %v, want one", got)
		}
	})
}

// Prompts wait their turn in order, and each start is one step with the end of
// the wait.
func TestQueueRunsInOrder(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("first", func(ctx context.Context, _ agent.Turn, _ agent.Prompt) (agent.Result, error) {
			return agent.Result{}, pause(ctx, second)
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "first")
		a := r.prompt(sid, "second")
		r.prompt(sid, "third")
		if !a.Queued {
			t.Errorf("answer = %+v, want queued", a)
		}
		time.Sleep(2 * second)
		r.wait()
		if got, want := said(r, sid), []string{"first", "second", "third"}; !slices.Equal(got, want) {
			t.Errorf("turns for %v, want %v", got, want)
		}
		i := slices.Index(r.types(sid), "prompt/dequeued")
		if got := r.types(sid)[i : i+3]; !slices.Equal(got, []string{"prompt/dequeued", "turn/start", "user/message"}) {
			t.Errorf("the second turn begins with %v", got)
		}
		if e := r.log(sid)[i+1]; e.TurnID != a.Turn {
			t.Errorf("the second turn is %s, want %s as answered", e.TurnID, a.Turn)
		}
	})
}

// The event of a waiting prompt names the turn that it will be, or that is to take
// it, so that whoever sees it can cancel it, not only who sent it.
func TestQueuedPromptNamesItsTurn(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("first", hang)
		r.agent.steer = func(ctx context.Context, _ agent.Prompt) error { <-ctx.Done(); return agent.ErrNotTaken }
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "first")
		want := []frames.TurnID{r.prompt(sid, "second").Turn, r.prompt(sid, "left", mode(frames.ModeSteer)).Turn}
		var got []frames.TurnID
		for _, e := range r.log(sid) {
			if e.Type == frames.PromptQueuedEvent {
				got = append(got, e.TurnID)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("the queued events name the turns %q, want %q as answered", got, want)
		}
		r.cancel(sid, got[0], false)
		if d := last[frames.PromptDequeued](r, sid); d.Reason != "cancelled" {
			t.Errorf("dequeued %+v, want cancelled", d)
		}
	})
}

// What waited when the host died runs when the session wakes, before what woke
// it.
func TestQueueSurvivesACrash(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("first", hang)
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "first")
		r.prompt(sid, "second", withID("p2"))
		r.wait()
		r.crash()
		r.prompt(sid, "third")
		r.wait()
		if got, want := said(r, sid), []string{"first", "second", "third"}; !slices.Equal(got, want) {
			t.Errorf("turns for %v, want %v", got, want)
		}
	})
}

// A full queue refuses, and what is refused changes nothing.
func TestQueueIsBounded(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("first", hang)
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "first")
		for i := range 3 {
			r.prompt(sid, fmt.Sprint(i))
		}
		head := len(r.log(sid))
		if _, err := r.tryPrompt(sid, "more"); !errors.Is(err, session.ErrQueueFull) {
			t.Errorf("err = %v, want ErrQueueFull", err)
		}
		if got := len(r.log(sid)); got != head {
			t.Errorf("head = %d, want %d", got, head)
		}
	}, func(c *session.Config) { c.MaxQueue = 3 })
}

// A steer that the agent takes is part of the running turn, and says so only
// when it was taken.
func TestSteerIsTaken(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", hang)
		taken := make(chan string, 1)
		r.agent.steer = func(_ context.Context, p agent.Prompt) error { taken <- p.Text(); return nil }
		sid := r.create(session.CreateArgs{})
		a := r.prompt(sid, "go")
		r.wait()
		s := r.prompt(sid, "left", mode(frames.ModeSteer))
		r.wait()
		if got := <-taken; got != "left" {
			t.Errorf("the agent got %q, want left", got)
		}
		if s.Turn != a.Turn {
			t.Errorf("the steer went to %s, want the running turn %s", s.Turn, a.Turn)
		}
		r.wantTypes(sid, "turn/start", "user/message", "prompt/queued", "steering/message", "prompt/dequeued")
		if d := last[frames.PromptDequeued](r, sid); d.Reason != "steered" {
			t.Errorf("dequeued %q, want steered", d.Reason)
		}
	})
}

// A steer that is not taken becomes the next prompt with the same id, before
// prompts that came earlier or later (never overtaken at the end of a turn).
func TestSteerNotTakenComesNext(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", func(ctx context.Context, _ agent.Turn, _ agent.Prompt) (agent.Result, error) {
			return agent.Result{}, pause(ctx, second)
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.prompt(sid, "queued")
		r.wait()
		r.prompt(sid, "steer1", mode(frames.ModeSteer), withID("s1"))
		r.prompt(sid, "steer2", mode(frames.ModeSteer))
		time.Sleep(second)
		r.prompt(sid, "late")
		time.Sleep(second)
		r.wait()
		if got, want := said(r, sid), []string{"go", "steer1", "steer2", "queued", "late"}; !slices.Equal(got, want) {
			t.Errorf("turns for %v, want %v", got, want)
		}
		if m := every[frames.UserMessage](r, sid)[1]; m.PromptID != "s1" {
			t.Errorf("the steer runs as %s, want s1", m.PromptID)
		}
	})
}

// A steer that no running turn meets starts a turn.
func TestSteerOfAnIdleSessionStartsATurn(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "left", mode(frames.ModeSteer))
		r.wait()
		r.wantTypes(sid, "turn/start", "user/message", "assistant/message", "turn/end")
	})
}

// A steer that is not taken when its turn is cancelled is dropped.
func TestSteerOfACancelledTurnIsDropped(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", hang)
		r.agent.steer = func(ctx context.Context, _ agent.Prompt) error { <-ctx.Done(); return agent.ErrNotTaken }
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		r.prompt(sid, "left", mode(frames.ModeSteer), withID("s1"))
		r.wait()
		r.cancel(sid, "", true)
		r.wait()
		if d := last[frames.PromptDequeued](r, sid); d.PromptID != "s1" || d.Reason != "cancelled" {
			t.Errorf("dequeued %+v, want s1 cancelled", d)
		}
		if got := said(r, sid); len(got) != 1 {
			t.Errorf("turns for %v, want one", got)
		}
	})
}

// Injected context runs nothing, and reaches the agent with the next prompt,
// once, also after a restart.
func TestInjectWaitsForTheNextPrompt(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "context", mode(frames.ModeInject))
		r.wait()
		r.wantTypes(sid, "context/message")
		r.restart()
		r.prompt(sid, "one")
		r.wait()
		r.prompt(sid, "two")
		r.wait()
		ps := r.agent.prompts()
		if len(ps) != 2 || len(ps[0].Context) != 1 || ps[0].Context[0].Text != "context" || len(ps[1].Context) != 0 {
			t.Errorf("the agent got %+v, want the context with the first prompt only", ps)
		}
	})
}

// A prompt too large to be an event is refused with what to do.
func TestLargePromptIsRefused(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		for _, text := range []string{strings.Repeat("x", 193<<10), strings.Repeat("\x01", 64<<10)} {
			_, err := r.tryPrompt(sid, text)
			if !errors.Is(err, session.ErrTooLarge) || !strings.Contains(err.Error(), "blob.write") {
				t.Errorf("%d bytes: err = %v, want ErrTooLarge with what to do", len(text), err)
			}
		}
		r.prompt(sid, strings.Repeat("y", 192<<10))
	})
}

// A session that has used its turns takes no more prompts until its budget is
// raised.
func TestBudgetBlocksPrompts(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{Budget: &frames.Budget{Turns: 1}})
		r.prompt(sid, "one")
		r.wait()
		_, err := r.tryPrompt(sid, "two")
		if e, ok := errors.AsType[*session.BudgetError](err); !ok || e.What != "turns" {
			t.Errorf("err = %v, want a BudgetError of turns", err)
		}
		r.configure(session.ConfigureArgs{Session: sid, Budget: &frames.Budget{Turns: 2}})
		r.prompt(sid, "three")
	})
}
