package mux_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/mux"
	"github.com/muxhost/muxhost/mux/muxtest"
)

// check goes through what one client got and fails t where a promise is broken.
type check struct {
	t        testing.TB
	who      string
	seq      map[frames.SessionID]frames.Seq // last durable
	live     map[frames.SessionID]bool
	text     map[frames.SessionID]string // of the open turn's block 0
	have     map[frames.SessionID]int
	open     map[frames.RequestID]bool
	views    map[frames.SessionID]*frames.View
	answered bool
}

func newCheck(t testing.TB, who string) *check {
	return &check{
		t: t, who: who, seq: map[frames.SessionID]frames.Seq{}, live: map[frames.SessionID]bool{},
		text: map[frames.SessionID]string{}, have: map[frames.SessionID]int{}, open: map[frames.RequestID]bool{},
		views: map[frames.SessionID]*frames.View{},
	}
}

func (k *check) all(ms []muxtest.Message) {
	for _, m := range ms {
		k.one(m)
	}
}

// fold applies m to the view of its session.
func (k *check) fold(m muxtest.Message) {
	var sid frames.SessionID
	switch f := m.Frame.(type) {
	case *frames.SessionSubscribed:
		sid = f.SessionID
	case *frames.SessionEvent:
		sid = f.SessionID
	case *frames.SessionLive:
		sid = f.SessionID
	case *frames.SessionLagging:
		sid = f.SessionID
	default:
		return
	}
	if k.views[sid] == nil {
		k.views[sid] = frames.NewView()
	}
	if err := k.views[sid].ApplyFrame(m.Frame); err != nil {
		k.t.Errorf("%s: %s: fold of %.200s: %v", k.who, sid, m.Raw, err)
	}
}

func asJSON(t testing.TB, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Errorf("Marshal(%T): %v", v, err)
	}
	return string(b)
}

func (k *check) one(m muxtest.Message) {
	k.fold(m)
	switch f := m.Frame.(type) {
	case nil:
		k.answered = true
		return
	case *frames.SessionSubscribed:
		k.seq[f.SessionID], k.live[f.SessionID] = max(f.Since, f.First-1), false
	case *frames.SessionEvent:
		k.event(f.SessionID, *m.Event)
	case *frames.SessionLive:
		k.snapshot(f)
	case *frames.SessionLagging:
		k.live[f.SessionID] = false
	case *frames.ApprovalRequested:
		k.open[f.ID] = true
	case *frames.ApprovalResolved:
		if !k.open[f.ID] {
			k.t.Errorf("%s: %s is resolved and was never requested", k.who, f.ID)
		}
		delete(k.open, f.ID)
	}
	if !k.answered {
		k.t.Errorf("%s: %s came before the response", k.who, m.Raw)
	}
}

func (k *check) event(sid frames.SessionID, e frames.Event) {
	last, subscribed := k.seq[sid]
	switch {
	case !subscribed:
		k.t.Errorf("%s: an event of %s before session/subscribed", k.who, sid)
	case e.Seq > 0:
		if e.Seq != last+1 {
			k.t.Errorf("%s: %s: event %d after %d", k.who, sid, e.Seq, last)
		}
		k.seq[sid] = e.Seq
		if e.Type == frames.TurnStartEvent || e.Type == frames.TurnEndEvent {
			k.text[sid], k.have[sid] = "", 0
		}
	case !k.live[sid]:
		k.t.Errorf("%s: %s: a live event before session/live", k.who, sid)
	default:
		p, err := e.Payload()
		d, ok := p.(*frames.AssistantDelta)
		if err != nil || !ok || e.After != last {
			k.t.Errorf("%s: %s: live event %+v after %d, %v", k.who, sid, e, last, err)
			return
		}
		if d.From != k.have[sid] {
			k.t.Errorf("%s: %s: chunk %d, want %d", k.who, sid, d.From, k.have[sid])
		}
		k.text[sid], k.have[sid] = k.text[sid]+d.Text, d.To
	}
}

func (k *check) snapshot(f *frames.SessionLive) {
	if f.Seq != k.seq[f.SessionID] {
		k.t.Errorf("%s: session/live of %s at %d, want %d", k.who, f.SessionID, f.Seq, k.seq[f.SessionID])
	}
	if !k.live[f.SessionID] {
		k.text[f.SessionID], k.have[f.SessionID] = "", 0
	}
	if f.Turn != nil {
		for _, b := range f.Turn.Blocks {
			k.text[f.SessionID] += b.Text
			k.have[f.SessionID] = b.To
		}
	}
	k.live[f.SessionID] = k.live[f.SessionID] || !f.More
}

// play publishes a random piece of a session's life.
func (s *session) play(r *rand.Rand, steps int) {
	open := 0
	for i := range steps {
		switch n := r.IntN(10); {
		case s.turn == nil:
			s.publish(mux.Update{}, frames.TurnStart{Trigger: "prompt"})
		case n < 5:
			s.delta(fmt.Sprintf("<%d>", i))
		case n < 7:
			s.say(1, r.IntN(3000))
		case n == 7:
			open++
			s.raise(fmt.Sprintf("%s-%d", s.sid, open))
		case n == 8 && open > 0:
			s.settle(fmt.Sprintf("%s-%d", s.sid, open))
			open--
		default:
			s.publish(mux.Update{}, frames.TurnEnd{Reason: frames.TurnCompleted})
		}
	}
	for ; open > 0; open-- {
		s.settle(fmt.Sprintf("%s-%d", s.sid, open))
	}
}

