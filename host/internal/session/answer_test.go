package session_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/pending"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// A rejection, an answer and the dismissal of a question are acknowledged once
// they are in the log, before anything of them is published; what the agent does
// upon them comes after.
func TestAnswersAreAcknowledgedOnceStored(t *testing.T) {
	for name, give := range map[string]pending.Answer{
		"rejected":  {Kind: pending.KindApproval, Outcome: frames.Rejected},
		"allowed":   {Kind: pending.KindApproval, Outcome: frames.AllowedOnce},
		"answered":  {Kind: pending.KindQuestion, Answers: []frames.Answer{{ID: "1", Text: "yes"}}},
		"dismissed": {Kind: pending.KindQuestion, Cancel: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
					var err error
					if give.Kind == pending.KindApproval {
						_, err = t.Ask(ctx, ask("c1", `{}`))
					} else {
						_, err = t.Question(ctx, frames.Question{Question: "Well?"})
					}
					if err != nil {
						return agent.Result{}, err
					}
					return agent.Result{}, t.Emit(ctx, frames.TodoWrite{})
				})
				sid := r.create(session.CreateArgs{})
				r.prompt(sid, "go")
				r.wait()
				r.disk.set(func(d *disk) {
					d.before = func([]store.Event) {
						if s := r.pub.script(); s[len(s)-1] == "placed "+string(sid) {
							t.Errorf("it was acknowledged before it was stored: %v", s)
						}
					}
				})
				give.Session, give.ID = sid, pendingID(r.m.Pending(sid)[0])
				if err := r.m.Answer(r.t.Context(), give, func() { r.pub.placed(sid) }); err != nil {
					t.Fatal(err)
				}
				r.disk.set(func(d *disk) { d.before = nil })
				r.wait()
				script, kind := r.pub.script(), string(give.Kind)
				i := slices.Index(script, kind+"/decided "+string(sid))
				want := []string{"placed " + string(sid), kind + "/decided " + string(sid), kind + "/resolved " + string(sid), "todo/write " + string(sid)}
				if i < 1 || !slices.Equal(script[i-1:i+3], want) {
					t.Errorf("order %v, want %v", script, want)
				}
			})
		})
	}
}

func pendingID(f frames.Frame) frames.RequestID {
	switch f := f.(type) {
	case *frames.ApprovalRequested:
		return f.ID
	case *frames.QuestionRequested:
		return f.ID
	}
	return ""
}

// Over a crash and a restart a client whose acknowledgement was lost is told that
// its own answer stood; another session's client is not.
func TestLateAnswerIsToldOverARestart(t *testing.T) {
	for name, again := range map[string]func(r *rig){"crash": (*rig).crash, "restart": (*rig).restart} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
					if _, err := t.Ask(ctx, ask("c1", `{}`)); err != nil {
						return agent.Result{}, err
					}
					return hang(ctx, t, agent.Prompt{})
				})
				sid, other := r.create(session.CreateArgs{}), r.create(session.CreateArgs{})
				r.prompt(sid, "go")
				r.wait()
				id := r.approvals(sid)[0].ID
				if err := r.answer(sid, id, frames.AllowedOnce); err != nil {
					t.Fatal(err)
				}
				r.wait()
				again(r)
				e, ok := errors.AsType[*pending.NotPendingError](r.answer(sid, id, frames.AllowedOnce))
				if !ok || e.Settled == nil || e.Settled.Outcome != frames.AllowedOnce || e.Settled.Cause != frames.CauseReply || e.Settled.By.ClientID != "c1" {
					t.Errorf("late answer: %v, want that it stood", e)
				}
				for _, sid := range []frames.SessionID{other, "none"} {
					if e, ok := errors.AsType[*pending.NotPendingError](r.answer(sid, id, frames.AllowedOnce)); !ok || e.Settled != nil {
						t.Errorf("under %s: %v, want nothing said of how it ended", sid, e)
					}
				}
			})
		})
	}
}

// A page of the last events that fit reads little more than it returns.
func TestLastPageReadsWhatItReturns(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		bg := func() agent.Background { return r.agent.last.Background }
		r.prompt(sid, "hello")
		r.wait()
		for range 300 {
			if err := bg().Emit(r.t.Context(), frames.ContextMessage{Content: []frames.ContentBlock{frames.Text(strings.Repeat("x", 100<<10))}}); err != nil {
				t.Fatal(err)
			}
		}
		r.disk.set(func(d *disk) { d.bytes = 0 })
		p, err := r.m.History(r.t.Context(), sid, nil, nil, 1000, 512<<10)
		if err != nil || len(p.Events) != 5 || p.Events[4].Seq != p.Head || !p.More {
			t.Errorf("%d events, more %v, %v; want the last 5", len(p.Events), p.More, err)
		}
		r.disk.set(func(d *disk) {
			if d.bytes > 3<<20 {
				t.Errorf("read %d bytes for a page of 512 KiB", d.bytes)
			}
		})
	})
}
