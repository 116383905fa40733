package pending_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/pending"
)

// always has a person allow the request for always, and returns the grant's id.
func always(t *testing.T, tab *pending.Table, r pending.Request, want *pending.GrantRequest) frames.GrantID {
	t.Helper()
	rec := &recorder{}
	done := ask(t.Context(), tab, r, rec)
	synctest.Wait()
	a := reply(r.ID, frames.AllowedAlways, "phone")
	a.Session, a.Grant = r.Session, want
	if err := tab.Answer(t.Context(), a, nil); err != nil {
		t.Fatalf("Answer = %v", err)
	}
	got := <-done
	if all := rec.all(); got.Outcome != frames.AllowedAlways || got.Grant == "" || all[0].Grant != got.Grant {
		t.Fatalf("Ask = %+v, recorded %+v; want allowed-always with its grant", got.Settlement, all)
	}
	return got.Grant
}

// call is a call that a grant may cover.
type call struct {
	agent, tool, cwd, input string
	root                    frames.SessionID
}

func matches(tab *pending.Table, c call) bool {
	_, ok := tab.Grants().Match(c.agent, c.tool, c.cwd, []byte(c.input), []frames.SessionID{c.root}, time.Now())
	return ok
}

// A grant covers exactly its agent, tool, cwd and input: in its own tree, or in
// the whole project.
func TestGrantCoversExactlyWhatWasAllowed(t *testing.T) {
	for _, scope := range []pending.Scope{"", pending.ScopeSession, pending.ScopeProject} {
		synctest.Test(t, func(t *testing.T) {
			tab := pending.New(pending.Config{Grants: &disk{}})
			always(t, tab, approval("r1"), &pending.GrantRequest{Scope: scope})
			same := call{"helper", "shell", "/project", `{"command":"ls -l"}`, "s1"}
			for _, c := range []struct {
				name   string
				change func(*call)
				want   bool
			}{
				{"the same", func(*call) {}, true},
				{"other tree", func(c *call) { c.root = "s2" }, scope == pending.ScopeProject},
				{"other cwd", func(c *call) { c.cwd = "/project/sub" }, false},
				{"other agent", func(c *call) { c.agent = "helper2" }, false},
				{"other tool", func(c *call) { c.tool = "Shell" }, false},
				{"longer input", func(c *call) { c.input = `{"command":"ls -l; rm -rf /"}` }, false},
				{"more members", func(c *call) { c.input = `{"command":"ls -l","cwd":"/"}` }, false},
				{"prefix", func(c *call) { c.input = `{"command":"ls"}` }, false},
				{"no input", func(c *call) { c.input = "" }, false},
			} {
				it := same
				c.change(&it)
				if got := matches(tab, it); got != c.want {
					t.Errorf("scope %q, %s: matches %v, want %v", scope, c.name, got, c.want)
				}
			}
		})
	}
}

// A grant ends exactly when it expires; without a time it holds for eight hours.
func TestGrantExpires(t *testing.T) {
	for _, c := range []struct {
		req  *pending.GrantRequest
		hold time.Duration
	}{
		{nil, 8 * time.Hour},
		{&pending.GrantRequest{}, 8 * time.Hour},
		{&pending.GrantRequest{For: time.Minute}, time.Minute},
		{&pending.GrantRequest{For: pending.MaxGrantFor}, 30 * 24 * time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			tab := pending.New(pending.Config{Grants: &disk{}})
			always(t, tab, approval("r1"), c.req)
			it := call{"helper", "shell", "/project", `{"command":"ls -l"}`, "s1"}
			time.Sleep(c.hold - 1)
			if !matches(tab, it) || len(tab.Grants().List()) != 1 {
				t.Errorf("%+v: ended before %v", c.req, c.hold)
			}
			time.Sleep(time.Nanosecond)
			if matches(tab, it) || len(tab.Grants().List()) != 0 {
				t.Errorf("%+v: holds after %v", c.req, c.hold)
			}
		})
	}
}

