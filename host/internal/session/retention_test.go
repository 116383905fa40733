package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/pending"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// archive is a store that keeps aside whatever was appended: the logs as they
// would be untrimmed.
type archive struct {
	store.Store
	mu     sync.Mutex
	logs   map[frames.SessionID][]store.Event
	apart  int   // steps that stored a base or dropped events, and not both
	refuse error // of Trim, which does nothing
	mute   error // of Trim, which does its work
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
	defer a.mu.Unlock()
	if err == nil && frames.Seq(len(a.logs[sid])) == at.Seq {
		a.logs[sid] = append(a.logs[sid], slices.Clone(evs)...)
	}
	return h, err
}

func (a *archive) Trim(ctx context.Context, sid frames.SessionID, before frames.Seq, rows ...store.Row) error {
	a.mu.Lock()
	refuse, mute := a.refuse, a.mute
	if !slices.ContainsFunc(rows, isBase) {
		a.apart++
	}
	a.mu.Unlock()
	if refuse != nil {
		return refuse
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

// sessions returns every session there was.
func (a *archive) sessions() []frames.SessionID {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.logs))
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

// Where a log has more events than are to be kept it is cut behind the end of a
// turn, so that about as many are left, and folds to what it would untrimmed.
func TestLogsAreTrimmedToTheirEvents(t *testing.T) {
	a, tweak := archived(session.Retention{MaxEvents: 20})
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{Labels: map[string]string{"a": "b"}})
		trims := 0
		last := frames.Seq(1)
		for i := range 40 {
			r.prompt(sid, fmt.Sprint("turn ", i))
			r.wait()
			first := r.first(a, sid)
			if s, _ := r.m.Get(sid); int(s.Head-first)+1 > 22+4 || first > 1 && int(s.Head-first)+1 < 20-4 {
				t.Errorf("turn %d: %d events are kept, want about 20", i, s.Head-first+1)
			}
			if first != last {
				trims++
			}
			last = first
		}
		if trims < 5 || trims > 39 {
			t.Errorf("%d trims, want some and not one in each turn", trims)
		}
	}, tweak)
}

// Turns that ended too long ago are dropped, also from sessions that nobody uses:
// those are trimmed without being woken.
func TestOldTurnsAreDropped(t *testing.T) {
	a, tweak := archived(session.Retention{MaxAge: 24 * time.Hour})
	bubble(t, func(r *rig) {
		sid, idle := r.create(session.CreateArgs{}), r.create(session.CreateArgs{})
		for range 3 {
			r.prompt(idle, "x")
			r.wait()
		}
		for i := range 96 {
			r.prompt(sid, fmt.Sprint("hour ", i))
			time.Sleep(time.Hour)
			r.wait()
			first := r.first(a, sid)
			if age := time.Since(a.event(t, sid, first).Time.Time); age > 24*time.Hour*11/10+2*time.Hour {
				t.Errorf("hour %d: the oldest turn began %v ago", i, age)
			}
			if first > 1 && time.Since(a.event(t, sid, first-1).Time.Time) <= 24*time.Hour {
				t.Errorf("hour %d: a turn that ended %v ago was dropped", i, time.Since(a.event(t, sid, first-1).Time.Time))
			}
		}
		if first := r.first(a, idle); first != a.lastEnds(t, idle)[1]+1 {
			t.Errorf("the idle session begins at %d, want its last turn only: its turns end at %v", first, a.lastEnds(t, idle))
		}
		for i, w := range r.pub.script() {
			if w == "live "+string(idle)+" true" {
				t.Errorf("the idle session was woken as step %d", i)
			}
		}
	}, tweak)
}

// lastEnds returns the numbers of all ends of turns.
func (a *archive) lastEnds(t *testing.T, sid frames.SessionID) []frames.Seq {
	t.Helper()
	var out []frames.Seq
	for seq := range a.logs[sid] {
		if e := a.event(t, sid, frames.Seq(seq+1)); e.Type == frames.TurnEndEvent {
			out = append(out, e.Seq)
		}
	}
	return out
}

