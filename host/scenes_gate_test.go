package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/demo"
	"github.com/muxhost/muxhost/host/hosttest"
	"github.com/muxhost/muxhost/rpc"
)

// gate lets the puppet ask once for each prompt "gate ID", and counts what it
// hears.
func gate(s *scene) (heard func() []agent.Decision) {
	var mu sync.Mutex
	var all []agent.Decision
	s.pup.on("gate", func(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
		d, err := gatedCall(ctx, t, strings.TrimPrefix(p.Text(), "gate "))
		mu.Lock()
		defer mu.Unlock()
		all = append(all, d)
		return agent.Result{}, err
	})
	return func() []agent.Decision {
		mu.Lock()
		defer mu.Unlock()
		return append([]agent.Decision(nil), all...)
	}
}

// Fifty clients answer one approval at once: one wins, forty-nine learn who did,
// the agent hears one answer and every client one end.
func TestFiftyAnswersAtOnceHaveOneWinner(t *testing.T) {
	const clients = 50
	counted(t, func(t *testing.T, s *scene, c *counting) {
		heard := gate(s)
		boss := s.dial()
		sid := s.create(boss)
		ws := make([]*hosttest.Watch, clients)
		for i := range ws {
			ws[i] = s.dial()
			s.watch(ws[i], sid, 0)
		}
		s.prompt(boss, sid, "gate c")
		synctest.Wait()
		id := framesOf[*frames.ApprovalRequested](ws[0])[0].ID
		c.delay.Store(int64(time.Millisecond)) // all come while the first is being stored
		replies := make([]hosttest.Reply, clients)
		var wg sync.WaitGroup
		for i, w := range ws {
			outcome := []frames.Outcome{frames.AllowedOnce, frames.Rejected}[i%2]
			wg.Go(func() {
				var err error
				if replies[i], err = w.Call(t.Context(), "approval.respond", map[string]any{"sessionId": sid, "id": id, "outcome": outcome}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := rest(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		won := winner(t, replies)
		if got := heard(); len(got) != 1 || got[0].Outcome != won.Outcome || got[0].By == nil || got[0].By.ClientID != won.By.ClientID {
			t.Errorf("the agent heard %+v, want one %s by %s", got, won.Outcome, won.By.ClientID)
		}
		for i, w := range ws {
			ends := framesOf[*frames.ApprovalResolved](w)
			if len(ends) != 1 || ends[0].Outcome != won.Outcome || ends[0].By == nil || ends[0].By.ClientID != won.By.ClientID {
				t.Errorf("client %d was told %+v, want one end: %s by %s", i, ends, won.Outcome, won.By.ClientID)
			}
		}
		if decided, _ := payloads[frames.ApprovalDecided](t, s.log(boss, sid), frames.ApprovalDecidedEvent); len(decided) != 1 {
			t.Errorf("the log has %d decisions, want 1", len(decided))
		}
	})
}

// settled is how an answer that came too late is told what stands.
type settled struct {
	Outcome frames.Outcome
	Origin  frames.Cause
	By      *frames.By
}

// winner checks that one reply accepts and the others name the winner.
func winner(t *testing.T, replies []hosttest.Reply) settled {
	t.Helper()
	var won settled
	accepted := 0
	for i, r := range replies {
		if r.Kind() == "ok" {
			accepted++
			continue
		}
		var d struct{ Details settled }
		if err := json.Unmarshal(r.Error.Data, &d); r.Kind() != "approval-not-pending" || err != nil || d.Details.By == nil {
			t.Fatalf("reply %d: %s %s, want approval-not-pending that names the winner", i, r.Kind(), r.Error.Data)
		}
		if won.By != nil && (won.Outcome != d.Details.Outcome || won.By.ClientID != d.Details.By.ClientID) {
			t.Errorf("two winners are named: %+v and %+v", won, d.Details)
		}
		won = d.Details
	}
	if accepted != 1 {
		t.Errorf("%d answers were accepted, want 1", accepted)
	}
	return won
}

// levels has the prompt "level N" ask once, below the root, and start level N+1.
func levels(s *scene) {
	s.pup.on("level", func(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
		var n int
		if _, err := fmt.Sscanf(p.Text(), "level %d", &n); err != nil {
			return agent.Result{}, err
		}
		var child agent.Child
		if n < 3 {
			var err error
			if child, err = t.Spawn(ctx, agent.Spawn{Prompt: []frames.ContentBlock{frames.Text(fmt.Sprint("level ", n+1))}}); err != nil {
				return agent.Result{}, err
			}
		}
		if n > 0 {
			if _, err := gatedCall(ctx, t, fmt.Sprint("call-", n)); err != nil {
				return agent.Result{}, err
			}
		}
		if child.Wait != nil {
			_, err := child.Wait(ctx)
			return agent.Result{}, err
		}
		return agent.Result{}, nil
	})
}

// Approvals of three levels of subagents reach who watches the root's tree and who
// watches the inbox, are answered there, and every ancestor counts them at each
// step.
func TestApprovalsOfGrandchildrenAreAnsweredAtTheRoot(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		levels(s)
		tree, inbox := s.dial(), s.dial()
		root := s.create(tree)
		s.watchTree(tree, root)
		s.inbox(inbox)
		s.prompt(tree, root, "level 0")
		synctest.Wait()
		cards := map[int]*frames.ApprovalRequested{}
		for name, w := range map[string]*hosttest.Watch{"tree": tree, "inbox": inbox} {
			got := framesOf[*frames.ApprovalRequested](w)
			if len(got) != 3 {
				t.Fatalf("the %s watcher got %d cards, want 3", name, len(got))
			}
			for _, c := range got {
				if c.RootSessionID != root || c.ParentSessionID == "" {
					t.Errorf("the %s watcher's card has the lineage root %s, parent %s, depth %d", name, c.RootSessionID, c.ParentSessionID, c.Depth)
				}
				cards[c.Depth] = c
			}
		}
		lineage := []frames.SessionID{root, cards[1].SessionID, cards[2].SessionID, cards[3].SessionID}
		s.counts(inbox, "all wait", lineage, [4][2]int{{0, 3}, {1, 2}, {1, 1}, {1, 0}})
		answer := func(w *hosttest.Watch, depth int, want [4][2]int) {
			if kind := s.respond(w, cards[depth].SessionID, cards[depth].ID, frames.AllowedOnce); kind != "ok" {
				t.Errorf("respond at depth %d: %s", depth, kind)
			}
			synctest.Wait()
			s.counts(inbox, fmt.Sprintf("depth %d is answered", depth), lineage, want)
			s.counts(tree, fmt.Sprintf("depth %d is answered", depth), lineage, want)
		}
		answer(tree, 3, [4][2]int{{0, 2}, {1, 1}, {1, 0}, {0, 0}})
		answer(inbox, 1, [4][2]int{{0, 1}, {0, 1}, {1, 0}, {0, 0}})
		answer(tree, 2, [4][2]int{})
		for sid, x := range s.list(tree) {
			if x.State != frames.StateIdle || x.Pending+x.PendingBelow != 0 {
				t.Errorf("%s at the end: %s, %d pending, %d below", sid, x.State, x.Pending, x.PendingBelow)
			}
		}
	})
}

// counts compares the last status that a client was told of each session, and what
// the list says, to {pending, pendingBelow}.
func (s *scene) counts(w *hosttest.Watch, when string, lineage []frames.SessionID, want [4][2]int) {
	s.t.Helper()
	told := map[frames.SessionID][2]int{}
	for _, f := range framesOf[*frames.SessionStatus](w) {
		told[f.SessionID] = [2]int{f.Pending, f.PendingBelow}
	}
	listed := s.list(w)
	for i, sid := range lineage {
		if told[sid] != want[i] {
			s.t.Errorf("when %s: the last status of depth %d says %v, want %v (pending, below)", when, i, told[sid], want[i])
		}
		if got := [2]int{listed[sid].Pending, listed[sid].PendingBelow}; got != want[i] {
			s.t.Errorf("when %s: the list says %v of depth %d, want %v", when, got, i, want[i])
		}
	}
}

// With nobody connected an approval is rejected by the clock, exactly at its
// deadline and for good; the model is told that the call expired and did not run,
// the turn goes on, and whoever comes later learns all of it.
func TestDeadlinePassesWithNobodyThere(t *testing.T) {
	play(t, func(c *host.Config) { c.Drivers = append(c.Drivers, demo.New(demo.Options{})) }, func(t *testing.T, s *scene) {
		first := s.dial()
		sid := ask[rpc.SessionResult](s, first, "session.create", map[string]any{
			"cwd": s.dir, "agent": "demo", "config": map[string]any{"role": "fix"},
		}).Session.SessionID
		s.watch(first, sid, 0)
		s.prompt(first, sid, "go")
		at := 0
		card, err := first.Next(t.Context(), &at, isCard)
		if err != nil {
			t.Fatal(err)
		}
		asked := card.Frame.(*frames.ApprovalRequested)
		if d := asked.ExpiresAt.Sub(asked.AskedAt.Time); d != 300*time.Second {
			t.Errorf("the deadline is %v after the request, want 300 s", d)
		}
		s.leave(first)
		if err := rest(t.Context(), time.Until(asked.ExpiresAt.Time)-time.Millisecond); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		late := s.dial()
		if got, _ := payloads[frames.ApprovalDecided](t, s.log(late, sid), frames.ApprovalDecidedEvent); len(got) != 0 {
			t.Errorf("a millisecond early: %+v, want it open", got)
		}
		if err := rest(t.Context(), 2*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.watch(late, sid, 0)
		synctest.Wait()
		if cards := framesOf[*frames.ApprovalRequested](late); len(cards) != 0 {
			t.Errorf("who comes later is shown %d cards, want none", len(cards))
		}
		log := s.log(late, sid)
		got, at2 := payloads[frames.ApprovalDecided](t, log, frames.ApprovalDecidedEvent)
		if len(got) != 1 || got[0].Outcome != frames.Rejected || got[0].Origin != frames.CauseTimeout || got[0].By != nil || !at2[0].Time.Equal(asked.ExpiresAt.Time) {
			t.Errorf("decided = %+v %+v, want rejected by timeout at %v", got, at2, asked.ExpiresAt)
		}
		results, _ := payloads[frames.ToolResult](t, log, frames.ToolResultEvent)
		if len(results) != 1 || !results[0].IsError || !strings.Contains(results[0].Content[0].Text, "was not run: nobody answered in time") {
			t.Errorf("the model was told %+v, want that the call expired and was not run", results)
		}
		ends, _ := payloads[frames.TurnEnd](t, log, frames.TurnEndEvent)
		if len(ends) != 1 || ends[0].Reason != frames.TurnCompleted {
			t.Errorf("the turn ended %+v, want completed: a timeout is a rejection", ends)
		}
		r, err := late.Call(t.Context(), "approval.respond", map[string]any{"sessionId": sid, "id": asked.ID, "outcome": "allowed-once"})
		if err != nil {
			t.Fatal(err)
		}
		var d struct{ Details settled }
		if r.Kind() != "approval-not-pending" || json.Unmarshal(r.Error.Data, &d) != nil || d.Details.Outcome != frames.Rejected || d.Details.Origin != frames.CauseTimeout {
			t.Errorf("a late answer: %s %+v, want approval-not-pending, rejected by timeout", r.Kind(), r.Error)
		}
	})
}

// A cancel over a tree aborts what the session itself asked and cascades to what
// its descendants asked; the turn ends after theirs, and a second cancel of it
// spares the prompt that came meanwhile.
func TestCancelSettlesATreeAndSparesTheNextPrompt(t *testing.T) {
	counted(t, func(t *testing.T, s *scene, c *counting) {
		gate(s)
		s.pup.on("parent", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			for i := range 2 {
				if _, err := t.Spawn(ctx, agent.Spawn{Prompt: []frames.ContentBlock{frames.Text(fmt.Sprint("gate child-", i))}}); err != nil {
					return agent.Result{}, err
				}
			}
			_, err := gatedCall(ctx, t, "own")
			return agent.Result{}, err
		})
		w := s.dial()
		root := s.create(w)
		s.watchTree(w, root)
		turn := s.prompt(w, root, "parent").TurnID
		synctest.Wait()
		cancel := map[string]any{"sessionId": root, "turnId": turn}
		firstCancel, err := w.Start(t.Context(), "session.cancel", cancel)
		if err != nil {
			t.Fatal(err)
		}
		next, err := w.Start(t.Context(), "session.prompt", promptParams(root, "gate next"))
		if err != nil {
			t.Fatal(err)
		}
		secondCancel, err := w.Start(t.Context(), "session.cancel", cancel)
		if err != nil {
			t.Fatal(err)
		}
		for name, wait := range map[string]func() (hosttest.Reply, error){"cancel": firstCancel, "prompt": next, "second cancel": secondCancel} {
			if r, err := wait(); err != nil || r.Kind() != "ok" {
				t.Errorf("%s: %s %v", name, r.Kind(), err)
			}
		}
		synctest.Wait()
		s.cascaded(w, root)
		c.endsLast(t, root)
		if x := s.list(w)[root]; x.State != frames.StateRequiresAction {
			t.Errorf("after both cancels the next prompt's session is %s, want it waiting for its approval", x.State)
		}
		cards := w.Cards()
		if len(cards) != 1 {
			t.Fatalf("cards = %v, want the next prompt's", cards)
		}
		if kind := s.respond(w, root, cards[0], frames.AllowedOnce); kind != "ok" {
			t.Errorf("the next prompt's approval: %s", kind)
		}
		synctest.Wait()
		ends, _ := payloads[frames.TurnEnd](t, s.log(w, root), frames.TurnEndEvent)
		if len(ends) != 2 || ends[0].Reason != frames.TurnCancelled || ends[1].Reason != frames.TurnCompleted {
			t.Errorf("turns ended %+v, want cancelled, then completed", ends)
		}
	})
}

// cascaded holds what a client was told of a cancel over a tree.
func (s *scene) cascaded(w *hosttest.Watch, root frames.SessionID) {
	s.t.Helper()
	causes := map[frames.Cause]int{}
	for _, f := range framesOf[*frames.ApprovalResolved](w) {
		causes[f.Origin]++
		if own := f.SessionID == root; f.Outcome != frames.Cancelled || (f.Origin == frames.CauseAbort) != own {
			s.t.Errorf("a request of root (%v) was settled %s by %s", own, f.Outcome, f.Origin)
		}
	}
	if causes[frames.CauseAbort] != 1 || causes[frames.CauseCascade] != 2 {
		s.t.Errorf("settled by %v, want one abort and two cascades", causes)
	}
}

// endsLast holds that the first turn/end of root was stored after two others.
func (c *counting) endsLast(t *testing.T, root frames.SessionID) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	below := 0
	for _, e := range c.order {
		if e.event != string(frames.TurnEndEvent) {
			continue
		}
		if e.session == root {
			break
		}
		below++
	}
	if below != 2 {
		t.Errorf("the cancelled turn ended after %d of its 2 descendants", below)
	}
}

// While the host goes down clients are told, prompts are refused, what is open is
// answerable until the deadline and then settled by shutdown, all before 1001; the
// next start shows all of it.
func TestShutdownLeavesNothingOpenAndForgetsNothing(t *testing.T) {
	play(t, func(c *host.Config) { c.DrainTimeout = 10 * time.Second }, func(t *testing.T, s *scene) {
		gate(s)
		w := s.dial()
		s.inbox(w)
		answered, left := s.create(w), s.create(w)
		for _, sid := range []frames.SessionID{answered, left} {
			s.watch(w, sid, 0)
			s.prompt(w, sid, "gate c")
		}
		synctest.Wait()
		cards := map[frames.SessionID]*frames.ApprovalRequested{}
		for _, c := range framesOf[*frames.ApprovalRequested](w) {
			cards[c.SessionID] = c
		}
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.host.Shutdown(context.Background()); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
		})
		if err := rest(t.Context(), 5*time.Second); err != nil {
			t.Fatal(err)
		}
		if told := framesOf[*frames.HostDraining](w); len(told) != 1 || !told[0].Deadline.Equal(began.Add(10*time.Second)) {
			t.Errorf("host/draining = %+v, want one with the deadline 10 s after the start", told)
		}
		if r, err := w.Call(t.Context(), "session.prompt", promptParams(left, "gate more")); err != nil || r.Kind() != "draining" {
			t.Errorf("a prompt while draining: %s %v", r.Kind(), err)
		}
		if kind := s.respond(w, answered, cards[answered].ID, frames.AllowedOnce); kind != "ok" {
			t.Errorf("an answer while draining: %s", kind)
		}
		wg.Wait()
		if d := time.Since(began); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("shutting down took %v, want the 10 s of draining", d)
		}
		synctest.Wait()
		if code := w.CloseCode(); code != 1001 {
			t.Errorf("closed with %d (%v), want 1001", code, w.Err())
		}
		outcomes := map[frames.SessionID]settled{}
		for _, f := range framesOf[*frames.ApprovalResolved](w) {
			outcomes[f.SessionID] = settled{f.Outcome, f.Origin, f.By}
		}
		if o := outcomes[left]; o.Outcome != frames.Cancelled || o.Origin != frames.CauseShutdown {
			t.Errorf("the open request was settled %+v before 1001, want cancelled by shutdown", o)
		}
		seen := map[frames.SessionID]frames.Seq{}
		for _, sid := range []frames.SessionID{answered, left} {
			seen[sid], _ = w.Cursor(sid)
		}
		s.leave(w)
		s.start()
		s.afterRestart(seen, map[frames.SessionID]frames.TurnEndReason{answered: frames.TurnCompleted, left: frames.TurnInterrupted})
	})
}

