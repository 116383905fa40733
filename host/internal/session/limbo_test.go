package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// blindfold makes the outcome of the next append unknown, also afterwards, until
// the rig can see again.
func (r *rig) blindfold(landed bool) {
	r.disk.set(func(d *disk) {
		d.blind = store.ErrUnknown
		if d.lost = store.ErrUnknown; landed {
			d.lost, d.landed = nil, store.ErrUnknown
		}
	})
}

func (r *rig) see() {
	r.disk.set(func(d *disk) { d.blind = nil })
	time.Sleep(time.Minute)
	r.wait()
}

// eachOutcome runs f for an append that landed and for one that did not.
func eachOutcome(t *testing.T, f func(r *rig, landed bool)) {
	for _, landed := range []bool{true, false} {
		t.Run(fmt.Sprint("landed=", landed), func(t *testing.T) { bubble(t, func(r *rig) { f(r, landed) }) })
	}
}

// A request of which it is not known whether it was stored is shown to nobody;
// if it was, the log tells its end.
func TestRequestInLimboIsNotShown(t *testing.T) {
	eachOutcome(t, func(r *rig, landed bool) {
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			r.blindfold(landed)
			d, err := t.Ask(ctx, ask("c1", `{}`))
			if err != nil || d.Outcome != frames.Unavailable {
				r.t.Errorf("decision %+v, %v; want unavailable", d, err)
			}
			return agent.Result{}, err
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		r.see()
		if n := len(framesOf[*frames.ApprovalRequested](r.pub, sid)); n != 0 || len(r.approvals(sid)) != 0 {
			r.t.Errorf("%d requests were shown, want none", n)
		}
		asked, decided := every[frames.ApprovalAsked](r, sid), every[frames.ApprovalDecided](r, sid)
		if len(asked) != len(decided) || landed && len(asked) != 1 {
			r.t.Errorf("%d asked and %d decided: %v", len(asked), len(decided), r.types(sid))
		}
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnError {
			r.t.Errorf("end %+v, want error", end)
		}
	})
}

// An answer of which it is not known whether it was stored is in the log once,
// and told once; an allow took no effect, and the log says that last.
func TestAnswerInLimboIsToldOnce(t *testing.T) {
	for _, o := range []frames.Outcome{frames.Rejected, frames.AllowedOnce} {
		eachOutcome(t, func(r *rig, landed bool) {
			got := make(chan agent.Decision, 1)
			r.agent.on("go", asks(`{}`, got))
			sid := r.create(session.CreateArgs{})
			r.prompt(sid, "go")
			r.wait()
			r.blindfold(landed)
			if err := r.answer(sid, r.approvals(sid)[0].ID, o); !errors.Is(err, store.ErrUnknown) {
				r.t.Errorf("answer: %v, want ErrUnknown", err)
			}
			d := <-got
			r.see()
			want := o
			if o.Allows() {
				want = frames.Unavailable
			}
			ds := every[frames.ApprovalDecided](r, sid)
			if d.Outcome != want || ds[len(ds)-1].Outcome != want || !o.Allows() && len(ds) != 1 {
				r.t.Errorf("the agent got %s, the log says %+v; want %s last", d.Outcome, ds, want)
			}
			if res := framesOf[*frames.ApprovalResolved](r.pub, sid); len(res) != 1 || res[0].Outcome != want {
				r.t.Errorf("resolved %+v, want %s once", res, want)
			}
		})
	}
}

// A child and a task of which it is not known whether they were stored do not
// leave the session busy for ever.
func TestWorkInLimboEnds(t *testing.T) {
	eachOutcome(t, func(r *rig, landed bool) {
		r.agent.on("child", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			r.blindfold(landed)
			_, err := t.Spawn(ctx, agent.Spawn{Prompt: []frames.ContentBlock{frames.Text("kid")}})
			return agent.Result{}, err
		})
		r.agent.on("task", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			r.blindfold(landed)
			_, err := t.Task(ctx, "build", "make")
			return agent.Result{}, err
		})
		sid := r.create(session.CreateArgs{})
		for _, text := range []string{"child", "task"} {
			r.prompt(sid, text)
			r.wait()
			r.see()
		}
		if a, b := len(every[frames.AgentSpawned](r, sid)), len(every[frames.AgentCompleted](r, sid)); a != b || landed && a != 1 {
			r.t.Errorf("%d children started, %d ended", a, b)
		}
		if a, b := len(every[frames.TaskStarted](r, sid)), len(every[frames.TaskCompleted](r, sid)); a != b || landed && a != 1 {
			r.t.Errorf("%d tasks started, %d ended", a, b)
		}
		time.Sleep(10 * time.Minute)
		r.wait()
		if opened, closed := r.agent.count(); opened != closed {
			r.t.Errorf("opened %d, closed %d agents: the session is not idle", opened, closed)
		}
	})
}