// text is what the open turn holds at the publisher.
func (s *session) text() string {
	if s.turn == nil {
		return ""
	}
	for _, b := range s.turn.Blocks() {
		return b.Text
	}
	return ""
}

// Whoever attaches while events, requests and children appear gets every durable
// event once, every request with its end, no live event before the open turn,
// and the publisher's own text.
func TestNothingFallsBetweenReplayAndLive(t *testing.T) {
	rounds := 200
	if raceEnabled {
		rounds = 50 // each costs ten times as much; the run without the detector does all
	}
	for round := range rounds {
		synctest.Test(t, func(t *testing.T) { attachRound(t, round) })
		if t.Failed() {
			return
		}
	}
}

func attachRound(t *testing.T, round int) {
	r := rand.New(rand.NewPCG(uint64(round), 7))
	// Small limits, so that cursors fall off the ring now and then.
	w := newWorld(t, mux.Config{RingBytes: 4 << 10 << r.IntN(6), WriteChunk: 1 << 10 << r.IntN(6), QueueBytes: 1 << 20})
	root := w.add("root", nil)
	root.play(r, r.IntN(20))
	all := []*session{root}
	var wg sync.WaitGroup
	wg.Go(func() {
		r := rand.New(rand.NewPCG(uint64(round), 8))
		for i := range 3 {
			root.play(r, 10)
			kid := w.add(frames.SessionID(fmt.Sprintf("kid%d", i)), root)
			all = append(all, kid)
			kid.play(r, 15)
		}
	})
	clients := make([]*muxtest.Client, 4)
	for i := range clients {
		r := rand.New(rand.NewPCG(uint64(round), uint64(100+i)))
		conn, cl := muxtest.Join(t, w.hub, frames.ClientID(fmt.Sprint(i)))
		clients[i] = cl
		wg.Go(func() {
			for range 1 + r.IntN(3) {
				req := since("root", 0)
				req.Sessions[0].Tree = true
				req.Host = r.IntN(2) == 0
				if err := conn.Subscribe(t.Context(), req, response); err != nil {
					t.Errorf("round %d: Subscribe: %v", round, err)
				}
			}
		})
	}
	wg.Wait()
	if err := w.hub.Shutdown(t.Context()); err != nil { // flushes everything
		t.Fatal(err)
	}
	for i, cl := range clients {
		cl.Wait()
		k := newCheck(t, fmt.Sprintf("round %d client %d", round, i))
		k.all(cl.Messages())
		k.complete(all)
		if cl.CloseCode() != 1001 {
			t.Errorf("%s: closed with %d, want 1001", k.who, cl.CloseCode())
		}
	}
}

// complete fails t unless everything of sessions was received.
func (k *check) complete(sessions []*session) {
	k.t.Helper()
	for _, s := range sessions {
		if k.seq[s.sid] != s.seq {
			k.t.Errorf("%s: %s ends at %d, want %d", k.who, s.sid, k.seq[s.sid], s.seq)
		}
		if k.text[s.sid] != s.text() || !k.live[s.sid] {
			k.t.Errorf("%s: %s: open text %q (live %v), want %q", k.who, s.sid, k.text[s.sid], k.live[s.sid], s.text())
		}
		v := k.views[s.sid]
		if v == nil {
			k.t.Errorf("%s: %s was never subscribed", k.who, s.sid)
			continue
		}
		if got, want := asJSON(k.t, v.Durable()), asJSON(k.t, s.view.Durable()); got != want {
			k.t.Errorf("%s: %s: fold\n%s\nwant\n%s", k.who, s.sid, got, want)
		}
		if got, want := asJSON(k.t, v.Live()), asJSON(k.t, s.view.Live()); got != want || v.Gaps {
			k.t.Errorf("%s: %s: open turn %s (gaps %v), want %s", k.who, s.sid, got, v.Gaps, want)
		}
	}
	if len(k.open) > 0 {
		k.t.Errorf("%s: left open: %v", k.who, k.open)
	}
}

// A client that joins at any point of a streaming turn, and one that stays, hold
// the same text.
func TestJoinAtAnyPointOfATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		s := w.add("s", nil)
		s.publish(mux.Update{}, frames.TurnStart{Trigger: "prompt"})
		var clients []*muxtest.Client
		for i := range 40 {
			conn, cl := muxtest.Join(t, w.hub, frames.ClientID(fmt.Sprint(i)))
			clients = append(clients, cl)
			subscribe(t, conn, since("s", frames.Seq(i%2)))
			s.delta(fmt.Sprintf("%d;", i))
			if i%3 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		for i, cl := range clients {
			k := newCheck(t, fmt.Sprint(i))
			k.all(cl.Take())
			if k.text["s"] != s.text() {
				t.Errorf("client %d has %q, want %q", i, k.text["s"], s.text())
			}
		}
	})
}

// An event that was stored and never published is read from the log before the
// next one is sent, and one that is published twice is sent once.
func TestAHoleIsFilledFromTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		s := w.add("s", nil)
		conn, cl := muxtest.Join(t, w.hub, "c")
		subscribe(t, conn, since("s", 0))
		wantBrief(t, cl, "response", "session/subscribed", "session/live")
		s.say(1, 1)
		wantBrief(t, cl, "1")
		e, lost := s.event(frames.ErrorReported{Code: "x"})
		if err := s.view.ApplyEvent(e); err != nil {
			t.Fatal(err)
		}
		w.log.Append("s", lost)
		s.say(1, 1)
		wantBrief(t, cl, "session/lagging", "2", "3", "session/live")
		w.hub.Publish("s", mux.Update{Events: []frames.Encoded{lost}})
		s.say(1, 1)
		wantBrief(t, cl, "4")
	})
}
