package session_test

import (
	"context"
	"slices"
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
