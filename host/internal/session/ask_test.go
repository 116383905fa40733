package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/pending"
	"github.com/muxhost/muxhost/host/internal/session"
)

// asks is a turn that asks once and hands out the decision.
func asks(input string, got chan<- agent.Decision) turnFunc {
	return func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
		d, err := t.Ask(ctx, ask("c1", input))
		got <- d
		return agent.Result{}, err
	}
}

// Nobody answers: at the deadline it is a rejection, durable, and the turn goes
// on.
func TestApprovalTimesOut(t *testing.T) {
	bubble(t, func(r *rig) {
		got := make(chan agent.Decision, 1)
		r.agent.on("go", asks(`{}`, got))
		sid := r.create(session.CreateArgs{Policy: &frames.Policy{AskTimeoutMs: 60_000}})
		start := time.Now()
		r.prompt(sid, "go")
		d := <-got
		if d.Outcome != frames.Rejected || d.Cause != frames.CauseTimeout || time.Since(start) != time.Minute {
			t.Errorf("after %v: %+v, want rejected/timeout after a minute", time.Since(start), d)
		}
		r.wait()
		r.wantTypes(sid, "turn/start", "user/message", "approval/asked", "approval/decided", "turn/end")
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCompleted {
			t.Errorf("end %+v, want completed", end)
		}
		if res := framesOf[*frames.ApprovalResolved](r.pub, sid); len(res) != 1 || res[0].Origin != frames.CauseTimeout {
			t.Errorf("resolved %+v, want timeout", res)
		}
	})
}

// Fifty answers at once: one wins, the agent hears one, everybody else is told
// that it is not pending.
func TestOneAnswerWins(t *testing.T) {
	bubble(t, func(r *rig) {
		got := make(chan agent.Decision, 50)
		r.agent.on("go", asks(`{}`, got))
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		id := r.approvals(sid)[0].ID
		errs := make(chan error, 50)
		for i := range cap(errs) {
			o := frames.AllowedOnce
			if i%2 == 1 {
				o = frames.Rejected
			}
			r.goes(func() { errs <- r.answer(sid, id, o) })
		}
		won, late := 0, 0
		for range cap(errs) {
			err := <-errs
			if _, ok := errors.AsType[*pending.NotPendingError](err); ok {
				late++
			} else if err == nil {
				won++
			}
		}
		r.wait()
		if won != 1 || late != 49 || len(got) != 1 {
			t.Errorf("%d won, %d came late, the agent heard %d; want 1, 49, 1", won, late, len(got))
		}
		if res := framesOf[*frames.ApprovalResolved](r.pub, sid); len(res) != 1 {
			t.Errorf("%d resolved frames, want one", len(res))
		}
	})
}

// An answer to one of two requests leaves the other pending.
func TestAnswerNamesItsRequest(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			r.goes(func() { _, _ = t.Ask(ctx, ask("a", `{}`)) })
			_, err := t.Ask(ctx, ask("b", `{}`))
			<-ctx.Done()
			return agent.Result{}, err
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		as := r.approvals(sid)
		if err := r.answer(sid, as[1].ID, frames.Rejected); err != nil {
			t.Fatal(err)
		}
		r.wait()
		if left := r.approvals(sid); len(left) != 1 || left[0].ID != as[0].ID {
			t.Errorf("pending %+v, want the first", left)
		}
		if _, err := r.tryPrompt("other", "x"); !errors.Is(err, session.ErrNoSession) {
			t.Errorf("unknown session: %v", err)
		}
		if err := r.answer("other", as[0].ID, frames.Rejected); err == nil {
			t.Error("an answer under another session was taken")
		}
	})
}

