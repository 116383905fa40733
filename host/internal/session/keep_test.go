package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// knows prompts a session, so that it wakes, and returns what its agent was told
// when it was opened last.
func (r *rig) knows(sid frames.SessionID) agent.Session {
	r.t.Helper()
	r.prompt(sid, "hello")
	r.wait()
	if r.agent.last.ID != sid {
		r.t.Fatalf("the agent was opened for %s, want %s", r.agent.last.ID, sid)
	}
	return r.agent.last
}

// What an agent keeps is there when it is opened again: after a close, a restart, a
// crash and a trim; the last one saved counts.
func TestStateIsKept(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		s := r.knows(sid)
		if s.State != nil {
			t.Errorf("a new session has the state %s, want nil", s.State)
		}
		for _, v := range []string{`{"n":0}`, `{"n":1}`} {
			if err := s.Background.Save(r.t.Context(), json.RawMessage(v)); err != nil {
				t.Fatal(err)
			}
		}
		want := `{"n":1}`
		for i, again := range []func(){
			func() { r.close(sid) }, r.restart, r.crash, func() { r.close(sid); r.trim(sid, r.ends(sid)[0]+1) },
		} {
			again()
			s = r.knows(sid)
			if string(s.State) != want {
				t.Errorf("after %d: the state is %s, want %s", i, s.State, want)
			}
			want = fmt.Sprintf(`{"n":%d}`, i+2)
			if err := s.Background.Save(r.t.Context(), json.RawMessage(want)); err != nil {
				t.Error(err)
			}
		}
	})
}

// A fork begins with a copy of the state; afterwards each has its own, and that of
// a deleted session is gone.
func TestForksCopyTheState(t *testing.T) {
	bubble(t, func(r *rig) {
		src := r.create(session.CreateArgs{})
		mine := r.knows(src).Background
		save := func(bg agent.Background, v string) error { return bg.Save(r.t.Context(), json.RawMessage(v)) }
		if err := save(mine, `"first"`); err != nil {
			t.Fatal(err)
		}
		fork := r.fork(session.ForkArgs{Session: src}).SessionID
		if err := save(mine, `"second"`); err != nil {
			t.Fatal(err)
		}
		forked := r.knows(fork)
		if string(forked.State) != `"first"` {
			t.Errorf("the fork's state is %s, want the source's at the time", forked.State)
		}
		r.close(src)
		if s := r.knows(src); string(s.State) != `"second"` {
			t.Errorf("the source's state is %s, want its own", s.State)
		}
		if err := r.m.Delete(r.t.Context(), nil, src, false, nil, nil); err != nil {
			t.Fatal(err)
		}
		if v, err := r.store.Get(r.t.Context(), store.TableState, string(src)); v != nil || err != nil {
			t.Errorf("the deleted session keeps %s, %v", v, err)
		}
		if err := save(mine, `1`); !errors.Is(err, session.ErrNoSession) {
			t.Errorf("Save after the end = %v, want ErrNoSession", err)
		}
		if v, _ := r.store.Get(r.t.Context(), store.TableState, string(src)); v != nil {
			t.Errorf("a late Save left %s", v)
		}
	})
}

// A state that is no JSON or too large is refused, and one that cannot be stored
// says so; what was kept before stays.
func TestBadStatesAreRefused(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		bg := r.knows(sid).Background
		largest := `"` + strings.Repeat("x", agent.MaxState-2) + `"`
		if err := bg.Save(r.t.Context(), json.RawMessage(largest)); err != nil {
			t.Errorf("the largest state: %v", err)
		}
		for _, bad := range []string{"", "{", `{"a":1,"a":2}`, `"` + strings.Repeat("x", agent.MaxState-1) + `"`, "\"\xff\""} {
			if err := bg.Save(r.t.Context(), json.RawMessage(bad)); err == nil {
				t.Errorf("a state of %d bytes was taken: %.20q", len(bad), bad)
			}
		}
		r.disk.fail(store.ErrFull)
		if err := bg.Save(r.t.Context(), json.RawMessage(`1`)); !errors.Is(err, store.ErrFull) {
			t.Errorf("Save = %v while the disk is full, want its error", err)
		}
		r.disk.fail(nil)
		r.close(sid)
		if s := r.knows(sid); string(s.State) != largest {
			t.Errorf("the state has %d bytes, want the %d kept before", len(s.State), len(largest))
		}
	})
}

