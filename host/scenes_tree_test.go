package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/hosttest"
)

// Fifty children are born, ask and end while clients attach to their tree and to
// the inbox at the same instants: every client ends with the same sessions, whole
// logs, and no card, and broke no rule of order on the way.
func TestChildrenBornAroundAttachesAreMissedByNobody(t *testing.T) {
	const children, clients = 50, 8
	rounds := under(1, 8)
	play(t, nil, func(t *testing.T, s *scene) {
		for round := range rounds {
			rng := seeded(round)
			at := make([]time.Duration, children+clients)
			for i := range at {
				at[i] = time.Duration(rng.IntN(12)) * time.Millisecond
			}
			s.pup.on("bear", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
				return agent.Result{}, bear(ctx, t, at[:children])
			})
			s.pup.on("child", func(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
				if err := say(ctx, t, "one ", "two ", "three"); err != nil {
					return agent.Result{}, err
				}
				if strings.HasSuffix(p.Text(), "0") {
					return agent.Result{}, nil
				}
				_, err := gatedCall(ctx, t, "c")
				return agent.Result{}, err
			})
			boss := s.dial()
			root := s.create(boss)
			var wg sync.WaitGroup
			watchers := make([]*hosttest.Watch, clients)
			for i := range watchers {
				watchers[i] = s.dial()
			}
			s.prompt(boss, root, "bear")
			for i, w := range watchers {
				wg.Go(func() {
					if rest(t.Context(), at[children+i]) != nil {
						return
					}
					params := from(root, 0, true)
					params["host"] = i%3 == 1
					if i%3 == 2 { // the inbox first, the tree in a second call
						s.inbox(w)
					}
					if r, err := w.Call(s.t.Context(), "mux.subscribe", params); err != nil || r.Error != nil {
						s.t.Errorf("mux.subscribe: %v %+v", err, r.Error)
					}
				})
			}
			wg.Wait()
			s.settleAll(watchers, root)
			s.sameEverywhere(boss, root, watchers, children+1)
			for _, w := range append(watchers, boss) {
				s.leave(w)
			}
			if t.Failed() {
				t.Fatalf("in round %d", round)
			}
		}
	})
}

