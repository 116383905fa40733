package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// A fork of a trimmed log folds to what a fork of the whole log does, and its own
// log begins where the source's does; what is no longer kept cannot be forked.
func TestForkOfATrimmedLog(t *testing.T) {
	bubble(t, func(r *rig) {
		src := r.create(session.CreateArgs{Title: "t"})
		for i := range 6 {
			r.prompt(src, fmt.Sprint("turn ", i))
			r.wait()
			r.prompt(src, fmt.Sprint("note ", i), mode(frames.ModeInject))
		}
		ends := r.ends(src)
		whole := r.fork(session.ForkArgs{Session: src, At: &ends[4]})
		want := r.view(whole.SessionID)
		r.trim(src, ends[2]+1)
		r.restart()
		f := r.fork(session.ForkArgs{Session: src, At: &ends[4]})
		h, err := r.store.Head(r.t.Context(), f.SessionID)
		if err != nil || h.First != ends[2]+2 || h.Seq != whole.Head || f.Head != h.Seq {
			t.Errorf("the fork's log is %d to %d, %v; want %d to %d", h.First, h.Seq, err, ends[2]+2, whole.Head)
		}
		got := r.view(f.SessionID)
		got.CreatedAt = want.CreatedAt
		if g, w := viewJSON(t, got), viewJSON(t, want); g != w {
			t.Errorf("the forks differ:\n got %s\nwant %s", g, w)
		}
		for _, at := range []frames.Seq{1, ends[0], ends[2]} {
			_, err := r.tryFork(session.ForkArgs{Session: src, At: &at})
			if e, ok := errors.AsType[*session.ForkExpiredError](err); !ok || e.First != ends[2]+1 || e.Epoch == "" {
				t.Errorf("at %d: %v, want what is kept", at, err)
			}
		}
		// Only the first kept turn: the base and one turn. And a fork of the fork.
		one := r.fork(session.ForkArgs{Session: src, At: &ends[3]})
		two := r.fork(session.ForkArgs{Session: one.SessionID})
		if v := r.view(two.SessionID); len(v.Turns) != 4 || v.ForkedFrom == nil || v.ForkedFrom.SessionID != one.SessionID || v.Depth != 2 {
			t.Errorf("the fork of the fork folds to %s", viewJSON(t, v))
		}
		r.prompt(f.SessionID, "go on")
		r.wait()
		p := r.agent.prompts()
		if c := p[len(p)-1].Context; len(c) != 0 && c[0].Text != "note 4" {
			t.Errorf("the fork's turn was given %v", c)
		}
	})
}

// A source that is trimmed while it is forked is copied anew, with its base.
func TestForkWhileTrimmed(t *testing.T) {
	bubble(t, func(r *rig) {
		src := r.create(session.CreateArgs{})
		for range 150 {
			r.prompt(src, "x")
			r.wait()
		}
		want := r.view(r.fork(session.ForkArgs{Session: src}).SessionID)
		plain := r.disk.Store
		r.disk.Store = &trimming{Store: plain, at: 3, trim: func() { r.trim(src, r.ends(src)[80]+1) }}
		f := r.fork(session.ForkArgs{Session: src})
		h, err := plain.Head(r.t.Context(), f.SessionID)
		if from := r.raw(src)[0].Seq; err != nil || h.First != from+1 || from == 1 {
			t.Errorf("the fork begins at %d, %v; want after its base", h.First, err)
		}
		got := r.view(f.SessionID)
		got.CreatedAt = want.CreatedAt
		if g, w := viewJSON(t, got), viewJSON(t, want); g != w {
			t.Errorf("the fork folds to\n     %s\nwant %s", g, w)
		}
		if all, err := plain.List(r.t.Context(), "", "", 0); err != nil || len(all) != 3 {
			t.Errorf("%d logs, %v; want the source and two forks", len(all), err)
		}
	})
}

// A fork of a trimmed log is trimmed like any other, and so is a fork of that.
func TestForkOfATrimmedLogIsTrimmed(t *testing.T) {
	_, tweak := archived(session.Retention{MaxEvents: 10})
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{Title: "t"})
		turns := func() {
			for i := range 8 {
				r.prompt(sid, fmt.Sprint("turn ", i))
				r.wait()
			}
		}
		turns()
		for range 3 {
			f := r.fork(session.ForkArgs{Session: sid})
			want, before := r.view(f.SessionID), r.raw(f.SessionID)[0].Seq
			sid = f.SessionID
			turns()
			for _, enc := range r.pub.events(sid) {
				e, err := frames.DecodeEvent(enc.Data)
				if err == nil {
					err = want.ApplyEvent(e)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			r.restart()
			if first := r.raw(sid)[0].Seq; before == 1 || first <= before {
				t.Errorf("the fork begins at %d, before its turns at %d; want it trimmed", first, before)
			}
			if g, w := viewJSON(t, r.view(sid)), viewJSON(t, want); g != w {
				t.Errorf("the fork folds to\n     %s\nwant %s", g, w)
			}
		}
	}, tweak)
}

// A point that is trimmed while it is looked at is expired like any other.
func TestForkPointThatIsTrimmedMeanwhile(t *testing.T) {
	bubble(t, func(r *rig) {
		src := r.create(session.CreateArgs{})
		for range 4 {
			r.prompt(src, "x")
			r.wait()
		}
		ends, plain := r.ends(src), r.disk.Store
		r.disk.Store = &trimming{Store: plain, at: 1, trim: func() { r.trim(src, ends[2]+1) }}
		_, err := r.tryFork(session.ForkArgs{Session: src, At: &ends[1]})
		if e, ok := errors.AsType[*session.ForkExpiredError](err); !ok || e.First != ends[2]+1 {
			t.Errorf("fork: %v, want that the log begins at %d", err, ends[2]+1)
		}
	})
}

// A source that is trimmed whenever it is copied is given up, with an error that says
// so, and leaves no log behind.
func TestForkGivesUpWhereTrimsGoOn(t *testing.T) {
	bubble(t, func(r *rig) {
		src := r.create(session.CreateArgs{})
		r.prompt(src, "x")
		r.wait()
		plain := r.disk.Store
		r.disk.Store = &trimmedAlways{plain}
		if _, err := r.tryFork(session.ForkArgs{Session: src}); !errors.Is(err, store.ErrTrimmed) {
			t.Errorf("Fork: %v, want ErrTrimmed", err)
		}
		if all, err := plain.List(r.t.Context(), "", "", 0); err != nil || len(all) != 1 {
			t.Errorf("%d logs, %v; want the source alone", len(all), err)
		}
	})
}

// trimmedAlways is a store whose logs are trimmed whenever they are copied.
type trimmedAlways struct{ store.Store }

func (s *trimmedAlways) Read(ctx context.Context, sid frames.SessionID, after frames.Seq, limit, maxBytes int) ([]store.Event, error) {
	if limit == store.MaxBatch {
		return nil, &store.TrimmedError{First: after + 2}
	}
	return s.Store.Read(ctx, sid, after, limit, maxBytes)
}

func viewJSON(t *testing.T, v *frames.View) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// trim drops what is before a seq, as retention does.
func (r *rig) trim(sid frames.SessionID, before frames.Seq) {
	r.t.Helper()
	v := frames.NewView()
	for _, e := range r.log(sid) {
		if e.Seq < before {
			_ = v.ApplyEvent(e)
		}
	}
	b, err := json.Marshal(v.Durable())
	if err == nil {
		err = r.store.Trim(r.t.Context(), sid, before, store.Row{Table: store.TableBase, Key: string(sid), Value: b})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}
