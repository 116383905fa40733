package session_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// outsideCase is one way in which an approval outside of turns ends.
type outsideCase struct {
	name    string
	policy  *frames.Policy
	budget  *frames.Budget
	before  func(o *outside) // before it is asked
	does    func(o *outside) // while it is open; nil: it is decided unasked
	outcome frames.Outcome
	cause   frames.Cause
}

// outside is an approval that the agent of a child session asks outside of turns.
type outside struct {
	*rig
	root, sid frames.SessionID
	bg        agent.Background
	ctx       context.Context
	cancel    context.CancelFunc
	got       chan agent.Decision
}

// ask asks, and returns what is pending then.
func (o *outside) ask() {
	o.goes(func() {
		d, err := o.bg.Ask(o.ctx, ask("c1", `{"command":"ls"}`))
		if err != nil && !errors.Is(err, session.ErrNoSession) {
			o.t.Errorf("Ask = %v", err)
		}
		o.got <- d
	})
	o.wait()
}

func (o *outside) answered(out frames.Outcome) {
	if err := o.answer(o.sid, o.approvals(o.sid)[0].ID, out); err != nil {
		o.t.Error(err)
	}
}

var outsideCases = []outsideCase{
	{name: "allowed", does: func(o *outside) { o.answered(frames.AllowedOnce) }, outcome: frames.AllowedOnce, cause: frames.CauseReply},
	{name: "allowed always", does: func(o *outside) { o.answered(frames.AllowedAlways) }, outcome: frames.AllowedAlways, cause: frames.CauseReply},
	{name: "rejected", does: func(o *outside) { o.answered(frames.Rejected) }, outcome: frames.Rejected, cause: frames.CauseReply},
	{name: "deadline", does: func(*outside) { time.Sleep(5 * time.Minute) }, outcome: frames.Rejected, cause: frames.CauseTimeout},
	{name: "withdrawn", does: func(o *outside) { o.cancel() }, outcome: frames.Cancelled, cause: frames.CauseAbort},
	{name: "cancelled", does: func(o *outside) {
		if !o.rig.cancel(o.sid, "", true) {
			o.t.Error("cancel says that there was nothing to cancel")
		}
	}, outcome: frames.Cancelled, cause: frames.CauseAbort},
	{name: "ancestor cancelled", does: func(o *outside) {
		if !o.rig.cancel(o.root, "", true) {
			o.t.Error("cancel says that there was nothing to cancel")
		}
	}, outcome: frames.Cancelled, cause: frames.CauseCascade},
	{name: "closed", does: func(o *outside) { o.close(o.sid) }, outcome: frames.Cancelled, cause: frames.CauseAbort},
	{name: "ancestor closed", does: func(o *outside) { o.close(o.root) }, outcome: frames.Cancelled, cause: frames.CauseCascade},
	{name: "shutdown", does: func(o *outside) { o.stop() }, outcome: frames.Cancelled, cause: frames.CauseShutdown},
	{name: "draining", before: func(o *outside) { o.m.Drain() }, outcome: frames.Cancelled, cause: frames.CauseShutdown},
	{
		name: "allow rule", policy: &frames.Policy{Rules: []frames.Rule{{Tool: "sh", Decision: "allow"}}},
		outcome: frames.AllowedOnce, cause: frames.CausePolicy,
	},
	{
		name: "deny rule", policy: &frames.Policy{Rules: []frames.Rule{{Tool: "sh", Decision: "deny"}}},
		outcome: frames.Rejected, cause: frames.CausePolicy,
	},
	{name: "mode deny", policy: &frames.Policy{Mode: "deny"}, outcome: frames.Rejected, cause: frames.CausePolicy},
	{name: "mode turns to deny", does: func(o *outside) {
		o.configure(session.ConfigureArgs{Session: o.sid, Policy: &frames.Policy{Mode: "deny"}})
	}, outcome: frames.Rejected, cause: frames.CauseModeChange},
	{name: "budget used up", budget: &frames.Budget{Tokens: 1}, before: func(o *outside) {
		if err := o.bg.Emit(o.t.Context(), frames.UsageUpdated{Usage: frames.Usage{InputTokens: 5}}); err != nil {
			o.t.Error(err)
		}
	}, outcome: frames.Rejected, cause: frames.CausePolicy},
	{name: "agent crashed", does: func(o *outside) {
		o.agent.on("crash", func(context.Context, agent.Turn, agent.Prompt) (agent.Result, error) { panic("boom") })
		o.prompt(o.sid, "crash")
	}, outcome: frames.Cancelled, cause: frames.CauseAbort},
	{name: "allow not stored", does: func(o *outside) {
		o.disk.fail(store.ErrFull)
		if err := o.answer(o.sid, o.approvals(o.sid)[0].ID, frames.AllowedOnce); !errors.Is(err, store.ErrFull) {
			o.t.Errorf("answer = %v, want the disk's error", err)
		}
		o.heals()
	}, outcome: frames.Unavailable, cause: frames.CauseAbort},
	{name: "rejection not stored", does: func(o *outside) {
		o.disk.fail(store.ErrFull)
		if err := o.answer(o.sid, o.approvals(o.sid)[0].ID, frames.Rejected); !errors.Is(err, store.ErrFull) {
			o.t.Errorf("answer = %v, want the disk's error", err)
		}
		o.heals()
	}, outcome: frames.Rejected, cause: frames.CauseReply},
	{
		name: "allow by rule not stored", policy: &frames.Policy{Rules: []frames.Rule{{Tool: "sh", Decision: "allow"}}},
		before: func(o *outside) { o.disk.fail(store.ErrFull); o.goes(o.heals) }, outcome: frames.Unavailable, cause: frames.CauseAbort,
	},
	{
		name: "rejection by rule not stored", policy: &frames.Policy{Rules: []frames.Rule{{Tool: "sh", Decision: "deny"}}},
		before: func(o *outside) { o.disk.fail(store.ErrFull); o.goes(o.heals) }, outcome: frames.Rejected, cause: frames.CausePolicy,
	},
}

