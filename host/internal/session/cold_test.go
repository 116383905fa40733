package session_test

import (
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
)

// What waits below a cold session shows in its status, which goes back when it is
// settled; the session stays cold.
func TestColdSessionShowsWhatWaitsBelow(t *testing.T) {
	bubble(t, func(r *rig) {
		got := make(chan agent.Decision, 1)
		r.agent.on("go", asks(`{}`, got))
		top := r.create(session.CreateArgs{})
		mid := r.create(session.CreateArgs{Parent: top})
		time.Sleep(10 * time.Minute)
		r.wait()
		leaf := r.create(session.CreateArgs{Parent: mid, Policy: &frames.Policy{AskTimeoutMs: time.Hour.Milliseconds()}})
		r.prompt(leaf, "go")
		r.wait()
		for _, sid := range []frames.SessionID{top, mid} {
			if st := r.pub.status(sid); st.PendingBelow != 1 || st.Pending != 0 || st.State != frames.StateIdle {
				t.Errorf("%s shows %+v, want one pending below", sid, st)
			}
			if s, _ := r.m.Get(sid); s.PendingBelow != 1 {
				t.Errorf("%s is listed with %+v", sid, s)
			}
		}
		if err := r.answer(leaf, r.approvals(top)[0].ID, frames.Rejected); err != nil {
			t.Fatal(err)
		}
		<-got
		r.wait()
		for _, sid := range []frames.SessionID{top, mid} {
			if st := r.pub.status(sid); st.PendingBelow != 0 {
				t.Errorf("%s shows %+v, want none pending", sid, st)
			}
			if n := len(r.log(sid)); n != 1 {
				t.Errorf("%s has %d events, want it left alone", sid, n)
			}
		}
	})
}