// Rules decide before anybody is asked, with both audit events and no frames.
func TestRulesDecideUnasked(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy frames.Policy
		want   frames.Outcome
	}{
		{"allow", frames.Policy{Rules: []frames.Rule{{Tool: "sh", Decision: "allow"}}}, frames.AllowedOnce},
		{"deny first", frames.Policy{Rules: []frames.Rule{{Tool: "sh", Decision: "allow"}, {Tool: "*", Decision: "deny"}}}, frames.Rejected},
		{"mode deny", frames.Policy{Mode: "deny"}, frames.Rejected},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				got := make(chan agent.Decision, 1)
				r.agent.on("go", asks(`{"a":1}`, got))
				sid := r.create(session.CreateArgs{Policy: &tt.policy})
				r.prompt(sid, "go")
				d := <-got
				if d.Outcome != tt.want || d.Cause != frames.CausePolicy || d.Allowed() != tt.want.Allows() {
					t.Errorf("decision %+v, want %s/policy", d, tt.want)
				}
				r.wait()
				r.wantTypes(sid, "turn/start", "user/message", "approval/asked", "approval/decided", "turn/end")
				if n := len(framesOf[frames.Frame](r.pub, sid)); n != 0 {
					t.Errorf("%d frames, want none", n)
				}
			})
		})
	}
}

// Input that is not I-JSON is rejected unasked, and the agent is told why.
func TestInputThatIsNotIJSONIsRejected(t *testing.T) {
	for _, in := range []string{`{"n":9007199254740993}`, `{"a":1,"a":2}`, "{\"a\":\"\xff\"}", `{"a":"\ud800"}`, `{`, ``} {
		bubble(t, func(r *rig) {
			got := make(chan agent.Decision, 1)
			r.agent.on("go", asks(in, got))
			sid := r.create(session.CreateArgs{})
			r.prompt(sid, "go")
			d := <-got
			if d.Outcome != frames.Rejected || d.Cause != frames.CausePolicy || d.Feedback == "" {
				t.Errorf("%q: decision %+v, want rejected/policy with a reason", in, d)
			}
			r.wait()
			r.wantTypes(sid, "turn/start", "user/message", "approval/asked", "approval/decided", "turn/end")
		})
	}
}

// Large input is shown as a preview that is valid JSON, with the whole as a
// blob; what runs is the whole.
func TestLargeInputIsShownAsPreview(t *testing.T) {
	bubble(t, func(r *rig) {
		in := `{"command":"` + strings.Repeat("é", 100<<10) + `"}`
		got := make(chan agent.Decision, 1)
		r.agent.on("go", asks(in, got))
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		c := r.approvals(sid)[0]
		var s string
		if err := json.Unmarshal(c.Input, &s); err != nil || c.Truncated == nil || c.Truncated.Bytes != int64(len(in)) {
			t.Fatalf("input is %.40s (%v), truncated %+v", c.Input, err, c.Truncated)
		}
		if string(r.pub.blobs[c.Truncated.Blob]) != in {
			t.Error("the blob is not the input")
		}
		if slices.Contains(c.Options, frames.AllowedAlways) {
			t.Errorf("options %v, want no always", c.Options)
		}
		err := r.m.Answer(r.t.Context(), pending.Answer{Session: sid, ID: c.ID, Kind: pending.KindApproval, Outcome: frames.AllowedOnce, InputHash: c.InputHash}, nil)
		if d := <-got; err != nil || string(d.Input) != in {
			t.Errorf("answer %v: what runs is not the input", err)
		}
	})
}

// "Always" in one session lets the same call of its tree pass, and asks in
// another tree; a deny rule of a child beats it.
func TestAlwaysCoversItsTreeOnly(t *testing.T) {
	bubble(t, func(r *rig) {
		got := make(chan agent.Decision, 1)
		r.agent.on("go", asks(`{"b":1, "a":2}`, got))
		r.agent.on("again", asks(`{"a":2,"b":1}`, got))
		sid, other := r.create(session.CreateArgs{}), r.create(session.CreateArgs{})
		child := r.create(session.CreateArgs{Parent: sid})
		strict := r.create(session.CreateArgs{Parent: sid, Policy: &frames.Policy{Rules: []frames.Rule{{Tool: "sh", Decision: "deny"}}}})
		r.prompt(sid, "go")
		r.wait()
		if err := r.answer(sid, r.approvals(sid)[0].ID, frames.AllowedAlways); err != nil {
			t.Fatal(err)
		}
		<-got
		r.restart()
		for _, s := range []frames.SessionID{sid, child} {
			r.prompt(s, "again")
			if d := <-got; d.Outcome != frames.AllowedAlways || d.Cause != frames.CausePolicy || !d.Allowed() {
				t.Errorf("%s: decision %+v, want allowed by the grant", s, d)
			}
		}
		if d := last[frames.ApprovalDecided](r, child); d.Grant == "" {
			t.Errorf("decided %+v, want the grant's id", d)
		}
		r.prompt(strict, "again")
		if d := <-got; d.Outcome != frames.Rejected || d.Cause != frames.CausePolicy {
			t.Errorf("deny rule: %+v, want rejected/policy", d)
		}
		r.prompt(other, "again")
		r.wait()
		if n := len(r.approvals(other)); n != 1 {
			t.Errorf("%d pending in the other tree, want one", n)
		}
		if gs := r.m.Grants(); len(gs) != 1 || gs[0].Used != 2 {
			t.Errorf("grants %+v, want one used twice", gs)
		}
	})
}

