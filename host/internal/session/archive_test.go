package session_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// archive is a store that keeps aside whatever was appended: the logs as they
// would be untrimmed.
type archive struct {
	store.Store
	mu     sync.Mutex
	logs   map[frames.SessionID][]store.Event
	apart  int           // steps that stored a base or dropped events, and not both
	refuse error         // of Trim, which does nothing
	mute   error         // of Trim, which does its work
	lag    time.Duration // an append is heard of so much later; a trim takes half of it
}

// archived puts an archive below every manager of a rig.
func archived(r session.Retention) (*archive, func(*session.Config)) {
	a := &archive{logs: map[frames.SessionID][]store.Event{}}
	return a, func(c *session.Config) {
		a.Store, c.Store, c.Retention = c.Store, a, r
	}
}

func (a *archive) Append(ctx context.Context, sid frames.SessionID, at store.Head, evs []store.Event, rows ...store.Row) (store.Head, error) {
	h, err := a.Store.Append(ctx, sid, at, evs, rows...)
	a.mu.Lock()
	lag := a.lag
	a.mu.Unlock()
	if lag > 0 {
		_ = pause(context.WithoutCancel(ctx), lag)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil && frames.Seq(len(a.logs[sid])) == at.Seq {
		a.logs[sid] = append(a.logs[sid], slices.Clone(evs)...)
	}
	return h, err
}

func (a *archive) Trim(ctx context.Context, sid frames.SessionID, before frames.Seq, rows ...store.Row) error {
	a.mu.Lock()
	refuse, mute, lag := a.refuse, a.mute, a.lag
	if !slices.ContainsFunc(rows, isBase) {
		a.apart++
	}
	a.mu.Unlock()
	if refuse != nil {
		return refuse
	}
	if lag > 0 {
		_ = pause(ctx, lag/2)
	}
	if err := a.Store.Trim(ctx, sid, before, rows...); err != nil {
		return err
	}
	return mute
}

func isBase(r store.Row) bool { return r.Table == store.TableBase }

func (a *archive) Put(ctx context.Context, rows ...store.Row) error {
	if slices.ContainsFunc(rows, isBase) {
		a.set(func() { a.apart++ })
	}
	return a.Store.Put(ctx, rows...)
}

func (a *archive) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// event returns an event of the untrimmed log.
func (a *archive) event(t *testing.T, sid frames.SessionID, seq frames.Seq) frames.Event {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	e, err := frames.DecodeEvent(a.logs[sid][seq-1].Data)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// fold returns the fold of the untrimmed log as JSON.
func (a *archive) fold(t *testing.T, sid frames.SessionID) string {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	v := frames.NewView()
	for _, s := range a.logs[sid] {
		e, err := frames.DecodeEvent(s.Data)
		if err == nil {
			err = v.ApplyEvent(e)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return asJSON(t, v)
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// first checks a log against its untrimmed twin, as it is stored, told and asked
// for, and returns where it begins.
func (r *rig) first(a *archive, sid frames.SessionID) frames.Seq {
	r.t.Helper()
	h, err := r.store.Head(r.t.Context(), sid)
	if err != nil {
		r.t.Fatal(err)
	}
	a.set(func() {
		if a.apart > 0 {
			r.t.Error("a base was stored apart from what it stands for")
		}
	})
	want := a.fold(r.t, sid)
	if got := asJSON(r.t, r.refold(sid, h.First)); got != want {
		r.t.Errorf("%s from %d on: base and rest fold to\n%s\nwant\n%s", sid, h.First, got, want)
	}
	if got, seq, err := r.m.View(r.t.Context(), sid); err != nil || string(got) != want || seq != h.Seq {
		r.t.Errorf("%s: view at %d, %v:\n%s\nwant at %d\n%s", sid, seq, err, got, h.Seq, want)
	}
	p, err := r.m.History(r.t.Context(), sid, nil, nil, 1, 0)
	if err != nil || p.First != h.First || p.Head != h.Seq {
		r.t.Errorf("%s: history says %d to %d, %v; want %d to %d", sid, p.First, p.Head, err, h.First, h.Seq)
	}
	if got := r.pub.firstOf(sid); h.First > 1 && got != h.First {
		r.t.Errorf("%s: clients were told that it begins at %d, want %d", sid, got, h.First)
	}
	if h.First > 1 {
		if e := a.event(r.t, sid, h.First-1); e.Type != frames.TurnEndEvent {
			r.t.Errorf("%s was cut behind %d, a %s", sid, e.Seq, e.Type)
		}
	}
	return h.First
}

// refold folds what is stored: the base, and then the log.
func (r *rig) refold(sid frames.SessionID, first frames.Seq) *frames.View {
	r.t.Helper()
	b, err := r.store.Get(r.t.Context(), store.TableBase, string(sid))
	if err != nil {
		r.t.Fatal(err)
	}
	v := frames.NewView()
	if (b != nil) != (first > 1) {
		r.t.Errorf("%s begins at %d and has a base of %d bytes", sid, first, len(b))
	}
	if b != nil {
		if err := json.Unmarshal(b, v); err != nil {
			r.t.Fatal(err)
		}
	}
	if v.Seq != first-1 {
		r.t.Errorf("%s begins at %d, its base ends at %d", sid, first, v.Seq)
	}
	for after := first - 1; ; {
		evs, err := r.store.Read(r.t.Context(), sid, after, 0, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		if len(evs) == 0 {
			return v
		}
		for _, s := range evs {
			e, err := frames.DecodeEvent(s.Data)
			if err == nil {
				err = v.ApplyEvent(e)
			}
			if err != nil {
				r.t.Fatal(err)
			}
			after = e.Seq
		}
	}
}

// firstOf returns what Trimmed said last.
func (p *publisher) firstOf(sid frames.SessionID) frames.Seq {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of(sid).first
}