// A revoked grant ends at once, and stays so after a restart.
func TestRevokedGrantEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		tab := pending.New(pending.Config{Grants: d})
		id := always(t, tab, approval("r1"), nil)
		if err := tab.Grants().Revoke(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		it := call{"helper", "shell", "/project", `{"command":"ls -l"}`, "s1"}
		if matches(tab, it) || len(tab.Grants().List()) != 0 || d.row(id).RevokedAt.IsZero() {
			t.Errorf("after Revoke: matches %v, stored %+v", matches(tab, it), d.row(id))
		}
		again := pending.New(pending.Config{Grants: d})
		if err := again.Grants().Load(t.Context()); err != nil || matches(again, it) {
			t.Errorf("after a restart: %v, matches %v", err, matches(again, it))
		}
		err := tab.Grants().Revoke(t.Context(), "never")
		if _, ok := errors.AsType[*pending.GrantNotFoundError](err); !ok {
			t.Errorf("Revoke of an unknown grant = %v", err)
		}
	})
}

// A revocation that cannot be stored holds, and is stored with the next save or
// at shutdown.
func TestRevocationIsStoredWhenTheDiskIsBack(t *testing.T) {
	for _, next := range []string{"save", "shutdown"} {
		synctest.Test(t, func(t *testing.T) {
			d := &disk{}
			tab := pending.New(pending.Config{Grants: d})
			id, other := always(t, tab, approval("r1"), nil), always(t, tab, approval("r2"), nil)
			d.breakWith(errDisk)
			if err := tab.Grants().Revoke(t.Context(), id); !errors.Is(err, errDisk) {
				t.Errorf("Revoke = %v, want the disk's error", err)
			}
			if g, _ := tab.Grants().Get(id); g.Holds(time.Now()) {
				t.Error("the grant holds")
			}
			d.breakWith(nil)
			var err error
			if next == "save" {
				err = tab.Grants().Use(t.Context(), other)
			} else {
				err = tab.Shutdown(t.Context())
			}
			if err != nil || d.row(id).RevokedAt.IsZero() {
				t.Errorf("after %s: %v, stored %+v; want it revoked", next, err, d.row(id))
			}
		})
	}
}

// Grants and the count of their uses come back with a restart.
func TestGrantsAndTheirUseSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		tab := pending.New(pending.Config{Grants: d})
		id := always(t, tab, approval("r1"), nil)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := tab.Grants().Use(t.Context(), id); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		again := pending.New(pending.Config{Grants: d})
		if err := again.Grants().Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		gs := again.Grants().List()
		if len(gs) != 1 || gs[0].ID != id || gs[0].Used != 20 || gs[0].By.ClientID != "phone" {
			t.Errorf("grants %+v, want %s used 20 times", gs, id)
		}
		if !matches(again, call{"helper", "shell", "/project", `{"command":"ls -l"}`, "s1"}) {
			t.Error("it does not match any more")
		}
		d.breakWith(errDisk)
		if err := tab.Grants().Use(t.Context(), id); !errors.Is(err, errDisk) {
			t.Errorf("Use with a broken disk = %v", err)
		}
		if err := again.Grants().Load(t.Context()); !errors.Is(err, errDisk) {
			t.Errorf("Load with a broken disk = %v", err)
		}
	})
}