// heals lets the disk work again, and what is owed to it be stored.
func (r *rig) heals() {
	time.Sleep(5 * time.Second)
	r.disk.fail(nil)
	time.Sleep(time.Minute)
}

// An approval outside of turns ends as one of a turn does, whatever ends it: the
// agent hears so, the log tells it once and names no turn, and the card is gone.
func TestApprovalsOutsideOfTurnsEnd(t *testing.T) {
	for _, tt := range outsideCases {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				o := &outside{rig: r, root: r.create(session.CreateArgs{}), got: make(chan agent.Decision, 1)}
				o.sid = r.create(session.CreateArgs{Parent: o.root, Policy: tt.policy, Budget: tt.budget})
				o.bg = r.knows(o.sid).Background
				o.ctx, o.cancel = context.WithCancel(r.t.Context())
				defer o.cancel()
				if tt.before != nil {
					tt.before(o)
				}
				o.ask()
				if tt.does != nil {
					o.wantOpen()
					tt.does(o)
				}
				d := <-o.got
				if d.Outcome != tt.outcome || d.Cause != tt.cause || d.Allowed() != tt.outcome.Allows() {
					t.Errorf("decision %+v, want %s/%s", d, tt.outcome, tt.cause)
				}
				time.Sleep(2 * time.Minute)
				r.wait()
				o.wantSettled(tt)
			})
		})
	}
}

func (o *outside) wantOpen() {
	o.t.Helper()
	as := o.approvals(o.sid)
	if len(as) != 1 || as[0].TurnID != "" || as[0].ParentSessionID != o.root || as[0].CallID != "c1" {
		o.t.Fatalf("pending %+v, want one card without a turn", as)
	}
	if st := o.pub.status(o.sid); st.State != frames.StateRequiresAction || st.Pending != 1 || st.TurnID != "" {
		o.t.Errorf("status %+v, want requires-action with one pending and no turn", st)
	}
	if st := o.pub.status(o.root); st.PendingBelow != 1 {
		o.t.Errorf("the root's status is %+v, want one pending below", st)
	}
}