// bear starts children at the given instants and waits for them.
func bear(ctx context.Context, t agent.Turn, at []time.Duration) error {
	errs := make([]error, len(at))
	var wg sync.WaitGroup
	for i, d := range at {
		wg.Go(func() {
			if errs[i] = rest(ctx, d); errs[i] != nil {
				return
			}
			var c agent.Child
			c, errs[i] = t.Spawn(ctx, agent.Spawn{Prompt: []frames.ContentBlock{frames.Text(fmt.Sprint("child ", i))}})
			if errs[i] == nil {
				_, errs[i] = c.Wait(ctx)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// settleAll has the watchers answer every card, each card by several of them,
// until the root's turn has ended for all.
func (s *scene) settleAll(watchers []*hosttest.Watch, root frames.SessionID) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for i, w := range watchers {
		wg.Go(func() {
			at, cards := 0, i
			_, err := w.Next(ctx, &at, func(g hosttest.Got) bool {
				if a, ok := g.Frame.(*frames.ApprovalRequested); ok {
					if cards++; i == 0 || cards%3 == 0 {
						wg.Go(func() {
							if _, err := w.Call(ctx, "approval.respond", map[string]any{"sessionId": a.SessionID, "id": a.ID, "outcome": "allowed-once"}); err != nil {
								s.t.Errorf("approval.respond: %v", err)
							}
						})
					}
				}
				return ended(g, root)
			})
			if err != nil {
				s.t.Errorf("client %d waits for the root's end: %v", i, err)
			}
		})
	}
	wg.Wait()
	synctest.Wait()
}

// ended reports whether g is the end of a turn of sid.
func ended(g hosttest.Got, sid frames.SessionID) bool {
	f, ok := g.Frame.(*frames.SessionEvent)
	return ok && f.SessionID == sid && g.Event.Type == frames.TurnEndEvent
}

// sameEverywhere compares what clients ended with to the logs.
func (s *scene) sameEverywhere(boss *hosttest.Watch, root frames.SessionID, watchers []*hosttest.Watch, n int) {
	s.t.Helper()
	want := map[frames.SessionID]frames.Seq{}
	for sid, x := range s.list(boss) {
		if x.RootSessionID == root {
			want[sid] = x.Head
		}
	}
	if len(want) != n {
		s.t.Errorf("%d sessions in the tree, want %d", len(want), n)
	}
	for i, w := range watchers {
		if got := len(w.Subscribed()); got != n {
			s.t.Errorf("client %d: %d subscriptions, want %d", i, got, n)
		}
		if open := w.Cards(); len(open) > 0 {
			s.t.Errorf("client %d still shows %v", i, open)
		}
		added := w.Added()
		for sid, head := range want {
			if got, live := w.Cursor(sid); got != head || !live {
				s.t.Errorf("client %d: session %s: at event %d (live: %v), the log has %d", i, sid, got, live, head)
			}
			if sid != root && i%3 != 1 && !slices.Contains(added, sid) && !s.named(w, sid) {
				s.t.Errorf("client %d was not told of session %s before its baseline", i, sid)
			}
		}
		s.addedFirst(i, w, root)
	}
}

// named reports whether a session was in a response to the client's calls.
func (s *scene) named(w *hosttest.Watch, sid frames.SessionID) bool {
	for _, g := range w.Got() {
		if g.Frame == nil && strings.Contains(string(g.Raw), string(sid)) {
			return true
		}
	}
	return false
}

// addedFirst holds the order of a descendant's birth: `host/session-added`, then
// `session/subscribed`.
func (s *scene) addedFirst(i int, w *hosttest.Watch, root frames.SessionID) {
	s.t.Helper()
	added := map[frames.SessionID]bool{root: true}
	for _, g := range w.Got() {
		switch f := g.Frame.(type) {
		case *frames.SessionAdded:
			added[f.SessionID] = true
		case *frames.SessionSubscribed:
			if !added[f.SessionID] {
				s.t.Errorf("client %d: session/subscribed of %s came before its host/session-added", i, f.SessionID)
			}
		}
	}
}

// asksWhenTold is a turn that asks n times, each time when it is told to.
func asksWhenTold(asked <-chan struct{}, n int) act {
	return func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
		for i := range n {
			select {
			case <-asked:
			case <-ctx.Done():
				return agent.Result{}, context.Cause(ctx)
			}
			if _, err := t.Ask(ctx, agent.Approval{Tool: frames.Tool{Name: "sh"}, Input: fmt.Appendf(nil, `{"n":%d}`, i)}); err != nil {
				return agent.Result{}, err
			}
		}
		return agent.Result{}, nil
	}
}

// A request that is raised and settled at the very moment of an attach is shown
// and ended on that connection, or neither; thousands of times.
func TestRequestsAroundAnAttachAreShownAndEnded(t *testing.T) {
	rounds := under(300, 2000)
	play(t, nil, func(t *testing.T, s *scene) {
		asked := make(chan struct{})
		s.pup.on("asks", asksWhenTold(asked, rounds))
		boss, same := s.dial(), s.dial()
		sid := s.create(boss)
		s.inbox(boss)
		s.watch(same, sid, 0)
		s.prompt(boss, sid, "asks")
		seen := 0
		var old *hosttest.Watch
		for round := range rounds {
			rng := seeded(round)
			fresh, yields := s.dial(), [3]int{rng.IntN(20), rng.IntN(20), rng.IntN(60)}
			var wg sync.WaitGroup
			wg.Go(func() { // attach anew, by a new connection and by one that is there
				yield(yields[0])
				params := from(sid, 2*round, round%2 == 0)
				params["host"] = round%3 == 0
				ask[json.RawMessage](s, fresh, "mux.subscribe", params)
				yield(yields[1])
				ask[json.RawMessage](s, same, "mux.subscribe", from(sid, -1, false))
			})
			wg.Go(func() {
				yield(yields[1])
				asked <- struct{}{}
				card, err := boss.Next(t.Context(), &seen, isCard)
				if err != nil {
					t.Error(err)
					return
				}
				yield(yields[2])
				if kind := s.respond(boss, sid, card.Frame.(*frames.ApprovalRequested).ID, frames.Rejected); kind != "ok" {
					t.Errorf("round %d: respond: %s", round, kind)
				}
			})
			wg.Wait()
			synctest.Wait()
			for name, w := range map[string]*hosttest.Watch{"new": fresh, "same": same, "boss": boss} {
				if open := w.Cards(); len(open) > 0 {
					t.Errorf("round %d: the %s client still shows %v", round, name, open)
				}
			}
			if old != nil {
				s.leave(old)
			}
			old = fresh
			if t.Failed() {
				t.Fatalf("in round %d", round)
			}
		}
	})
}

// isCard reports whether g asks for an approval.
func isCard(g hosttest.Got) bool {
	_, ok := g.Frame.(*frames.ApprovalRequested)
	return ok
}

func yield(n int) {
	for range n {
		runtime.Gosched()
	}
}
