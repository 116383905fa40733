package mux_test

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/mux"
	"github.com/muxhost/muxhost/mux/muxtest"
)

func tree(sid frames.SessionID) mux.SubscribeRequest {
	return mux.SubscribeRequest{Sessions: []mux.SubscribeEntry{{SessionID: sid, Tree: true}}}
}

func unsubscribe(t *testing.T, c *mux.Conn, host bool, sids ...frames.SessionID) {
	t.Helper()
	if err := c.Unsubscribe(t.Context(), sids, host, func() []byte { return response(nil) }); err != nil {
		t.Fatalf("Unsubscribe(%v): %v", sids, err)
	}
}

// A descendant born under a followed tree is announced and then sent from 0 on;
// one that was left out stays out, also when it is added again.
func TestTreeFollowsThoseBornLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		root := w.add("root", nil)
		conn, cl := muxtest.Join(t, w.hub, "c")
		subscribe(t, conn, tree("root"))
		wantBrief(t, cl, "response", "session/subscribed", "session/live")
		kid := w.add("kid", root)
		got := wantBrief(t, cl, "host/session-added", "session/subscribed", "session/live")
		kid.say(1, 1)
		wantBrief(t, cl, "1")
		if f := got[1].Frame.(*frames.SessionSubscribed); f.SessionID != "kid" || f.Since != 0 {
			t.Errorf("session/subscribed = %+v, want kid from 0", f)
		}
		unsubscribe(t, conn, false, "kid")
		wantBrief(t, cl, "response", "session/unsubscribed")
		kid.say(1, 1)
		w.hub.Remove("kid", "deleted")
		w.add("kid", root)
		w.add("grandkid", kid)
		wantBrief(t, cl, "host/session-added", "session/subscribed", "session/live")
		unsubscribe(t, conn, false, "root")
		wantBrief(t, cl, "response", "session/unsubscribed", "session/unsubscribed")
		w.add("kid2", root)
		wantBrief(t, cl)
	})
}

// A tree's unnamed members start at 0 if the root gave a cursor, else at head;
// named ones at their own; the result lists all.
func TestTreeMembersStartWhereTheContractSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		root := w.add("root", nil)
		for _, sid := range []frames.SessionID{"a", "b"} {
			w.add(sid, root).say(3, 1)
		}
		root.say(2, 1)
		conn, cl := muxtest.Join(t, w.hub, "c")
		req := since("root", 1)
		req.Sessions[0].Tree = true
		req.Sessions = append(req.Sessions, mux.SubscribeEntry{SessionID: "b", Since: new(frames.Seq(2))},
			mux.SubscribeEntry{SessionID: "nope"})
		var results []mux.SubscribeResult
		err := conn.Subscribe(t.Context(), req, func(r []mux.SubscribeResult) []byte { results = r; return response(r) })
		if err != nil || len(results) != 4 || results[3].SessionID != "a" || !errors.Is(results[2].Err, mux.ErrNoSession) || results[1].Head != 3 {
			t.Errorf("results = %+v, %v", results, err)
		}
		synctest.Wait()
		starts := map[frames.SessionID]frames.Seq{}
		for _, m := range cl.Take() {
			if f, ok := m.Frame.(*frames.SessionSubscribed); ok {
				starts[f.SessionID] = f.Since
			}
		}
		if starts["root"] != 1 || starts["a"] != 0 || starts["b"] != 2 || len(starts) != 3 {
			t.Errorf("starts = %v, want root 1, a 0, b 2", starts)
		}
		conn, cl = muxtest.Join(t, w.hub, "c2")
		subscribe(t, conn, tree("root"))
		synctest.Wait()
		for _, m := range cl.Take() {
			if f, ok := m.Frame.(*frames.SessionSubscribed); ok && f.Since != f.Head {
				t.Errorf("%s starts at %d, want its head %d", f.SessionID, f.Since, f.Head)
			}
		}
	})
}

// A request and its end reach a connection once, though the host and the session
// match; a baseline repeats what is pending; who has unsubscribed meanwhile is
// still told the end.
func TestNoticesReachAConnectionOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		s := w.add("s", nil)
		conn, cl := muxtest.Join(t, w.hub, "c")
		req := tree("s")
		req.Host = true
		s.raise("p")
		subscribe(t, conn, req)
		wantBrief(t, cl, "response", "host/subscribed", "host/session-added", "host/session-status", "+p", "host/live",
			"session/subscribed", "+p", "session/live")
		s.settle("p")
		s.raise("q")
		wantBrief(t, cl, "-p", "+q")
		unsubscribe(t, conn, true, "s")
		wantBrief(t, cl, "response", "session/unsubscribed")
		s.raise("r")
		s.settle("q")
		s.settle("r")
		wantBrief(t, cl, "-q")
	})
}

