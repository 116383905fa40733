package session_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/pending"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// slow makes every append take a second.
func (r *rig) slow() {
	r.disk.set(func(d *disk) { d.before = func([]store.Event) { time.Sleep(second) } })
}

// asksWhenTold is a turn that asks for each of calls once it is told to.
func (r *rig) asksWhenTold(got chan<- agent.Decision) (tell func()) {
	now := make(chan struct{}, 16)
	r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
		for {
			select {
			case <-now:
			case <-ctx.Done():
				return agent.Result{}, nil
			}
			d, err := t.Ask(ctx, ask("c", `{"a":1}`))
			if err != nil {
				return agent.Result{}, err
			}
			got <- d
		}
	})
	return func() { now <- struct{}{} }
}

// always starts a session whose agent asks when told to, and answers its first
// request with allowed-always.
func (r *rig) always() (sid frames.SessionID, tell func(), got chan agent.Decision) {
	r.t.Helper()
	got = make(chan agent.Decision, 1)
	tell = r.asksWhenTold(got)
	sid = r.create(session.CreateArgs{})
	r.prompt(sid, "go")
	tell()
	r.wait()
	if err := r.answer(sid, r.approvals(sid)[0].ID, frames.AllowedAlways); err != nil {
		r.t.Fatal(err)
	}
	<-got
	return sid, tell, got
}

// A policy that is in the log counts for every call that comes after it there: one
// that was judged by the policy before it is judged again.
func TestPolicyInTheLogCountsForWhatComesAfter(t *testing.T) {
	allow := frames.Rule{Tool: "sh", Decision: "allow"}
	for name, tt := range map[string]struct{ before, after frames.Policy }{
		"asked":   {frames.Policy{}, frames.Policy{Mode: "deny"}},
		"allowed": {frames.Policy{Rules: []frames.Rule{allow}}, frames.Policy{Rules: []frames.Rule{allow, {Tool: "sh", Decision: "deny"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				got := make(chan agent.Decision, 1)
				tell := r.asksWhenTold(got)
				sid := r.create(session.CreateArgs{Policy: &tt.before})
				r.prompt(sid, "go")
				r.wait()
				r.slow()
				r.goes(func() { r.configure(session.ConfigureArgs{Session: sid, Policy: &tt.after}) })
				r.wait()
				tell()
				d := <-got
				r.wait()
				if d.Outcome != frames.Rejected {
					t.Errorf("decision %+v, want rejected", d)
				}
				if n := len(framesOf[*frames.ApprovalRequested](r.pub, sid)); n != 0 {
					t.Errorf("%d were asked, want none", n)
				}
				types := r.types(sid)
				if want := []string{"session/configured", "approval/asked", "approval/decided"}; !slices.Equal(types[len(types)-3:], want) {
					t.Errorf("log %v, want it to end with %v", types, want)
				}
			})
		})
	}
}

// A grant allows until it is revoked; from when that is acknowledged it allows
// nothing, also not a call that was judged before.
func TestRevokedGrantAllowsNothing(t *testing.T) {
	bubble(t, func(r *rig) {
		sid, tell, got := r.always()
		tell()
		if d := <-got; !d.Allowed() || d.Cause != frames.CausePolicy {
			t.Errorf("decision %+v, want allowed by the grant", d)
		}
		r.wait()
		gs := r.m.Grants()
		if len(gs) != 1 || gs[0].Used != 1 {
			t.Fatalf("grants %+v, want one that was used once", gs)
		}
		r.slow()
		r.goes(func() { r.configure(session.ConfigureArgs{Session: sid, Title: new("busy")}) })
		r.wait()
		tell()
		r.wait() // it is judged, and waits to be recorded
		if err := r.m.RevokeGrant(r.t.Context(), gs[0].ID); err != nil {
			t.Fatal(err)
		}
		if d := <-got; d.Allowed() {
			t.Errorf("decision %+v after the grant was revoked", d)
		}
		r.disk.set(func(d *disk) { d.before = nil })
		if n := len(r.m.Grants()); n != 0 {
			t.Errorf("%d grants are listed, want none", n)
		}
		if _, ok := errors.AsType[*pending.GrantNotFoundError](r.m.RevokeGrant(r.t.Context(), "none")); !ok {
			t.Error("a grant that never was could be revoked")
		}
		r.restart()
		if n := len(r.m.Grants()); n != 0 {
			t.Errorf("%d grants came back with a restart", n)
		}
	})
}

// A revocation that could not be stored is not acknowledged, and says no more than
// that; the grant allows nothing all the same.
func TestRevocationThatCannotBeStoredIsNotAcknowledged(t *testing.T) {
	bubble(t, func(r *rig) {
		sid, tell, _ := r.always()
		id := r.m.Grants()[0].ID
		r.disk.fail(errors.New("write /home/ada: no space"))
		if _, ok := errors.AsType[*session.StorageError](r.m.RevokeGrant(r.t.Context(), id)); !ok {
			t.Error("want a StorageError")
		}
		r.disk.fail(nil)
		tell()
		r.wait()
		if n := len(r.approvals(sid)); n != 1 {
			t.Errorf("%d approvals wait, want one: the grant is revoked", n)
		}
		if err := r.m.RevokeGrant(r.t.Context(), id); err != nil {
			t.Errorf("again: %v", err)
		}
	})
}

// A grant whose time is over leaves the disk with the next start.
func TestExpiredGrantsLeaveTheDisk(t *testing.T) {
	bubble(t, func(r *rig) {
		r.always()
		rows := func() (n int) {
			for table, prefix := range map[string]string{store.TableGrant: "", store.TableHost: "given/"} {
				rs, err := r.store.Scan(r.t.Context(), table, prefix, "", 0)
				if err != nil {
					t.Fatal(err)
				}
				n += len(rs)
			}
			return n
		}
		r.restart()
		if n := rows(); n != 2 || len(r.m.Grants()) != 1 {
			t.Errorf("%d rows and %d grants after a restart, want both rows of the one", n, len(r.m.Grants()))
		}
		time.Sleep(9 * time.Hour)
		r.restart()
		if n := rows(); n != 0 {
			t.Errorf("%d rows are left of an expired grant", n)
		}
	})
}
