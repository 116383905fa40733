package session_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/pending"
	"github.com/muxhost/muxhost/host/internal/session"
)

// A log is not trimmed past a request outside of turns that is open, and goes on to
// be once it is settled.
func TestOpenRequestOutsideOfTurnsIsNotTrimmed(t *testing.T) {
	a, tweak := archived(session.Retention{MaxEvents: 20})
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		bg := r.knows(sid).Background
		got := make(chan agent.Answers, 1)
		r.goes(func() {
			v, _ := bg.Question(r.t.Context(), frames.Question{Question: "which?"})
			got <- v
		})
		r.wait()
		id := framesOf[*frames.QuestionRequested](r.pub, sid)[0].ID
		asked := frames.Seq(len(r.log(sid)))
		for i := range 40 {
			r.prompt(sid, fmt.Sprint("turn ", i))
			r.wait()
		}
		if first := r.first(a, sid); first > asked {
			t.Errorf("the log begins at %d, want the question at %d still in it", first, asked)
		}
		if err := r.m.Answer(r.t.Context(), pending.Answer{Session: sid, ID: id, Kind: pending.KindQuestion, Cancel: true}, nil); err != nil {
			t.Fatal(err)
		}
		if v := <-got; v.Outcome != frames.Cancelled || v.Cause != frames.CauseReply {
			t.Errorf("the agent heard %+v, want cancelled/reply", v)
		}
		for range 2 {
			r.prompt(sid, "more")
			time.Sleep(time.Hour)
			r.wait()
		}
		if first := r.first(a, sid); first <= asked {
			t.Errorf("the log begins at %d, want it trimmed past %d", first, asked)
		}
	}, tweak)
}

// What waits outside of turns ends in a fork, and stays open in the source; exports
// tell of it.
func TestForksAndExportsOfRequestsOutsideOfTurns(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		bg := r.knows(sid).Background
		r.goes(func() { _, _ = bg.Ask(r.t.Context(), ask("c1", `{"command":"make"}`)) })
		r.goes(func() { _, _ = bg.Question(r.t.Context(), frames.Question{Question: "which one?"}) })
		r.wait()
		r.prompt(sid, "a turn")
		r.wait()
		fork := r.fork(session.ForkArgs{Session: sid}).SessionID
		r.wantClosed(fork, 0)
		a, q := last[frames.ApprovalDecided](r, fork), last[frames.QuestionDecided](r, fork)
		if a.Outcome != frames.Cancelled || q.Outcome != frames.Cancelled || r.view(fork).Status != frames.StateIdle {
			t.Errorf("in the fork %+v and %+v, status %s; want both cancelled", a, q, r.view(fork).Status)
		}
		if s, _ := r.m.Get(sid); s.Pending != 2 || s.State != frames.StateRequiresAction {
			t.Errorf("the source is %+v, want both open", s)
		}
		r.cancel(sid, "", false)
		r.wait()
		_, text := r.export(sid, "markdown")
		asked, ended := framesOf[*frames.ApprovalRequested](r.pub, sid)[0].ID, last[frames.QuestionDecided](r, sid).ID
		for _, want := range []string{
			"- Question: which one?\n", fmt.Sprintf("Question `%s`: **cancelled** (abort)", ended),
			fmt.Sprintf("Approval `%s` is asked for: `sh` `{\"command\":\"make\"}`", asked),
			fmt.Sprintf("Approval `%s`: **cancelled** (abort)", asked),
		} {
			if !strings.Contains(text, want) {
				t.Errorf("want %q in\n%s", want, text)
			}
		}
	})
}