// The host baseline tells of live sessions and of everything pending, and later
// of sessions that come, go cold and are deleted.
func TestHostSubscribersHearOfSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		w.add("warm", nil)
		w.hub.Add(mux.Session{Summary: frames.Session{SessionID: "cold", RootSessionID: "cold", Epoch: "e1", Head: 7}, First: 1})
		conn, cl := muxtest.Join(t, w.hub, "c")
		subscribe(t, conn, mux.SubscribeRequest{Host: true})
		wantBrief(t, cl, "response", "host/subscribed", "host/session-added", "host/session-status", "host/live")
		w.hub.SetLive("cold", true)
		w.hub.SetLive("cold", true)
		w.hub.SetLive("warm", false)
		w.hub.Publish("cold", mux.Update{Status: &frames.SessionStatus{SessionID: "cold", State: frames.StateRunning}})
		w.hub.Publish("cold", mux.Update{Summary: &frames.Session{SessionID: "cold", RootSessionID: "cold"}})
		w.hub.Remove("cold", "deleted")
		w.hub.Broadcast(frame(t, frames.HostDraining{}))
		got := wantBrief(t, cl, "host/session-added", "host/session-removed", "host/session-status", "host/session-updated",
			"host/session-removed", "host/draining")
		if f := got[1].Frame.(*frames.SessionRemoved); f.SessionID != "warm" || f.Reason != "closed" {
			t.Errorf("went cold: %+v", f)
		}
		if f := got[4].Frame.(*frames.SessionRemoved); f.SessionID != "cold" || f.Reason != "deleted" {
			t.Errorf("deleted: %+v", f)
		}
	})
}

// Subscriptions of a deleted session end, and its open requests are forgotten.
func TestRemoveEndsSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		s := w.add("s", nil)
		conn, cl := muxtest.Join(t, w.hub, "c")
		subscribe(t, conn, since("s", 0))
		wantBrief(t, cl, "response", "session/subscribed", "session/live")
		s.raise("p")
		wantBrief(t, cl, "+p")
		w.hub.Remove("s", "deleted")
		s.say(1, 1)
		got := wantBrief(t, cl, "session/unsubscribed", "host/session-removed")
		if f := got[0].Frame.(*frames.SessionUnsubscribed); f.Reason != "deleted" {
			t.Errorf("session/unsubscribed = %+v", f)
		}
		if err := conn.Subscribe(t.Context(), since("s", 0), response); !errors.Is(err, mux.ErrNoSession) {
			t.Errorf("Subscribe to a deleted session: %v, want ErrNoSession", err)
		}
	})
}

// A client limited to trees neither sees nor can subscribe to anything else, and
// gets the same error as for what does not exist.
func TestTreesLimitWhatIsVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		mine, other := w.add("mine", nil), w.add("other", nil)
		w.add("kid", mine)
		conn, ws := muxtest.Accept(t, w.hub, mux.AcceptOptions{ID: "c", Trees: []frames.SessionID{"mine"}})
		cl := muxtest.Watch(t, ws)
		subscribe(t, conn, mux.SubscribeRequest{Host: true})
		wantBrief(t, cl, "response", "host/subscribed", "host/session-added", "host/session-status",
			"host/session-added", "host/session-status", "host/live")
		other.raise("p")
		w.add("third", nil)
		wantBrief(t, cl)
		for _, sid := range []frames.SessionID{"other", "nope"} {
			if err := conn.Subscribe(t.Context(), since(sid, 0), response); !errors.Is(err, mux.ErrNoSession) {
				t.Errorf("Subscribe(%s): %v, want ErrNoSession", sid, err)
			}
		}
		mine.raise("q")
		wantBrief(t, cl, "+q")
	})
}

// A cursor before the oldest event, beyond the head or of another epoch is
// refused, and the refused call changes nothing.
func TestCursorsAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		s := w.add("s", nil)
		s.say(9, 1)
		w.log.Trim("s", 5, json.RawMessage(`{"fold":4}`))
		w.hub.Trimmed("s", 5)
		conn, cl := muxtest.Join(t, w.hub, "c")
		bad := []struct {
			since frames.Seq
			epoch frames.Epoch
			kind  mux.CursorKind
		}{{3, "", mux.CursorExpired}, {10, "", mux.CursorAhead}, {6, "e0", mux.CursorExpired}}
		for _, b := range bad {
			req := since("s", b.since)
			req.Sessions[0].Epoch = b.epoch
			err := conn.Subscribe(t.Context(), req, response)
			ce, ok := errors.AsType[*mux.CursorError](err)
			if !ok || *ce != (mux.CursorError{Kind: b.kind, First: 5, Head: 9, Epoch: "e1"}) {
				t.Errorf("since %d epoch %q: %v, want %s", b.since, b.epoch, err, b.kind)
			}
		}
		wantBrief(t, cl)
		subscribe(t, conn, since("s", 4))
		wantBrief(t, cl, "response", "session/subscribed", "5", "6", "7", "8", "9", "session/live")
		subscribe(t, conn, since("s", 0))
		got := wantBrief(t, cl, "response", "session/subscribed", "5", "6", "7", "8", "9", "session/live")
		if f := got[1].Frame.(*frames.SessionSubscribed); string(f.Base) != `{"fold":4}` || f.Since != 0 || f.First != 5 {
			t.Errorf("session/subscribed = %+v", f)
		}
	})
}