// afterRestart compares the logs after a restart with what a client saw before.
func (s *scene) afterRestart(seen map[frames.SessionID]frames.Seq, reasons map[frames.SessionID]frames.TurnEndReason) {
	s.t.Helper()
	w := s.dial()
	for sid, reason := range reasons {
		log := s.log(w, sid)
		if int(seen[sid]) != len(log) {
			s.t.Errorf("%s: the client saw %d events before 1001, the log has %d", sid, seen[sid], len(log))
		}
		ends, _ := payloads[frames.TurnEnd](s.t, log, frames.TurnEndEvent)
		decided, _ := payloads[frames.ApprovalDecided](s.t, log, frames.ApprovalDecidedEvent)
		if len(ends) != 1 || ends[0].Reason != reason || len(decided) != 1 {
			s.t.Errorf("%s after the restart: ends %+v, decided %+v; want %s and one decision", sid, ends, decided, reason)
		}
		if x := s.list(w)[sid]; x.State != frames.StateIdle || x.Pending != 0 {
			s.t.Errorf("%s after the restart is %s with %d pending", sid, x.State, x.Pending)
		}
	}
	if p := ask[rpc.PendingResult](s, w, "pending.list", map[string]any{}); len(p.Pending) != 0 {
		s.t.Errorf("pending after the restart: %+v", p.Pending)
	}
}