// size returns the bytes that are kept of a log.
func (r *rig) size(sid frames.SessionID) int64 {
	r.t.Helper()
	n, err := r.store.Size(r.t.Context(), sid)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// Where the events of a session, or of all, take too many bytes, they are dropped:
// of all, those of the sessions first that were used least recently.
func TestLogsAreTrimmedToTheirBytes(t *testing.T) {
	long := strings.Repeat("x", 10<<10)
	t.Run("one", func(t *testing.T) {
		a, tweak := archived(session.Retention{MaxBytes: 200 << 10})
		bubble(t, func(r *rig) {
			sid := r.create(session.CreateArgs{})
			for range 60 {
				r.prompt(sid, long)
				r.wait()
				if n := r.size(sid); n > 220<<10+60<<10 { // the base has up to 700 KiB
					t.Errorf("%d bytes are kept, want about 200 KiB", n)
				}
			}
			if first := r.first(a, sid); first < 100 {
				t.Errorf("it begins at %d", first)
			}
		}, tweak)
	})
	t.Run("all", func(t *testing.T) {
		a, tweak := archived(session.Retention{MaxTotalBytes: 1 << 20})
		bubble(t, func(r *rig) {
			var sids []frames.SessionID
			for range 4 {
				sid := r.create(session.CreateArgs{})
				sids = append(sids, sid)
				for range 20 { // 440 KiB
					r.prompt(sid, long)
					time.Sleep(second)
				}
				r.wait()
				total := int64(0)
				for _, sid := range sids {
					total += r.size(sid)
				}
				if total > 1<<20*11/10+25<<10 {
					t.Errorf("%d sessions take %d KiB", len(sids), total>>10)
				}
			}
			for i, sid := range sids {
				first := r.first(a, sid)
				if whole := first == 1; whole != (i > 1) {
					t.Errorf("session %d begins at %d", i, first)
				}
			}
		}, tweak)
	})
}

// What is still going on stays: the running turn with its open request, and a
// prompt that waits, also where that lies in turns that have ended.
func TestTrimsLeaveWhatIsGoingOn(t *testing.T) {
	a, tweak := archived(session.Retention{MaxEvents: 4})
	bubble(t, func(r *rig) {
		r.agent.on("ask", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			for range 30 {
				_ = t.Emit(ctx, frames.TodoWrite{})
			}
			_, err := t.Ask(ctx, ask("c1", `{}`))
			return agent.Result{}, err
		})
		sid := r.create(session.CreateArgs{})
		for range 5 {
			r.prompt(sid, "before")
			r.wait()
		}
		r.prompt(sid, "ask")
		r.wait()
		r.prompt(sid, "waits")
		if !slices.Equal(r.waitFor(sid), []string{"waits"}) {
			t.Fatal("the prompt does not wait")
		}
		time.Sleep(4 * time.Minute)
		if first, started := r.first(a, sid), r.turnStart(a, sid); first > started || len(r.approvals(sid)) != 1 {
			t.Errorf("begins at %d, want the running turn from %d on and its request", first, started)
		}
		time.Sleep(time.Hour) // the request ends, and the prompt runs
		if first := r.first(a, sid); first < 30 {
			t.Errorf("begins at %d, want later: the turn has ended", first)
		}
		r.agent.on("hours", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			err := pause(ctx, 2*time.Hour)
			return agent.Result{}, errors.Join(err, t.Emit(ctx, frames.TodoWrite{}, frames.TodoWrite{}))
		})
		for range 3 {
			r.prompt(sid, "hours")
		}
		r.wait()
		began := r.turnStart(a, sid)
		time.Sleep(3 * time.Hour)
		if first := r.first(a, sid); first > began || len(r.waitFor(sid)) != 1 {
			t.Errorf("begins at %d, want nothing cut of the turn at %d in which a prompt that waits came", first, began)
		}
		time.Sleep(2 * time.Hour)
		if first := r.first(a, sid); first <= began {
			t.Errorf("begins at %d, want later than %d: nothing of it waits any more", first, began)
		}
		time.Sleep(5 * time.Hour)
	}, tweak)
}

// waitFor returns what waits in the queue, as the view tells.
func (r *rig) waitFor(sid frames.SessionID) (out []string) {
	b, _, err := r.m.View(r.t.Context(), sid)
	v := frames.NewView()
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	for _, q := range v.Queue() {
		out = append(out, q.Content[0].Text)
	}
	return out
}

// turnStart returns the number of the last turn's start.
func (r *rig) turnStart(a *archive, sid frames.SessionID) frames.Seq {
	for seq := len(a.logs[sid]); seq > 0; seq-- {
		if e := a.event(r.t, sid, frames.Seq(seq)); e.Type == frames.TurnStartEvent {
			return e.Seq
		}
	}
	return 0
}

// A session is repaired, prompts are known again and answers come too late as ever
// where the log was trimmed.
func TestTrimmedSessionsSurviveCrashes(t *testing.T) {
	a, tweak := archived(session.Retention{MaxEvents: 10})
	bubble(t, func(r *rig) {
		r.agent.on("ask", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			_, err := t.Ask(ctx, ask("c1", `{}`))
			return agent.Result{}, err
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "old", withID("p-old"))
		for range 10 {
			r.prompt(sid, "x")
			r.wait()
		}
		if r.first(a, sid) == 1 {
			t.Fatal("it was not trimmed")
		}
		r.prompt(sid, "ask")
		r.wait()
		req := r.approvals(sid)[0]
		r.crash()
		time.Sleep(time.Hour)
		r.first(a, sid)
		if end := a.event(t, sid, frames.Seq(len(a.logs[sid]))); end.Type != frames.TurnEndEvent {
			t.Errorf("the log ends with %s", end.Type)
		}
		err := r.answer(sid, req.ID, frames.AllowedOnce)
		if e, ok := errors.AsType[*pending.NotPendingError](err); !ok || e.Settled == nil || e.Settled.Cause != frames.CauseShutdown {
			t.Errorf("a late answer: %v, want how it ended", err)
		}
		n := len(a.logs[sid])
		r.prompt(sid, "old", withID("p-old"))
		if _, err := r.tryPrompt(sid, "new", withID("p-old")); !errors.Is(err, session.ErrPromptConflict) {
			t.Errorf("another prompt with an old id: %v", err)
		}
		r.wait()
		if len(a.logs[sid]) != n {
			t.Error("a prompt that was trimmed ran again")
		}
	}, tweak)
}