func (o *outside) wantSettled(tt outsideCase) {
	o.t.Helper()
	var asked, decided []frames.Event
	for _, e := range o.log(o.sid) {
		switch e.Type {
		case frames.ApprovalAskedEvent:
			asked = append(asked, e)
		case frames.ApprovalDecidedEvent:
			decided = append(decided, e)
		}
	}
	if len(asked) != 1 || len(decided) != 1 || asked[0].TurnID != "" || decided[0].TurnID != "" {
		o.t.Fatalf("asked %v, decided %v; want one each without a turn", asked, decided)
	}
	if d := last[frames.ApprovalDecided](o.rig, o.sid); d.Outcome != tt.outcome || d.Origin != tt.cause || d.InputHash == "" {
		o.t.Errorf("the log says %+v, want %s/%s", d, tt.outcome, tt.cause)
	}
	res := framesOf[*frames.ApprovalResolved](o.pub, o.sid)
	if tt.does != nil && (len(res) != 1 || res[0].Outcome != tt.outcome || res[0].Origin != tt.cause) || tt.does == nil && len(res) != 0 {
		o.t.Errorf("resolved %+v", res)
	}
	if len(o.approvals("")) != 0 || o.pub.status(o.root).PendingBelow != 0 || o.pub.status(o.sid).Pending != 0 {
		o.t.Errorf("something is still pending: %+v, %+v", o.approvals(""), o.pub.status(o.sid))
	}
	o.wantClosed(o.sid, 0)
	if rows, err := o.store.Scan(o.t.Context(), store.TableDirty, "", "", 0); err != nil || len(rows) != 0 {
		o.t.Errorf("dirty rows %v, %v; want none", rows, err)
	}
}

// A question outside of turns waits as long as it takes, keeps the session awake,
// and survives turns that begin, end and are cancelled by name meanwhile.
func TestQuestionOutsideOfTurnsOutlivesThem(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("hang", hang)
		sid := r.create(session.CreateArgs{})
		bg := r.knows(sid).Background
		got := make(chan agent.Answers, 1)
		r.goes(func() {
			a, err := bg.Question(r.t.Context(), frames.Question{Question: "which?"})
			if err != nil {
				t.Error(err)
			}
			got <- a
		})
		r.wait()
		q := framesOf[*frames.QuestionRequested](r.pub, sid)[0]
		r.prompt(sid, "meanwhile")
		turn := r.prompt(sid, "hang").Turn
		r.wait()
		if st := r.pub.status(sid); st.State != frames.StateRequiresAction || st.TurnID != turn {
			t.Errorf("status %+v, want requires-action in the turn", st)
		}
		r.cancel(sid, turn, true)
		time.Sleep(24 * time.Hour)
		r.wait()
		if _, closed := r.agent.count(); closed != 0 || len(got) != 0 {
			t.Errorf("%d agents closed, %d answers; want the session awake and the question open", closed, len(got))
		}
		if v := r.view(sid); v.Status != frames.StateRequiresAction || len(v.Pending()) != 1 || v.Pending()[0].TurnID != "" {
			t.Errorf("the fold says %s with %+v pending", v.Status, v.Pending())
		}
		err := r.m.Answer(r.t.Context(), pending.Answer{
			Session: sid, ID: q.ID, Kind: pending.KindQuestion, Answers: []frames.Answer{{ID: "1", Text: "this"}},
		}, nil)
		if a := <-got; err != nil || a.Outcome != frames.Answered || len(a.Answers) != 1 || a.Answers[0].Text != "this" {
			t.Errorf("answered %+v, %v", a, err)
		}
		time.Sleep(6 * time.Minute)
		r.wait()
		if _, closed := r.agent.count(); closed != 1 {
			t.Errorf("%d agents closed, want the session cold again", closed)
		}
		if v := r.view(sid); v.Status != frames.StateIdle {
			t.Errorf("the fold says %s at the end, want idle", v.Status)
		}
	})
}