// A queued prompt whose start is in limbo runs once, also if it was stored.
func TestStartInLimboRunsOnce(t *testing.T) {
	eachOutcome(t, func(r *rig, landed bool) {
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			err := pause(ctx, second)
			return agent.Result{}, err
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.prompt(sid, "queued")
		r.disk.set(func(d *disk) {
			d.before = func(evs []store.Event) {
				if evs[0].Type == string(frames.PromptDequeuedEvent) {
					r.disk.set(func(d *disk) { d.before = nil })
					r.blindfold(landed)
				}
			}
		})
		time.Sleep(2 * second)
		r.see()
		if got := said(r, sid); !slices.Equal(got, []string{"go", "queued"}) {
			r.t.Errorf("turns for %v, want go and queued", got)
		}
		if n := len(r.agent.prompts()); n != 2 {
			r.t.Errorf("the agent ran %d turns, want 2", n)
		}
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCompleted {
			r.t.Errorf("end %+v, want completed", end)
		}
	})
}

// A turn whose end is in limbo while the host goes down ends once, and the host
// goes down in good order.
func TestTurnEndInLimboAtShutdown(t *testing.T) {
	for blinks := range 6 {
		eachOutcome(t, func(r *rig, landed bool) {
			r.agent.on("go", hang)
			sid := r.create(session.CreateArgs{})
			r.prompt(sid, "go")
			r.wait()
			r.disk.set(func(d *disk) {
				d.before = func(evs []store.Event) {
					if evs[len(evs)-1].Type != string(frames.TurnEndEvent) {
						return
					}
					r.disk.set(func(d *disk) {
						d.before, d.blinks = nil, blinks
						if d.lost = store.ErrUnknown; landed {
							d.lost, d.landed = nil, store.ErrUnknown
						}
					})
				}
			})
			r.restart()
			if ends := every[frames.TurnEnd](r, sid); len(ends) != 1 || ends[0].Reason != frames.TurnInterrupted {
				r.t.Errorf("blinks %d: ends %+v, want interrupted once", blinks, ends)
			}
		})
	}
}

// A session of which it is not known whether it was stored is found by the request
// id that made it; there is one, whether it was or not.
func TestSessionInLimboIsFoundByItsRequestID(t *testing.T) {
	eachOutcome(t, func(r *rig, landed bool) {
		r.blindfold(landed)
		err := r.m.Create(r.t.Context(), session.CreateArgs{Cwd: r.dir, RequestID: "r1"}, func(frames.Session) { r.t.Error("it was acknowledged") })
		if !errors.Is(err, store.ErrUnknown) {
			r.t.Errorf("create: %v, want ErrUnknown", err)
		}
		r.see()
		sid := r.create(session.CreateArgs{RequestID: "r1"})
		r.prompt(sid, "hello")
		r.wait()
		if got := said(r, sid); len(got) != 1 {
			r.t.Errorf("turns for %v, want hello", got)
		}
		r.restart()
		if ss, _, _ := r.m.List(session.Filter{}); len(ss) != 1 || ss[0].SessionID != sid {
			r.t.Errorf("sessions %+v, want the one", ss)
		}
		if err := r.m.Delete(r.t.Context(), nil, sid, true, nil, nil); err != nil {
			r.t.Error(err)
		}
		if again := r.create(session.CreateArgs{RequestID: "r1"}); again == sid {
			r.t.Errorf("the deleted session %s came back", sid)
		}
	})
}
