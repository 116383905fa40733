package session_test

import (
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// An "always" holds after a restart if its decision is in the log, and only then:
// where the host ended between the two, it asks again.
func TestGrantHoldsOnlyWithItsDecision(t *testing.T) {
	for name, decided := range map[string]bool{"decided": true, "ended before it was": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				got := make(chan agent.Decision, 2)
				r.agent.on("go", asks(`{}`, got))
				sid := r.create(session.CreateArgs{})
				r.prompt(sid, "go")
				r.wait()
				if !decided {
					r.disk.set(func(d *disk) {
						d.lost = store.ErrClosed
						d.before = func([]store.Event) { r.disk.fail(store.ErrClosed) }
					})
				}
				err := r.answer(sid, r.approvals(sid)[0].ID, frames.AllowedAlways)
				if (err == nil) != decided {
					t.Errorf("Answer = %v; decided %v", err, decided)
				}
				<-got
				r.crash()
				if n := len(r.m.Grants()); (n == 1) != decided {
					t.Errorf("%d grants hold after a restart; decided %v", n, decided)
				}
				r.prompt(sid, "go")
				r.wait()
				if asked := len(r.approvals(sid)) == 1; asked == decided {
					t.Errorf("the same call is asked again: %v; decided %v", asked, decided)
				}
			})
		})
	}
}