// An agent reads the fold of what was trimmed from its log, and nothing where
// nothing was.
func TestAgentsReadTheBase(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		s := r.knows(sid)
		if v, seq, err := s.Base(r.t.Context()); v != nil || seq != 0 || err != nil {
			t.Errorf("Base = %v, %d, %v, want none", v, seq, err)
		}
		r.prompt(sid, "more")
		r.wait()
		cut := r.ends(sid)[0]
		r.trim(sid, cut+1)
		v, seq, err := s.Base(r.t.Context())
		if err != nil || v == nil || seq != cut || v.Seq != cut || len(v.Items) != 2 || v.Items[0].Content[0].Text != "hello" {
			t.Fatalf("Base = %+v, %d, %v, want the fold up to %d", v, seq, err, cut)
		}
		past, err := s.History(r.t.Context(), seq, 10)
		if err != nil || len(past) == 0 || past[0].Seq != cut+1 {
			t.Errorf("History = %v, %v, want what follows on %d", past, err, cut)
		}
	})
}

// An agent reads the blobs that prompts and events name.
func TestAgentsReadBlobs(t *testing.T) {
	bubble(t, func(r *rig) {
		id, _, err := r.pub.Put(r.t.Context(), strings.NewReader("the whole"))
		if err != nil {
			t.Fatal(err)
		}
		s := r.knows(r.create(session.CreateArgs{}))
		f, err := s.ReadBlob(r.t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(f); err != nil || string(got) != "the whole" {
			t.Errorf("read %q, %v", got, err)
		}
		if _, err := s.ReadBlob(r.t.Context(), "sha256-0"); !errors.Is(err, errNoBlob) {
			t.Errorf("an unknown blob: %v", err)
		}
	})
	bubble(t, func(r *rig) {
		s := r.knows(r.create(session.CreateArgs{}))
		if _, err := s.ReadBlob(r.t.Context(), "sha256-0"); err == nil {
			t.Error("a blob was read though none are kept")
		}
	}, func(c *session.Config) { c.OpenBlob = nil })
}

// An agent names its session until a person does; a title that session.create gave
// stays.
func TestAgentsTitlesYieldToPersons(t *testing.T) {
	bubble(t, func(r *rig) {
		sid, given := r.create(session.CreateArgs{}), r.create(session.CreateArgs{Title: "given"})
		title := func(bg agent.Background, v string) {
			t.Helper()
			if err := bg.Title(r.t.Context(), v); err != nil {
				t.Errorf("Title(%.20q): %v", v, err)
			}
		}
		want := func(sid frames.SessionID, want string, renames int) {
			t.Helper()
			s, _ := r.m.Get(sid)
			if got := len(every[frames.SessionRenamed](r, sid)); s.Title != want || got != renames || r.view(sid).Title != want {
				t.Errorf("the title is %q (%q in the fold) after %d renames, want %q after %d", s.Title, r.view(sid).Title, got, want, renames)
			}
		}
		title(r.knows(given).Background, "better")
		want(given, "given", 0)
		bg := r.knows(sid).Background
		title(bg, " \n ")
		want(sid, "", 0)
		title(bg, " Fix\nthe   build ")
		title(bg, "Fix the build")
		want(sid, "Fix the build", 1)
		title(bg, strings.Repeat("é", 1000))
		want(sid, strings.Repeat("é", 512), 2)
		r.restart()
		bg = r.knows(sid).Background
		title(bg, "third")
		want(sid, "third", 3)
		fork := r.fork(session.ForkArgs{Session: sid}).SessionID
		r.configure(session.ConfigureArgs{Session: sid, Title: new("mine")})
		title(bg, "fourth")
		want(sid, "mine", 4)
		r.configure(session.ConfigureArgs{Session: sid, Title: new("")})
		title(bg, "fifth")
		want(sid, "", 5)
		bg = r.knows(fork).Background
		title(bg, "of the fork")
		want(fork, "of the fork", 4)
		time.Sleep(time.Hour)
		title(bg, "while cold")
		want(fork, "while cold", 5)
	})
}
