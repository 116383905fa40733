package session_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// mortal is a store that dies after some writes: the one after the last fails, and
// so do all later ones. torn makes the last write land although it fails.
type mortal struct {
	store.Store
	mu   sync.Mutex
	left int
	torn bool
	once bool // only one write fails
}

var errDead = errors.New("the disk is gone")

// write counts one write; land says whether it reaches the disk.
func (s *mortal) write() (land bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left--
	switch {
	case s.left >= 0, s.once && s.left < -1:
		return true, nil
	case s.left == -1 && s.torn:
		return true, errDead
	}
	return false, errDead
}

func (s *mortal) Append(ctx context.Context, sid frames.SessionID, at store.Head, evs []store.Event, rows ...store.Row) (h store.Head, err error) {
	land, dead := s.write()
	if land {
		h, err = s.Store.Append(ctx, sid, at, evs, rows...)
	}
	if dead != nil {
		return store.Head{}, dead
	}
	return h, err
}

func (s *mortal) Restore(ctx context.Context, sid frames.SessionID, epoch frames.Epoch, first frames.Seq, evs []store.Event) (h store.Head, err error) {
	land, dead := s.write()
	if land {
		h, err = s.Store.Restore(ctx, sid, epoch, first, evs)
	}
	if dead != nil {
		return store.Head{}, dead
	}
	return h, err
}

func (s *mortal) Put(ctx context.Context, rows ...store.Row) (err error) {
	land, dead := s.write()
	if land {
		err = s.Store.Put(ctx, rows...)
	}
	if dead != nil {
		return dead
	}
	return err
}

func (s *mortal) Delete(ctx context.Context, sid frames.SessionID, at store.Head) (err error) {
	land, dead := s.write()
	if land {
		err = s.Store.Delete(ctx, sid, at)
	}
	if dead != nil {
		return dead
	}
	return err
}

// Wherever the host is cut off while it copies a long log, there is either no
// fork, and nothing is left of it, or a whole one.
func TestForkIsWholeOrNotThere(t *testing.T) {
	for _, torn := range []bool{false, true} {
		for n := 0; ; n++ {
			if forkUntil(t, n, torn) {
				break
			}
			if n > 50 {
				t.Fatal("the fork never succeeds")
			}
		}
	}
}

// forkUntil forks with a store that dies after n writes, and reports whether that
// was enough.
func forkUntil(t *testing.T, n int, torn bool) (whole bool) {
	bubble(t, func(r *rig) {
		src := r.create(session.CreateArgs{})
		r.agent.on("long", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			for range 6 {
				var all []frames.Payload
				for range 120 {
					all = append(all, frames.TodoWrite{Todos: []frames.Todo{{Content: "x"}}})
				}
				if err := t.Emit(ctx, all...); err != nil {
					return agent.Result{}, err
				}
			}
			return agent.Result{}, nil
		})
		r.prompt(src, "long")
		r.wait()
		plain := r.disk.Store
		r.disk.Store = &mortal{Store: plain, left: n, torn: torn}
		f, err := r.tryFork(session.ForkArgs{Session: src, RequestID: "r"})
		r.stop()
		marks, merr := plain.Scan(r.t.Context(), store.TableDirty, "", "", 0)
		if merr != nil || slices.ContainsFunc(marks, func(row store.Row) bool { return !session.Unfinished(row) }) {
			t.Errorf("after %d writes: the marks are %v, %v; want them to say what is unfinished", n, marks, merr)
		}
		r.start()
		rows, serr := plain.Scan(r.t.Context(), store.TableDirty, "", "", 0)
		bases, berr := plain.Scan(r.t.Context(), store.TableBase, "", "", 0)
		if len(rows)+len(bases) != 0 || serr != nil || berr != nil {
			t.Errorf("after %d writes: marks %v, bases %v are left", n, rows, bases)
		}
		all, _, _ := r.m.List(session.Filter{Parent: src})
		stored, _ := plain.List(r.t.Context(), "", "", 0)
		if len(stored) != 1+len(all) {
			t.Errorf("after %d writes: %d logs are stored, want %d", n, len(stored), 1+len(all))
		}
		if err == nil && (len(all) != 1 || all[0].SessionID != f.SessionID) {
			t.Errorf("after %d writes: the fork succeeded and is not there: %v", n, all)
		}
		for _, s := range all {
			if got, want := len(r.raw(s.SessionID)), int(r.ends(src)[0])+1; got != want || s.Head != frames.Seq(want) {
				t.Errorf("after %d writes: a fork of %d events, want %d", n, got, want)
			}
		}
		again := r.fork(session.ForkArgs{Session: src, RequestID: "r"})
		if len(all) == 1 && again.SessionID != all[0].SessionID {
			t.Errorf("after %d writes: the same request made another fork", n)
		}
		whole = err == nil
	})
	return whole
}

// A fork that fails leaves nothing behind, at once.
func TestFailedForkIsRemovedAtOnce(t *testing.T) {
	for n := range 3 {
		bubble(t, func(r *rig) {
			src := r.create(session.CreateArgs{})
			r.prompt(src, "x")
			r.wait()
			plain := r.disk.Store
			r.disk.Store = &mortal{Store: plain, left: n, once: true}
			if _, err := r.tryFork(session.ForkArgs{Session: src}); !errors.Is(err, errDead) {
				t.Errorf("write %d failed: %v, want that error", n, err)
			}
			all, err := plain.List(r.t.Context(), "", "", 0)
			rows, rerr := plain.Scan(r.t.Context(), store.TableDirty, "", "", 0)
			if len(all) != 1 || len(rows) != 0 || err != nil || rerr != nil {
				t.Errorf("write %d failed: %d logs and the marks %v are left", n, len(all), rows)
			}
			r.fork(session.ForkArgs{Session: src})
		})
	}
}