// A request that a cold session's agent asks wakes the session.
func TestAskingOutsideOfTurnsWakesTheSession(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		bg := r.knows(sid).Background
		time.Sleep(time.Hour)
		got := make(chan agent.Decision, 1)
		r.goes(func() { d, _ := bg.Ask(r.t.Context(), ask("c", `{}`)); got <- d })
		r.wait()
		if err := r.answer(sid, r.approvals(sid)[0].ID, frames.AllowedOnce); err != nil {
			t.Fatal(err)
		}
		if d := <-got; !d.Allowed() {
			t.Errorf("decision %+v, want allowed", d)
		}
		if err := r.m.Delete(r.t.Context(), nil, sid, false, nil, nil); err != nil {
			t.Fatal(err)
		}
		if d, err := bg.Ask(r.t.Context(), ask("c", `{}`)); !errors.Is(err, session.ErrNoSession) || d.Allowed() {
			t.Errorf("after the end: %+v, %v; want ErrNoSession", d, err)
		}
	})
}

// Draining leaves what is asked outside of turns answerable until the deadline, and
// waits no longer than for its answer.
func TestDrainWaitsForAnswersOutsideOfTurns(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		bg := r.knows(sid).Background
		got := make(chan agent.Decision, 1)
		r.goes(func() { d, _ := bg.Ask(r.t.Context(), ask("c", `{}`)); got <- d })
		r.wait()
		start := time.Now()
		r.goes(func() {
			time.Sleep(2 * time.Second)
			if err := r.answer(sid, r.approvals(sid)[0].ID, frames.AllowedOnce); err != nil {
				t.Error(err)
			}
		})
		ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
		defer cancel()
		if err := r.m.Shutdown(ctx); err != nil || time.Since(start) != 2*time.Second {
			t.Errorf("Shutdown = %v after %v, want nil after the answer", err, time.Since(start))
		}
		if d := <-got; !d.Allowed() {
			t.Errorf("decision %+v, want allowed", d)
		}
	})
}

// An answer that was on its way when the session was cancelled allows nothing.
func TestAllowOutsideOfTurnsYieldsToACancel(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		bg := r.knows(sid).Background
		got := make(chan agent.Decision, 1)
		r.goes(func() { d, _ := bg.Ask(r.t.Context(), ask("c", `{}`)); got <- d })
		r.wait()
		r.slow()
		r.goes(func() { _ = r.answer(sid, r.approvals(sid)[0].ID, frames.AllowedOnce) })
		r.wait()
		r.cancel(sid, "", false)
		if d := <-got; d.Allowed() || d.Outcome != frames.Cancelled || d.Cause != frames.CauseAbort {
			t.Errorf("decision %+v, want cancelled/abort", d)
		}
	})
}

// A cancel that comes while a request outside of turns is being stored or is about
// to be settles it.
func TestCancelMeetsARequestOnItsWay(t *testing.T) {
	for _, end := range []string{"cancel", "close"} {
		bubble(t, func(r *rig) {
			sid := r.create(session.CreateArgs{})
			bg := r.knows(sid).Background
			r.slow()
			got := make(chan agent.Decision, 3)
			for i := range 3 {
				r.goes(func() { d, _ := bg.Ask(r.t.Context(), ask(frames.CallID(fmt.Sprint(i)), `{}`)); got <- d })
			}
			r.wait()
			if end == "cancel" {
				r.cancel(sid, "", false)
			} else {
				r.close(sid)
			}
			for range 3 {
				if d := <-got; d.Outcome != frames.Cancelled || d.Cause != frames.CauseAbort {
					t.Errorf("%s: decision %+v, want cancelled/abort", end, d)
				}
			}
			r.wait()
			r.wantClosed(sid, 0)
			if n := len(r.approvals("")); n != 0 {
				t.Errorf("%s: %d are pending still", end, n)
			}
		})
	}
}

