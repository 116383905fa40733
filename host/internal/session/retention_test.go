package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/pending"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// Where a log has more events than are to be kept it is cut behind the end of a
// turn, so that about as many are left, and folds to what it would untrimmed.
func TestLogsAreTrimmedToTheirEvents(t *testing.T) {
	a, tweak := archived(session.Retention{MaxEvents: 60})
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{Labels: map[string]string{"a": "b"}})
		trims := 0
		last := frames.Seq(1)
		for i := range 40 {
			r.prompt(sid, fmt.Sprint("turn ", i))
			r.wait()
			first := r.first(a, sid)
			if s, _ := r.m.Get(sid); int(s.Head-first)+1 > 66+4 || first > 1 && int(s.Head-first)+1 < 60-4 {
				t.Errorf("turn %d: %d events are kept, want about 60", i, s.Head-first+1)
			}
			if first != last {
				trims++
			}
			last = first
		}
		if trims < 4 || trims > 16 {
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
		for i := range 60 {
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
			for range 40 {
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

// A log of which nothing can go, such as that of one old turn, is not read again
// until something happens in it.
func TestLogsThatCannotBeTrimmedAreLeftAlone(t *testing.T) {
	for _, bound := range []session.Retention{{MaxAge: time.Hour}, {MaxEvents: 1}, {MaxBytes: 1}, {MaxTotalBytes: 1}} {
		a, tweak := archived(bound)
		bubble(t, func(r *rig) {
			sid := r.create(session.CreateArgs{})
			r.prompt(sid, "x")
			time.Sleep(3 * time.Hour)
			reads := 0
			r.disk.set(func(d *disk) { reads -= d.reads })
			time.Sleep(100 * time.Hour)
			r.disk.set(func(d *disk) { reads += d.reads })
			if reads != 0 {
				t.Errorf("%+v: %d reads of a log that does not change, want none", bound, reads)
			}
			r.prompt(sid, "x")
			time.Sleep(3 * time.Hour)
			if first := r.first(a, sid); first == 1 {
				t.Errorf("%+v: the old turn stays though it can go", bound)
			}
		}, tweak)
	}
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

// A trim that lands while an event is being stored counts, whichever is heard of
// first.
func TestTrimsBesideAppendsCount(t *testing.T) {
	a, tweak := archived(session.Retention{MaxEvents: 8})
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		a.set(func() { a.lag = second })
		for range 12 {
			r.prompt(sid, "x")
		}
		last := frames.Seq(1)
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			p, err := r.m.History(t.Context(), sid, nil, nil, 1, 0)
			if err != nil || p.First < last {
				t.Fatalf("it begins at %d, %v; it began at %d before", p.First, err, last)
			}
			last = p.First
		}
		if first := r.first(a, sid); first < 20 {
			t.Errorf("it begins at %d, want later", first)
		}
	}, tweak)
}

// Where a request is open at the end of a turn, as in a log that another host wrote,
// the log is not cut there.
func TestTrimsLeaveOpenRequests(t *testing.T) {
	for _, open := range []bool{false, true} {
		a, tweak := archived(session.Retention{MaxEvents: 4})
		bubble(t, func(r *rig) {
			sid := r.create(session.CreateArgs{})
			r.stop()
			var ps []frames.Payload
			for i := range 6 {
				ps = append(ps, frames.TurnStart{Trigger: "prompt"})
				if open && i == 2 {
					ps = append(ps, frames.ApprovalAsked{ID: "r1", Input: json.RawMessage(`{}`)}, frames.QuestionAsked{ID: "q1"})
				}
				if open && i == 4 {
					ps = append(ps, frames.ApprovalDecided{ID: "r1", Outcome: frames.Rejected})
				}
				ps = append(ps, frames.TodoWrite{}, frames.TurnEnd{Reason: frames.TurnCompleted})
			}
			r.write(a, sid, ps...)
			r.start()
			time.Sleep(time.Hour)
			first, ends := r.first(a, sid), a.lastEnds(t, sid)
			if want := ends[4] + 1; !open && first != want {
				t.Errorf("it begins at %d, want %d", first, want)
			}
			if want := ends[1] + 1; open && first != want {
				t.Errorf("it begins at %d, want %d: q1 is open behind that", first, want)
			}
		}, tweak)
	}
}

// write appends events to a session that no manager runs.
func (r *rig) write(a *archive, sid frames.SessionID, ps ...frames.Payload) {
	r.t.Helper()
	h, err := r.store.Head(r.t.Context(), sid)
	if err != nil {
		r.t.Fatal(err)
	}
	var evs []store.Event
	turn := frames.TurnID("")
	for i, p := range ps {
		e, err := frames.NewEvent(p)
		if err != nil {
			r.t.Fatal(err)
		}
		if e.Type == frames.TurnStartEvent {
			turn = frames.TurnID(r.ids.mint())
		}
		e.Seq, e.TurnID, e.Time = h.Seq+frames.Seq(i)+1, turn, frames.At(time.Now())
		enc, err := frames.EncodeEvent(e)
		if err != nil {
			r.t.Fatal(err)
		}
		evs = append(evs, store.Event{ID: r.ids.mint(), Type: string(e.Type), Time: time.Now(), Data: enc.Data})
	}
	if _, err := a.Append(r.t.Context(), sid, h, evs); err != nil {
		r.t.Fatal(err)
	}
}