// An always that cannot be stored, as a grant or as a decision, allows nothing
// now or later.
func TestAlwaysThatCannotBeStoredGrantsNothing(t *testing.T) {
	for _, what := range []string{"grant", "decision"} {
		synctest.Test(t, func(t *testing.T) {
			d, rec := &disk{}, &recorder{}
			if what == "grant" {
				d.breakWith(errDisk)
			}
			rec.before = func(_ context.Context, s pending.Settlement) error {
				if what == "decision" && s.Outcome.Allows() {
					return errDisk
				}
				return nil
			}
			tab := pending.New(pending.Config{Grants: d, NewID: func() string { return "g1" }})
			done := ask(t.Context(), tab, approval("r1"), rec)
			synctest.Wait()
			err := tab.Answer(t.Context(), reply("r1", frames.AllowedAlways, "phone"), nil)
			if _, ok := errors.AsType[*pending.StorageError](err); !ok {
				t.Errorf("%s: Answer = %v, want a StorageError", what, err)
			}
			if got := <-done; got.Outcome != frames.Unavailable || got.Grant != "" {
				t.Errorf("%s: Ask = %+v, want unavailable", what, got.Settlement)
			}
			it := call{"helper", "shell", "/project", `{"command":"ls -l"}`, "s1"}
			if matches(tab, it) || len(tab.Grants().List()) != 0 {
				t.Errorf("%s: a grant holds", what)
			}
			d.breakWith(nil)
			if err := tab.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			again := pending.New(pending.Config{Grants: d})
			if err := again.Grants().Load(t.Context()); err != nil || matches(again, it) {
				t.Errorf("%s: after a restart: %v, matches %v", what, err, matches(again, it))
			}
		})
	}
}

// A grant settles nothing that is already pending, and does not match before its
// decision is on disk.
func TestGrantSettlesNothingPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := pending.New(pending.Config{Grants: &disk{}})
		it := call{"helper", "shell", "/project", `{"command":"ls -l"}`, "s1"}
		rec := &recorder{before: func(context.Context, pending.Settlement) error {
			if matches(tab, it) {
				t.Error("the grant holds before its decision is stored")
			}
			return nil
		}}
		done, same := ask(t.Context(), tab, approval("r1"), rec), ask(t.Context(), tab, approval("r2"), rec)
		synctest.Wait()
		if err := tab.Answer(t.Context(), reply("r1", frames.AllowedAlways, "phone"), nil); err != nil {
			t.Fatal(err)
		}
		<-done
		synctest.Wait()
		if len(same) != 0 || len(tab.Open("s1")) != 1 || !matches(tab, it) {
			t.Errorf("the other request is settled, or the grant does not hold")
		}
		rec.before = nil
		_ = tab.Shutdown(t.Context())
	})
}

// A host without a grant store refuses always.
func TestWithoutAStoreNothingIsAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := pending.New(pending.Config{})
		ask(t.Context(), tab, approval("r1"), &recorder{})
		synctest.Wait()
		err := tab.Answer(t.Context(), reply("r1", frames.AllowedAlways, "phone"), nil)
		if e, ok := errors.AsType[*pending.InvalidAnswerError](err); !ok || e.Field != "outcome" {
			t.Errorf("Answer = %v, want an InvalidAnswerError", err)
		}
		_ = tab.Shutdown(t.Context())
	})
}

// Grants are bounded: one too many is refused, and those that have ended make
// room.
func TestGrantsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{rows: make(map[frames.GrantID]pending.Grant)}
		now := time.Now()
		for i := range pending.MaxGrants {
			id := frames.GrantID(fmt.Sprint(i))
			d.rows[id] = pending.Grant{ID: id, Tool: "t", Input: fmt.Append(nil, i), Scope: pending.ScopeProject, ExpiresAt: now.Add(time.Minute)}
		}
		tab := pending.New(pending.Config{Grants: d})
		if err := tab.Grants().Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		ask(t.Context(), tab, approval("r1"), &recorder{})
		synctest.Wait()
		a := reply("r1", frames.AllowedAlways, "phone")
		if _, ok := errors.AsType[*pending.InvalidAnswerError](tab.Answer(t.Context(), a, nil)); !ok {
			t.Errorf("grant %d was not refused", pending.MaxGrants+1)
		}
		time.Sleep(time.Minute)
		if err := tab.Answer(t.Context(), a, nil); err != nil {
			t.Errorf("Answer when the others had expired = %v", err)
		}
	})
}

// An input that is too large to keep is allowed once or not at all.
func TestGrantInputIsBounded(t *testing.T) {
	r := approval("r1")
	r.Approval.Canonical = make([]byte, pending.MaxGrantInput+1)
	refused(t, r, pending.Answer{Kind: pending.KindApproval, Outcome: frames.AllowedAlways}, "outcome")
}