// Wherever the host is killed around requests outside of turns and a turn beside
// them, the log ends closed after the next start, and late answers are told how.
func TestKillAnywhereAroundRequestsOutsideOfTurns(t *testing.T) {
	for n := 1; ; n++ {
		done := false
		bubble(t, func(r *rig) {
			r.agent.on("go", busy(r))
			sid := r.create(session.CreateArgs{Policy: &frames.Policy{Rules: []frames.Rule{{Tool: "free", Decision: "allow"}}}})
			bg := r.knows(sid).Background
			r.disk.set(func(d *disk) { d.after, d.late = n, store.ErrClosed })
			r.goes(func() { _, _ = bg.Ask(r.t.Context(), ask("o1", `{}`)) })
			r.wait()
			_, _ = r.tryPrompt(sid, "go")
			r.goes(func() { _, _ = bg.Question(r.t.Context(), frames.Question{Question: "?"}) })
			r.goes(func() { _, _ = bg.Ask(r.t.Context(), ask("o2", `{}`)) })
			r.wait()
			ids := r.approvals(sid)
			for _, a := range ids {
				if a.CallID == "o1" {
					_ = r.answer(sid, a.ID, frames.AllowedOnce)
				}
			}
			r.wait()
			r.disk.set(func(d *disk) { done = d.late != nil })
			r.crash()
			r.wantClosed(sid, 0)
			for _, e := range r.log(sid) {
				p, _ := e.Payload()
				if q, ok := p.(*frames.ApprovalAsked); ok && (q.CallID == "o1" || q.CallID == "o2") != (e.TurnID == "") {
					t.Errorf("append %d: request %s is in turn %q", n, q.CallID, e.TurnID)
				}
			}
			for _, a := range ids {
				err := r.answer(sid, a.ID, frames.Rejected)
				if e, ok := errors.AsType[*pending.NotPendingError](err); !ok || e.Settled == nil {
					t.Errorf("append %d: late answer: %v, want to be told how it ended", n, err)
				}
			}
			r.crash()
			r.wantClosed(sid, 0)
		})
		if done {
			if n < 8 {
				t.Errorf("only %d appends were tried", n)
			}
			return
		}
	}
}

// More requests than fit one append are repaired, also where that is cut off.
func TestManyRequestsOutsideOfTurnsAreRepaired(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		bg := r.knows(sid).Background
		for i := range 300 {
			r.goes(func() { _, _ = bg.Ask(r.t.Context(), ask(frames.CallID(fmt.Sprint(i)), `{}`)) })
		}
		r.wait()
		was := r.tweak
		r.tweak = func(c *session.Config) {
			was(c)
			d := c.Store.(*disk)
			d.after, d.late = 1, store.ErrClosed
		}
		r.crash()
		r.crash()
		r.tweak = was
		r.crash()
		r.wantClosed(sid, 0)
		asked, decided := every[frames.ApprovalAsked](r, sid), every[frames.ApprovalDecided](r, sid)
		if len(asked) != 300 || len(decided) != 300 {
			t.Errorf("%d asked, %d decided; want 300 each", len(asked), len(decided))
		}
		for _, d := range decided {
			if !slices.ContainsFunc(asked, func(a *frames.ApprovalAsked) bool { return a.ID == d.ID && a.InputHash == d.InputHash }) ||
				d.Origin != frames.CauseShutdown {
				t.Errorf("decided %+v", d)
			}
		}
	})
}