// Subscribing again without a cursor keeps it, changes the delivery and brings
// the open turn anew; with one it starts there.
func TestResubscribingKeepsTheCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		s := w.add("s", nil)
		conn, cl := muxtest.Join(t, w.hub, "c")
		subscribe(t, conn, since("s", 0))
		wantBrief(t, cl, "response", "session/subscribed", "session/live")
		s.say(2, 1)
		wantBrief(t, cl, "1", "2")
		req := mux.SubscribeRequest{
			Sessions: []mux.SubscribeEntry{{SessionID: "s"}}, Delivery: &mux.Delivery{Text: "final"},
		}
		subscribe(t, conn, req)
		got := wantBrief(t, cl, "response", "session/subscribed", "session/live")
		if f := got[1].Frame.(*frames.SessionSubscribed); f.Since != 2 {
			t.Errorf("session/subscribed = %+v, want since 2", f)
		}
		s.publish(mux.Update{}, frames.TurnStart{Trigger: "prompt"})
		s.delta("unseen")
		wantBrief(t, cl, "3")
		subscribe(t, conn, since("s", 1))
		wantBrief(t, cl, "response", "session/subscribed", "2", "3", "session/live")
		s.delta("still final: nil keeps the delivery")
		wantBrief(t, cl)
	})
}

// What a subscription does not stream is neither sent nor in the open turn;
// reasoning "off" still has every durable event, without its data.
func TestDeliverySelectsStreams(t *testing.T) {
	for _, c := range []struct {
		name   string
		d      mux.Delivery
		want   []string
		blocks int
		tools  int
	}{
		{"stream", mux.Delivery{}, []string{"assistant/delta", "reasoning/delta", "tool/progress", "3"}, 2, 1},
		{"text final", mux.Delivery{Text: "final"}, []string{"reasoning/delta", "tool/progress", "3"}, 1, 1},
		{"reasoning final", mux.Delivery{Reasoning: "final"}, []string{"assistant/delta", "tool/progress", "3"}, 1, 1},
		{"reasoning off", mux.Delivery{Reasoning: "off"}, []string{"assistant/delta", "tool/progress", "3"}, 1, 1},
		{"tools off", mux.Delivery{Tools: "off"}, []string{"assistant/delta", "reasoning/delta", "3"}, 2, 0},
		{"all quiet", mux.Delivery{Text: "final", Reasoning: "off", Tools: "off"}, []string{"3"}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mux.Config{})
				s := w.add("s", nil)
				s.publish(mux.Update{}, frames.TurnStart{Trigger: "prompt"}, frames.ToolCall{CallID: "c1", Name: "sh"},
					frames.AssistantDelta{Block: 0, From: 0, To: 1, Text: "a"}, frames.ReasoningDelta{Block: 1, From: 0, To: 1, Text: "r"},
					frames.ToolProgress{CallID: "c1", From: 0, To: 1, Text: "p"})
				conn, cl := muxtest.Join(t, w.hub, "c")
				req := since("s", 2)
				req.Delivery = &c.d
				subscribe(t, conn, req)
				got := wantBrief(t, cl, "response", "session/subscribed", "session/live")
				if turn := got[2].Frame.(*frames.SessionLive).Turn; len(turn.Blocks) != c.blocks || len(turn.Tools) != c.tools {
					t.Errorf("session/live = %s", got[2].Raw)
				}
				s.publish(mux.Update{}, frames.AssistantDelta{Block: 0, From: 1, To: 2, Text: "a"},
					frames.ReasoningDelta{Block: 1, From: 1, To: 2, Text: "r"}, frames.ToolProgress{CallID: "c1", From: 1, To: 2, Text: "p"},
					frames.ReasoningMessage{Blocks: []int{1}})
				got = wantBrief(t, cl, c.want...)
				withheld(t, got[len(got)-1], c.d.Reasoning == "off")
				// From the log the same events look the same.
				subscribe(t, conn, since("s", 2))
				got = wantBrief(t, cl, "response", "session/subscribed", "3", "session/live")
				withheld(t, got[2], c.d.Reasoning == "off")
			})
		})
	}
}

func withheld(t *testing.T, m muxtest.Message, want bool) {
	t.Helper()
	if got := string(m.Event.Data) == `{"withheld":true}`; got != want {
		t.Errorf("reasoning/message has data %s, withheld should be %v", m.Event.Data, want)
	}
}
