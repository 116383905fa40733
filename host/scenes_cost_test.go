package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/hosttest"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/store"
)

// counting is a store that counts what is asked of it.
type counting struct {
	store.Store
	reads, readEvents, readBytes, appends, rest atomic.Int64

	delay atomic.Int64 // of each append, in nanoseconds

	mu    sync.Mutex
	order []stored // every event in the order of being stored
}

// stored is one event as it was stored.
type stored struct {
	session frames.SessionID
	event   string
}

func (c *counting) Read(ctx context.Context, sid frames.SessionID, after frames.Seq, limit, maxBytes int) ([]store.Event, error) {
	evs, err := c.Store.Read(ctx, sid, after, limit, maxBytes)
	c.reads.Add(1)
	c.readEvents.Add(int64(len(evs)))
	for _, e := range evs {
		c.readBytes.Add(int64(len(e.Data)))
	}
	return evs, err
}

func (c *counting) Append(ctx context.Context, sid frames.SessionID, at store.Head, evs []store.Event, rows ...store.Row) (store.Head, error) {
	c.appends.Add(1)
	if d := c.delay.Load(); d > 0 {
		if err := rest(ctx, time.Duration(d)); err != nil {
			return store.Head{}, err
		}
	}
	head, err := c.Store.Append(ctx, sid, at, evs, rows...)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, e := range evs {
			c.order = append(c.order, stored{sid, e.Type})
		}
	}
	return head, err
}

func (c *counting) Head(ctx context.Context, sid frames.SessionID) (store.Head, error) {
	c.rest.Add(1)
	return c.Store.Head(ctx, sid)
}

func (c *counting) Get(ctx context.Context, table, key string) ([]byte, error) {
	c.rest.Add(1)
	return c.Store.Get(ctx, table, key)
}

func (c *counting) Put(ctx context.Context, rows ...store.Row) error {
	c.rest.Add(1)
	return c.Store.Put(ctx, rows...)
}

func (c *counting) List(ctx context.Context, prefix string, after frames.SessionID, limit int) ([]store.Summary, error) {
	c.rest.Add(1)
	return c.Store.List(ctx, prefix, after, limit)
}

func (c *counting) Scan(ctx context.Context, table, prefix, after string, limit int) ([]store.Row, error) {
	c.rest.Add(1)
	return c.Store.Scan(ctx, table, prefix, after, limit)
}

// spent is what was asked of the store.
type spent struct{ reads, readEvents, readBytes, appends, rest int64 }

// take returns what was asked since the last take.
func (c *counting) take() spent {
	return spent{c.reads.Swap(0), c.readEvents.Swap(0), c.readBytes.Swap(0), c.appends.Swap(0), c.rest.Swap(0)}
}

// counted is a host whose store counts.
func counted(t *testing.T, f func(t *testing.T, s *scene, c *counting)) {
	t.Helper()
	c := &counting{}
	play(t, func(cfg *host.Config) {
		if c.Store == nil {
			c.Store = cfg.Store
		}
		cfg.Store = c
	}, func(t *testing.T, s *scene) {
		s.pup.on("say", func(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
			var n int
			if _, err := fmt.Sscanf(p.Text(), "say %d", &n); err != nil {
				return agent.Result{}, err
			}
			for i := range n {
				if err := say(ctx, t, "word ", fmt.Sprint(i)); err != nil {
					return agent.Result{}, err
				}
			}
			return agent.Result{}, nil
		})
		f(t, s, c)
	})
}

// Subscribing reads from the store what it sends and no more, wherever the cursor
// is and however long the log; what is in memory is not read at all.
func TestSubscribingReadsWhatItSends(t *testing.T) {
	counted(t, func(t *testing.T, s *scene, c *counting) {
		boss := s.dial()
		sid := s.create(boss)
		s.prompt(boss, sid, fmt.Sprint("say ", under(1500, 5000)))
		synctest.Wait()
		head := int(s.list(boss)[sid].Head)
		for _, gap := range []int{0, 1, 10, 1000, head} {
			w := s.dial()
			c.take()
			s.watch(w, sid, head-gap)
			synctest.Wait()
			got := c.take()
			if cursor, live := w.Cursor(sid); int(cursor) != head || !live {
				t.Errorf("a gap of %d: at %d of %d (live: %v)", gap, cursor, head, live)
			}
			if got.readEvents > int64(gap) || got.appends > 0 || got.rest > 2 || got.reads > int64(gap) {
				t.Errorf("a gap of %d cost %+v, want at most %d events read", gap, got, gap)
			}
			s.leave(w)
		}
	})
}