// A request outside of turns, or its answer, of which it is not known whether it
// was stored ends in the log once, and keeps the session awake no longer.
func TestRequestsOutsideOfTurnsInLimboEnd(t *testing.T) {
	for _, at := range []string{"ask", "allow", "reject"} {
		eachOutcome(t, func(r *rig, landed bool) {
			sid := r.create(session.CreateArgs{})
			bg := r.knows(sid).Background
			if at == "ask" {
				r.blindfold(landed)
			}
			got := make(chan agent.Decision, 1)
			r.goes(func() { d, _ := bg.Ask(r.t.Context(), ask("c", `{}`)); got <- d })
			r.wait()
			want := frames.Unavailable
			if at != "ask" {
				id, o := r.approvals(sid)[0].ID, frames.AllowedOnce
				if at == "reject" {
					o, want = frames.Rejected, frames.Rejected
				}
				r.blindfold(landed)
				if err := r.answer(sid, id, o); !errors.Is(err, store.ErrUnknown) {
					r.t.Errorf("%s: answer = %v, want ErrUnknown", at, err)
				}
			}
			if d := <-got; d.Outcome != want {
				r.t.Errorf("%s: decision %+v, want %s", at, d, want)
			}
			r.see()
			asked, decided := every[frames.ApprovalAsked](r, sid), every[frames.ApprovalDecided](r, sid)
			if ends := len(decided); len(asked) > 0 && (ends == 0 || decided[ends-1].Outcome != want) || len(asked) == 0 && ends > 0 {
				r.t.Errorf("%s: asked %d, decided %+v; want %s last", at, len(asked), decided, want)
			}
			time.Sleep(10 * time.Minute)
			r.wait()
			if _, closed := r.agent.count(); closed != 1 {
				r.t.Errorf("%s: the session does not go cold", at)
			}
		})
	}
}

// A close waits until the ends of all requests are in the log, before its own event.
func TestCloseComesAfterTheEndsOfRequestsOutsideOfTurns(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		bg := r.knows(sid).Background
		for i := range 3 {
			r.goes(func() { _, _ = bg.Ask(r.t.Context(), ask(frames.CallID(fmt.Sprint(i)), `{}`)) })
		}
		r.wait()
		r.slow()
		r.close(sid)
		types := r.types(sid)
		if want := []string{"approval/decided", "approval/decided", "approval/decided", "session/closed"}; !slices.Equal(types[len(types)-4:], want) {
			t.Errorf("the log ends %v, want %v", types[len(types)-4:], want)
		}
	})
}

// What is asked outside of turns while the session is being closed is called off at
// once, and asked again once the session wakes.
func TestNothingIsAskedWhileTheSessionCloses(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		bg := r.knows(sid).Background
		r.agent.closing = func() { time.Sleep(5 * time.Second) }
		r.goes(func() { r.close(sid) })
		time.Sleep(second)
		start := time.Now()
		d, err := bg.Ask(r.t.Context(), ask("c", `{}`))
		if err != nil || d.Outcome != frames.Cancelled || d.Cause != frames.CauseAbort || time.Since(start) != 0 {
			t.Errorf("decision %+v, %v after %v; want cancelled/abort at once", d, err, time.Since(start))
		}
		time.Sleep(time.Minute)
		r.wait()
		r.wantClosed(sid, 0)
		if len(framesOf[*frames.ApprovalRequested](r.pub, sid)) != 0 {
			t.Error("a card was shown")
		}
		r.goes(func() { _, _ = bg.Ask(r.t.Context(), ask("c", `{}`)) })
		r.wait()
		if len(r.approvals(sid)) != 1 {
			t.Error("nothing is asked after the close")
		}
		r.close(sid)
	})
}

// slowBlobs takes its time to keep a blob.
type slowBlobs struct{ session.Blobs }

func (b slowBlobs) Put(ctx context.Context, r io.Reader) (frames.BlobID, int64, error) {
	time.Sleep(time.Hour)
	return b.Blobs.Put(ctx, r)
}

// A session whose agent is about to ask does not go cold meanwhile.
func TestSessionStaysAwakeForWhatIsAboutToBeAsked(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{Policy: &frames.Policy{AskTimeoutMs: 7_200_000}})
		bg := r.knows(sid).Background
		r.goes(func() {
			_, _ = bg.Ask(r.t.Context(), ask("c", `{"text":"`+strings.Repeat("x", 200<<10)+`"}`))
		})
		time.Sleep(time.Hour)
		r.wait()
		if len(r.approvals(sid)) != 1 {
			t.Errorf("%d requests are open, want one", len(r.approvals(sid)))
		}
		r.cancel(sid, "", false)
	}, func(c *session.Config) { c.Blobs = slowBlobs{c.Blobs} })
}