// A deny rule of the parent denies in the child too, whatever the child allows.
func TestDenyRuleOfAnAncestorDenies(t *testing.T) {
	bubble(t, func(r *rig) {
		got := make(chan agent.Decision, 1)
		r.agent.on("go", asks(`{}`, got))
		up := r.create(session.CreateArgs{Policy: &frames.Policy{Rules: []frames.Rule{{Tool: "sh", Decision: "deny"}}}})
		mid := r.create(session.CreateArgs{Parent: up})
		low := r.create(session.CreateArgs{Parent: mid, Policy: &frames.Policy{Rules: []frames.Rule{{Tool: "sh", Decision: "allow"}}}})
		r.prompt(low, "go")
		if d := <-got; d.Outcome != frames.Rejected || d.Cause != frames.CausePolicy {
			t.Errorf("decision %+v, want rejected/policy", d)
		}
	})
}

// Turning the mode to deny rejects what is pending.
func TestModeDenySettlesWhatIsPending(t *testing.T) {
	bubble(t, func(r *rig) {
		got := make(chan agent.Decision, 1)
		r.agent.on("go", asks(`{}`, got))
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		r.configure(session.ConfigureArgs{Session: sid, Policy: &frames.Policy{Mode: "deny"}})
		if d := <-got; d.Outcome != frames.Rejected || d.Cause != frames.CauseModeChange {
			t.Errorf("decision %+v, want rejected/mode-change", d)
		}
	})
}

// A question has no deadline, waits for its answer, and hands it to the agent.
func TestQuestionWaitsForItsAnswer(t *testing.T) {
	bubble(t, func(r *rig) {
		got := make(chan agent.Answers, 1)
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			a, err := t.Question(ctx, frames.Question{Question: "which?", Options: []frames.QuestionOption{{Label: "A"}, {Label: "B"}}})
			got <- a
			return agent.Result{}, err
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		time.Sleep(24 * time.Hour)
		q := r.m.Pending("")[0].(*frames.QuestionRequested)
		err := r.m.Answer(r.t.Context(), pending.Answer{Session: sid, ID: q.ID, Kind: pending.KindQuestion, Answers: []frames.Answer{{ID: q.Questions[0].ID, Labels: []string{"B"}}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if a := <-got; a.Outcome != frames.Answered || a.Answers[0].Labels[0] != "B" {
			t.Errorf("answers %+v, want B", a)
		}
		r.wait()
		r.wantTypes(sid, "turn/start", "user/message", "question/asked", "question/decided", "turn/end")
	})
}

// A withdrawn request is resolved for everybody.
func TestWithdrawnAskIsResolved(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			short, cancel := context.WithTimeout(ctx, second)
			defer cancel()
			d, err := t.Ask(short, ask("c1", `{}`))
			if d.Outcome != frames.Cancelled || d.Cause != frames.CauseAbort {
				r.t.Errorf("decision %+v, want cancelled/abort", d)
			}
			return agent.Result{}, err
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		time.Sleep(2 * second)
		r.wait()
		if res := framesOf[*frames.ApprovalResolved](r.pub, sid); len(res) != 1 || res[0].Origin != frames.CauseAbort {
			t.Errorf("resolved %+v, want abort", res)
		}
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCompleted {
			t.Errorf("end %+v, want completed", end)
		}
	})
}