// Listing thousands of sessions reads no log and asks the store nothing that grows
// with their logs, and takes no time worth speaking of.
func TestListingReadsNoLog(t *testing.T) {
	sessions := under(1000, 5000)
	counted(t, func(t *testing.T, s *scene, c *counting) {
		boss := s.dial()
		for range sessions {
			s.create(boss)
		}
		s.prompt(boss, s.create(boss), "say 200")
		synctest.Wait()
		s.leave(boss)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.host.Shutdown(ctx); err != nil {
			t.Fatal(err)
		}
		c.take()
		s.start()
		if got := c.take(); got.reads > 0 {
			t.Errorf("the start read %d pages of logs, want none", got.reads)
		}
		again := s.dial()
		var page rpc.ListResult
		began := wall()
		for range 10 {
			page = ask[rpc.ListResult](s, again, "sessions.list", map[string]any{"roots": true})
		}
		took := wall().Sub(began) / 10
		if len(page.Sessions) != 100 || page.Next == "" || took > 100*time.Millisecond {
			t.Errorf("%d sessions, next %q, in %v; want a page of 100 in less than 100 ms", len(page.Sessions), page.Next, took)
		}
		if all := s.list(again); len(all) != sessions+1 {
			t.Errorf("%d sessions listed, want %d", len(all), sessions+1)
		}
		if got := c.take(); got != (spent{}) {
			t.Errorf("listing cost the store %+v, want nothing", got)
		}
	})
}

// The cost of one event does not grow: a turn in a long log, among many sessions
// and clients, asks as much of the store as the first one did.
func TestCostOfAnEventDoesNotGrow(t *testing.T) {
	counted(t, func(t *testing.T, s *scene, c *counting) {
		boss := s.dial()
		sid := s.create(boss)
		s.watch(boss, sid, 0)
		turn := func(n int) spent {
			synctest.Wait()
			c.take()
			s.prompt(boss, sid, fmt.Sprint("say ", n))
			synctest.Wait()
			return c.take()
		}
		turn(100)
		first := turn(100)
		for range 200 {
			s.create(boss)
		}
		for range 20 {
			s.watch(s.dial(), sid, -1)
		}
		turn(under(300, 2000))
		if got := turn(100); got != first {
			t.Errorf("a turn of 100 messages cost %+v, want %+v as at the beginning", got, first)
		}
		if first.reads > 0 || first.appends > 110 {
			t.Errorf("a turn of 100 messages cost %+v, want an append each and no read", first)
		}
	})
}

// A session with 25,000 events pages through whole, in both directions, and says
// honestly when there is more.
func TestLongHistoryPagesThrough(t *testing.T) {
	counted(t, func(t *testing.T, s *scene, _ *counting) {
		boss := s.dial()
		sid := s.create(boss)
		n := under(4000, 25_000)
		s.prompt(boss, sid, fmt.Sprint("say ", n))
		synctest.Wait()
		log := s.log(boss, sid)
		head := s.list(boss)[sid].Head
		if len(log) < n || int(head) != len(log) {
			t.Fatalf("%d events paged, head %d; want at least %d", len(log), head, n)
		}
		for i, e := range log {
			if e.Seq != frames.Seq(i+1) {
				t.Fatalf("event %d has the number %d", i+1, e.Seq)
			}
		}
		want := head
		for before := head + 1; ; {
			page := ask[rpc.HistoryResult](s, boss, "session.history", map[string]any{"sessionId": sid, "before": before, "limit": 1000})
			first, last := seqOf(t, page.Events[0]), seqOf(t, page.Events[len(page.Events)-1])
			if last != want || int(last-first)+1 != len(page.Events) || page.More != (first > 1) {
				t.Fatalf("a page before %d: %d to %d, %d events, more: %v", before, first, last, len(page.Events), page.More)
			}
			if !page.More {
				return
			}
			before, want = first, first-1
		}
	})
}

func seqOf(t *testing.T, raw json.RawMessage) frames.Seq {
	t.Helper()
	e, err := frames.DecodeEvent(raw)
	if err != nil {
		t.Fatal(err)
	}
	return e.Seq
}

// The end of a turn that comes at the moment of its subscription is seen every
// time.
func TestTurnsThatEndAtTheirSubscriptionAreSeen(t *testing.T) {
	rounds := under(300, 2000)
	play(t, nil, func(t *testing.T, s *scene) {
		s.pup.on("quick", func(context.Context, agent.Turn, agent.Prompt) (agent.Result, error) { return agent.Result{}, nil })
		boss, w := s.dial(), s.dial()
		for round := range rounds {
			sid := s.create(boss)
			wait, err := boss.Start(t.Context(), "session.prompt", promptParams(sid, "quick"))
			if err != nil {
				t.Fatal(err)
			}
			yield(seeded(round).IntN(100))
			since := round%2 - 1 // from the start, or from wherever the head is
			if r, err := w.Call(t.Context(), "mux.subscribe", from(sid, since, false)); err != nil || r.Error != nil {
				t.Fatalf("%v %+v", err, r.Error)
			}
			if _, err := wait(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			head := s.head(boss, sid)
			if got, live := w.Cursor(sid); got != head || !live {
				t.Fatalf("round %d: at %d of %d (live: %v)", round, got, head, live)
			}
			ask[rpc.Empty](s, w, "mux.unsubscribe", map[string]any{"sessions": []any{sid}})
		}
	})
}

// head returns the last event of an idle session.
func (s *scene) head(w *hosttest.Watch, sid frames.SessionID) frames.Seq {
	s.t.Helper()
	x := ask[rpc.GetResult](s, w, "session.get", map[string]any{"sessionId": sid}).Session
	if x.State != frames.StateIdle {
		s.t.Errorf("%s is %s, want idle", sid, x.State)
	}
	return x.Head
}
