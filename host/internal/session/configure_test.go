package session_test

import (
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/session"
)

// Labels that are taken away are gone from the fold too, and from that of a fork
// of an earlier turn.
func TestLabelsThatAreTakenAwayAreGone(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		r.configure(session.ConfigureArgs{Session: sid, Labels: map[string]string{"k": "v"}})
		r.prompt(sid, "x")
		r.wait()
		r.configure(session.ConfigureArgs{Session: sid, Labels: map[string]string{}})
		r.restart()
		f := r.fork(session.ForkArgs{Session: sid})
		for _, id := range []frames.SessionID{sid, f.SessionID} {
			if s, _ := r.m.Get(id); len(s.Labels) != 0 {
				t.Errorf("the summary has %v", s.Labels)
			}
			if v := r.view(id); len(v.Labels) != 0 {
				t.Errorf("the fold has %v", v.Labels)
			}
		}
	})
}