// A trim that fails changes nothing and is tried again; one whose outcome is
// unknown counts once it turns out to have happened.
func TestTrimsThatFailAreTriedAgain(t *testing.T) {
	a, tweak := archived(session.Retention{MaxEvents: 10})
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		a.set(func() { a.refuse = store.ErrFull })
		for range 10 {
			r.prompt(sid, "x")
			r.wait()
			if first := r.first(a, sid); first != 1 {
				t.Fatalf("begins at %d though nothing could be trimmed", first)
			}
		}
		a.set(func() { a.refuse = nil })
		time.Sleep(2 * time.Hour)
		first := r.first(a, sid)
		if first == 1 {
			t.Error("it was not tried again")
		}
		a.set(func() { a.mute = store.ErrUnknown })
		for range 10 {
			r.prompt(sid, "x")
			r.wait()
		}
		if now := r.first(a, sid); now == first {
			t.Error("a trim that happened does not count")
		}
		first = r.first(a, sid)
		r.disk.set(func(d *disk) { d.blind = store.ErrUnknown })
		r.agent.on("wide", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			for range 30 {
				_ = t.Emit(ctx, frames.TodoWrite{})
			}
			return agent.Result{}, nil
		})
		r.prompt(sid, "wide")
		r.prompt(sid, "x")
		r.wait()
		r.disk.set(func(d *disk) { d.blind = nil })
		a.set(func() { a.mute = nil })
		if _, err := r.m.History(t.Context(), sid, new(frames.Seq), nil, 0, 0); !errors.Is(err, store.ErrTrimmed) {
			t.Errorf("history from the start: %v, want ErrTrimmed", err)
		}
		if now := r.first(a, sid); now == first {
			t.Error("nobody noticed the trim whose outcome could not be known")
		}
	}, tweak)
}

// History below the oldest event says what there is; an agent reads what is kept.
func TestHistorySaysWhatIsKept(t *testing.T) {
	a, tweak := archived(session.Retention{MaxEvents: 10})
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		for range 10 {
			r.prompt(sid, "x")
			r.wait()
		}
		first := r.first(a, sid)
		s, _ := r.m.Get(sid)
		for _, after := range []frames.Seq{0, 1, first - 2} {
			_, err := r.m.History(t.Context(), sid, &after, nil, 0, 0)
			e, ok := errors.AsType[*session.ExpiredError](err)
			if !ok || *e != (session.ExpiredError{First: first, Head: s.Head, Epoch: s.Epoch}) || !strings.Contains(e.Error(), fmt.Sprint(first-1)) {
				t.Errorf("after %d: %v", after, err)
			}
		}
		for _, p := range []struct{ after, before *frames.Seq }{{after: new(first - 1)}, {before: new(s.Head + 1)}, {}} {
			page, err := r.m.History(t.Context(), sid, p.after, p.before, 0, 0)
			if err != nil || len(page.Events) == 0 || page.Events[0].Seq != first || page.More || page.First != first {
				t.Errorf("page %+v, %v; want all from %d", page, err, first)
			}
		}
		if page, err := r.m.History(t.Context(), sid, nil, new(first-2), 0, 0); err != nil || len(page.Events) != 0 || page.More || page.First != first {
			t.Errorf("before what is kept: %+v, %v; want nothing, and where it begins", page, err)
		}
		evs, err := r.agent.last.History(t.Context(), 0, 3)
		if err != nil || len(evs) != 3 || evs[0].Seq != first {
			t.Errorf("the agent reads %d events, %v", len(evs), err)
		}
	}, tweak)
}

// Asking for a view again reads only what happened since.
func TestViewsGoOnWhereTheyStood(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		for range 100 {
			r.prompt(sid, strings.Repeat("x", 1000))
			r.wait()
		}
		read := func() int {
			before := r.disk.bytes
			if _, _, err := r.m.View(t.Context(), sid); err != nil {
				t.Fatal(err)
			}
			return r.disk.bytes - before
		}
		if n := read(); n < 200_000 {
			t.Errorf("the first view read %d bytes, want the log", n)
		}
		if n := read(); n != 0 {
			t.Errorf("the same view again read %d bytes, want none", n)
		}
		r.prompt(sid, "one more")
		r.wait()
		if n := read(); n == 0 || n > 2000 {
			t.Errorf("the next view read %d bytes, want one turn", n)
		}
	})
}
