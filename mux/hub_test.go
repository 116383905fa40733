package mux_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/mux"
	"github.com/muxhost/muxhost/mux/muxtest"
)

// session is the publishing side of one session, as the host would be.
type session struct {
	t    testing.TB
	hub  *mux.Hub
	log  *muxtest.Log
	sid  frames.SessionID
	seq  frames.Seq
	turn *frames.OpenTurn
	to   int // chunks of block 0
	view *frames.View
}

type world struct {
	t   testing.TB
	hub *mux.Hub
	log *muxtest.Log
}

func newWorld(t testing.TB, cfg mux.Config) *world {
	log := &muxtest.Log{}
	w := &world{t: t, hub: mux.NewHub(cfg, log), log: log}
	t.Cleanup(func() {
		if err := w.hub.Shutdown(t.Context()); err != nil && t.Context().Err() == nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return w
}

// add makes a live session; parent may be nil.
func (w *world) add(sid frames.SessionID, parent *session) *session {
	s := &session{t: w.t, hub: w.hub, log: w.log, sid: sid, view: frames.NewView()}
	sum := frames.Session{SessionID: sid, RootSessionID: sid, Epoch: "e1", State: frames.StateIdle, Origin: frames.OriginUser}
	if parent != nil {
		sum.ParentSessionID, sum.RootSessionID, sum.Origin = parent.sid, parent.sid, frames.OriginSubagent
	}
	w.hub.Add(mux.Session{Summary: sum, First: 1, Live: true})
	return s
}

func encode(t testing.TB, e frames.Event) frames.Encoded {
	b, err := frames.EncodeEvent(e)
	if err != nil {
		t.Fatalf("EncodeEvent(%+v): %v", e, err)
	}
	return b
}

// event makes the next event of p's type, without publishing it.
func (s *session) event(p frames.Payload) (frames.Event, frames.Encoded) {
	e, err := frames.NewEvent(p)
	if err != nil {
		s.t.Fatalf("NewEvent(%T): %v", p, err)
	}
	e.Time = frames.At(time.Now())
	if s.turn != nil {
		e.TurnID = "t1"
	}
	if frames.ClassOf(e.Type).Durable() {
		s.seq++
		e.Seq = s.seq
	} else {
		e.After = s.seq
	}
	return e, encode(s.t, e)
}

// publish stores what is durable and publishes everything as one update.
func (s *session) publish(u mux.Update, ps ...frames.Payload) {
	for _, p := range ps {
		if _, ok := p.(frames.TurnStart); ok {
			s.turn, s.to = frames.NewOpenTurn("t1"), 0
		}
		e, enc := s.event(p)
		if _, ok := p.(frames.TurnEnd); ok {
			s.turn = nil
		}
		if s.turn != nil {
			if err := s.turn.Apply(e); err != nil {
				s.t.Fatalf("Apply(%s): %v", enc.Data, err)
			}
		}
		if err := s.view.ApplyEvent(e); err != nil {
			s.t.Fatalf("ApplyEvent(%s): %v", enc.Data, err)
		}
		if enc.Class.Durable() {
			s.log.Append(s.sid, enc)
		}
		u.Events = append(u.Events, enc)
	}
	if s.turn != nil {
		u.Turn = s.turn.Snapshot()
	}
	s.hub.Publish(s.sid, u)
}

// say publishes n durable events of about size bytes each.
func (s *session) say(n, size int) {
	for range n {
		s.publish(mux.Update{}, frames.ErrorReported{Code: "x", Message: strings.Repeat("m", size)})
	}
}

// delta publishes one chunk of the assistant's block 0.
func (s *session) delta(text string) {
	s.publish(mux.Update{}, frames.AssistantDelta{Block: 0, From: s.to, To: s.to + 1, Text: text})
	s.to++
}

func (s *session) raise(key string) {
	s.publish(mux.Update{Notices: []mux.Notice{{Kind: mux.Raise, Key: key, Frame: s.requested(key)}}})
}

func (s *session) settle(key string) {
	s.publish(mux.Update{Notices: []mux.Notice{{Kind: mux.Settle, Key: key, Frame: s.resolved(key)}}})
}

func (s *session) requested(key string) []byte {
	return frame(s.t, frames.ApprovalRequested{SessionID: s.sid, ID: frames.RequestID(key), Input: []byte(`{}`)})
}

func (s *session) resolved(key string) []byte {
	return frame(s.t, frames.ApprovalResolved{SessionID: s.sid, ID: frames.RequestID(key), Outcome: frames.Rejected})
}

func frame(t testing.TB, f frames.Frame) []byte {
	b, err := frames.EncodeFrame(f)
	if err != nil {
		t.Fatalf("EncodeFrame(%T): %v", f, err)
	}
	return b
}

func response([]mux.SubscribeResult) []byte { return []byte(`{"jsonrpc":"2.0","id":1,"result":[]}`) }

func subscribe(t testing.TB, c *mux.Conn, req mux.SubscribeRequest) {
	t.Helper()
	if err := c.Subscribe(t.Context(), req, response); err != nil {
		t.Fatalf("Subscribe(%+v): %v", req, err)
	}
}

func since(sid frames.SessionID, n frames.Seq) mux.SubscribeRequest {
	return mux.SubscribeRequest{Sessions: []mux.SubscribeEntry{{SessionID: sid, Since: new(n)}}}
}

// brief says what came, a word for each message.
func brief(ms []muxtest.Message) []string {
	out := make([]string, 0, len(ms))
	for _, m := range ms {
		switch f := m.Frame.(type) {
		case nil:
			out = append(out, "response")
		case *frames.SessionEvent:
			if m.Event.Seq > 0 {
				out = append(out, fmt.Sprintf("%d", m.Event.Seq))
			} else {
				out = append(out, string(m.Event.Type))
			}
		case *frames.ApprovalRequested:
			out = append(out, "+"+string(f.ID))
		case *frames.ApprovalResolved:
			out = append(out, "-"+string(f.ID))
		default:
			out = append(out, string(m.Type()))
		}
	}
	return out
}

func wantBrief(t *testing.T, c *muxtest.Client, want ...string) []muxtest.Message {
	t.Helper()
	synctest.Wait()
	got := c.Take()
	if b := brief(got); !slices.Equal(b, want) {
		t.Errorf("got  %q\nwant %q", b, want)
	}
	return got
}

// After a subscription come the response, the baseline, what is pending, the
// past, the open turn and then what happens, in this order.
func TestAttachKeepsTheContractsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		s := w.add("s1", nil)
		s.say(2, 10)
		s.publish(mux.Update{}, frames.TurnStart{Trigger: "prompt"})
		s.delta("he")
		s.raise("a1")
		c, cl := muxtest.Join(t, w.hub, "c1")
		subscribe(t, c, since("s1", 0))
		got := wantBrief(t, cl, "response", "session/subscribed", "+a1", "1", "2", "3", "session/live")
		s.delta("llo")
		wantBrief(t, cl, "assistant/delta")
		s.settle("a1")
		wantBrief(t, cl, "-a1")
		sub := got[1].Frame.(*frames.SessionSubscribed)
		if sub.Head != 3 || sub.Since != 0 || sub.Pending != 1 || sub.Epoch != "e1" || sub.First != 1 {
			t.Errorf("session/subscribed = %+v", sub)
		}
		live := got[6].Frame.(*frames.SessionLive)
		if live.Seq != 3 || live.Turn == nil || len(live.Turn.Blocks) != 1 || live.Turn.Blocks[0].Text != "he" {
			t.Errorf("session/live = %s", got[6].Raw)
		}
	})
}
