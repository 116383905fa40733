package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
)

// After a cut every subscription is resumed from its cursor with epoch, tree and
// delivery, descendants by name, and what the user left out stays out.
func TestResumeNamesEveryCursor(t *testing.T) {
	final := rpc.Delivery{Text: "final"}
	var second chan []rpc.SubscribeParams
	script := func(c *hostConn, n int) {
		if n == 1 {
			id, _, _ := c.subscribe()
			c.reply(id, rpc.SubscribeResult{{SessionID: "root", Head: 2, Epoch: "e1"}, {SessionID: "kid", Head: 1, Epoch: "e2"}, {SessionID: "out", Head: 0, Epoch: "e4"}})
			for sid, since := range map[frames.SessionID]frames.Seq{"kid": 0, "out": 0} {
				c.frame(frames.SessionAdded{SessionID: sid, Session: frames.Session{SessionID: sid, ParentSessionID: "root", RootSessionID: "root"}})
				c.frame(frames.SessionSubscribed{SessionID: sid, Since: since, First: 1, Epoch: map[frames.SessionID]frames.Epoch{"kid": "e2", "out": "e4"}[sid]})
			}
			c.frame(frames.SessionSubscribed{SessionID: "root", Since: 1, Head: 2, First: 1, Epoch: "e1"})
			c.event("root", 2)
			c.event("kid", 1)
			c.frame(frames.SessionAdded{SessionID: "late", Session: frames.Session{SessionID: "late", ParentSessionID: "kid", RootSessionID: "root"}})
			c.frame(frames.SessionSubscribed{SessionID: "late", First: 1, Epoch: "e3"})
			r, _ := c.next()
			c.reply(r.ID, rpc.Empty{})
			id, _, _ = c.subscribe()
			c.reply(id, rpc.SubscribeResult{})
			return
		}
		var got []rpc.SubscribeParams
		for range 2 {
			id, p, _ := c.subscribe()
			got = append(got, p)
			c.reply(id, rpc.SubscribeResult{})
		}
		r, _ := c.next()
		if r.Method != "mux.unsubscribe" || string(r.Params) != `{"sessions":["out"]}` {
			c.t.Errorf("then %s %s, want mux.unsubscribe of out", r.Method, r.Params)
		}
		c.reply(r.ID, rpc.Empty{})
		second <- got
		c.wait()
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		second = make(chan []rpc.SubscribeParams, 1) // of the bubble
		c := h.connect(h.options())
		if _, err := c.Subscribe(t.Context(), rpc.SubscribeParams{
			Delivery: &final,
			Sessions: []rpc.SubscribeSession{{SessionID: "root", Since: new(frames.Seq(1)), Tree: true}},
		}); err != nil {
			t.Fatal(err)
		}
		if err := c.Unsubscribe(t.Context(), rpc.UnsubscribeParams{Sessions: []frames.SessionID{"out"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Subscribe(t.Context(), rpc.SubscribeParams{Host: true}); err != nil {
			t.Fatal(err)
		}
		want := []rpc.SubscribeParams{
			{Host: true},
			{Delivery: &final, Sessions: []rpc.SubscribeSession{
				{SessionID: "root", Since: new(frames.Seq(2)), Epoch: "e1", Tree: true},
				{SessionID: "kid", Since: new(frames.Seq(1)), Epoch: "e2"},
				{SessionID: "late", Since: new(frames.Seq(0)), Epoch: "e3"},
			}},
		}
		got, _ := json.Marshal(<-second)
		if w, _ := json.Marshal(want); string(got) != string(w) {
			t.Errorf("resumed with %s\nwant %s", got, w)
		}
	})
}

// Where the cursor cannot be resumed the session starts anew after a Reset; a
// session that is gone is unsubscribed; the others go on.
func TestResumeThatFails(t *testing.T) {
	script := func(c *hostConn, n int) {
		if n == 1 {
			for range 3 {
				id, p, _ := c.subscribe()
				sid := p.Sessions[0].SessionID
				c.open(id, sid, 0, 1, "old")
				c.event(sid, 1)
			}
			return
		}
		id, p, _ := c.subscribe()
		if len(p.Sessions) != 3 {
			c.t.Errorf("resumed %+v, want three sessions", p)
		}
		c.reply(id, rpc.SubscribeResult{
			{SessionID: "a", Error: rpc.WireErrorOf(rpc.Errorf(rpc.KindCursorExpired, "epoch"))},
			{SessionID: "b", Error: rpc.WireErrorOf(rpc.Errorf(rpc.KindSessionNotFound, "gone"))},
			{SessionID: "c", Head: 2, Epoch: "old"},
		})
		c.frame(frames.SessionSubscribed{SessionID: "c", Since: 1, Head: 2, First: 1, Epoch: "old"})
		c.event("c", 2)
		id, p, _ = c.subscribe()
		if s := p.Sessions; len(s) != 1 || s[0].SessionID != "a" || *s[0].Since != 0 || s[0].Epoch != "" {
			c.t.Errorf("subscribed again %+v, want a from 0 without an epoch", p)
		}
		c.open(id, "a", 0, 1, "new")
		c.event("a", 1)
		c.wait()
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		r := framesOf(t, c)
		for _, sid := range []frames.SessionID{"a", "b", "c"} {
			watch(t, c, sid)
			r.want("subscribed "+string(sid)+" 0", "event "+string(sid)+" 1")
		}
		var got []string
		for range 6 {
			f, err := r.take()
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, f)
		}
		for _, pair := range [][2]string{{"subscribed c 1", "event c 2"}, {"reset a", "subscribed a 0"}, {"subscribed a 0", "event a 1"}} {
			if i, j := slices.Index(got, pair[0]), slices.Index(got, pair[1]); i < 0 || j < i {
				t.Errorf("got %v, want %q before %q", got, pair[0], pair[1])
			}
		}
		if !slices.Contains(got, "unsubscribed b deleted") {
			t.Errorf("got %v, want b unsubscribed", got)
		}
	})
}

// When every entry of a resume fails the host names the first error only; each is
// still dealt with.
func TestResumeThatFailsAsAWhole(t *testing.T) {
	script := func(c *hostConn, n int) {
		if n == 1 {
			for range 2 {
				id, p, _ := c.subscribe()
				c.open(id, p.Sessions[0].SessionID, 0, 0, "e")
			}
			return
		}
		for {
			id, _, ok := c.subscribe()
			if !ok {
				return
			}
			c.fail(id, rpc.Errorf(rpc.KindSessionNotFound, "gone"))
		}
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		watch(t, c, "a")
		watch(t, c, "b")
		framesOf(t, c).want("subscribed a 0", "subscribed b 0", "unsubscribed a deleted", "unsubscribed b deleted")
	})
}

// A durable event that was had is dropped; one that is missing breaks the
// connection, and the resume brings it.
func TestGapIsTakenUpAgain(t *testing.T) {
	script := func(c *hostConn, n int) {
		id, p, _ := c.subscribe()
		since := *p.Sessions[0].Since
		c.open(id, "s", since, 3, "e")
		if n == 1 {
			c.event("s", 1)
			c.event("s", 1)
			c.event("s", 3)
		}
		for seq := since + 1; n > 1 && seq <= 3; seq++ {
			c.event("s", seq)
		}
		c.wait()
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		watch(t, c, "s")
		framesOf(t, c).want("subscribed s 0", "event s 1", "subscribed s 1", "event s 2", "event s 3")
	})
}

// A session of a tree whose log was replaced starts anew after a Reset; the base of
// a trimmed log stands for the events before the first.
func TestNewEpochAndBase(t *testing.T) {
	script := func(c *hostConn, _ int) {
		id, _, _ := c.subscribe()
		c.open(id, "s", 0, 2, "old")
		c.event("s", 1)
		c.event("s", 2)
		c.frame(frames.SessionSubscribed{SessionID: "s", Since: 0, First: 8, Head: 9, Epoch: "new", Base: []byte(`{}`)})
		c.event("s", 8)
		c.event("s", 9)
		c.wait()
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		watch(t, c, "s")
		framesOf(t, c).want("subscribed s 0", "event s 1", "event s 2", "reset s", "subscribed s 0", "event s 8", "event s 9")
		if h.connections() != 1 {
			t.Errorf("%d connections, want 1", h.connections())
		}
	})
}

// Subscribing again moves the cursor where the user says; without since it stays.
func TestSubscribingAgainMovesTheCursor(t *testing.T) {
	script := func(c *hostConn, _ int) {
		for range 3 {
			id, p, ok := c.subscribe()
			if !ok {
				return
			}
			since := frames.Seq(2) // where it stands
			if s := p.Sessions[0].Since; s != nil {
				since = *s
			}
			c.open(id, "s", since, 2, "e")
			for seq := since + 1; seq <= 2; seq++ {
				c.event("s", seq)
			}
		}
		c.wait()
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		r := framesOf(t, c)
		watch(t, c, "s")
		r.want("subscribed s 0", "event s 1", "event s 2")
		watch(t, c, "s")
		r.want("subscribed s 0", "event s 1", "event s 2")
		if _, err := c.Subscribe(t.Context(), rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{{SessionID: "s"}}}); err != nil {
			t.Fatal(err)
		}
		r.want("subscribed s 2")
	})
}

// What is unsubscribed is not handed out any more, and not resumed.
func TestUnsubscribedStaysAway(t *testing.T) {
	script := func(c *hostConn, n int) {
		if n > 1 {
			c.frame(frames.HostLive{})
			if r, ok := c.next(); ok {
				c.t.Errorf("resumed with %s %s, want nothing", r.Method, r.Params)
			}
			return
		}
		id, _, _ := c.subscribe()
		c.open(id, "s", 0, 1, "e")
		r, _ := c.next()
		c.reply(r.ID, rpc.Empty{})
		c.event("s", 1)
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		watch(t, c, "s")
		if err := c.Unsubscribe(t.Context(), rpc.UnsubscribeParams{Sessions: []frames.SessionID{"s"}}); err != nil {
			t.Fatal(err)
		}
		framesOf(t, c).want("subscribed s 0", "host/live")
	})
}

// A new subscription starts where the host says it does, also when the head moved
// after the response was made.
func TestHeadThatMovedIsNoGap(t *testing.T) {
	script := func(c *hostConn, _ int) {
		id, _, _ := c.subscribe()
		c.reply(id, rpc.SubscribeResult{{SessionID: "s", Head: 4, Epoch: "e"}})
		c.frame(frames.SessionSubscribed{SessionID: "s", Since: 5, Head: 5, First: 1, Epoch: "e"})
		c.event("s", 6)
		c.wait()
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		if _, err := c.Subscribe(t.Context(), rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{{SessionID: "s"}}}); err != nil {
			t.Fatal(err)
		}
		framesOf(t, c).want("subscribed s 5", "event s 6")
		if h.connections() != 1 {
			t.Errorf("%d connections, want 1", h.connections())
		}
	})
}

// A base that comes where events were had already replaces them, and says so.
func TestBaseOverKnownEventsResets(t *testing.T) {
	script := func(c *hostConn, _ int) {
		id, _, _ := c.subscribe()
		c.open(id, "s", 0, 2, "e")
		c.event("s", 1)
		c.event("s", 2)
		c.frame(frames.SessionSubscribed{SessionID: "s", First: 2, Head: 2, Epoch: "e", Base: []byte(`{}`)})
		c.event("s", 2)
		c.wait()
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		watch(t, c, "s")
		framesOf(t, c).want("subscribed s 0", "event s 1", "event s 2", "reset s", "subscribed s 0", "event s 2")
	})
}

// A descendant that the user left out is not handed out again, though the host
// subscribes it with its tree before it hears so.
func TestLeftOutOfATreeStaysOut(t *testing.T) {
	script := func(c *hostConn, n int) {
		id, _, _ := c.subscribe()
		c.open(id, "root", 0, 0, "e")
		c.frame(frames.SessionAdded{SessionID: "out", Session: frames.Session{SessionID: "out", ParentSessionID: "root", RootSessionID: "root"}})
		c.frame(frames.SessionSubscribed{SessionID: "out", Head: 1, First: 1, Epoch: "e"})
		c.event("out", 1)
		r, _ := c.next()
		if r.Method != "mux.unsubscribe" {
			c.t.Errorf("connection %d: then %s, want mux.unsubscribe", n, r.Method)
		}
		c.reply(r.ID, rpc.Empty{})
		if n > 1 {
			c.frame(frames.HostLive{})
			c.wait()
		}
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		r := framesOf(t, c)
		if _, err := c.Subscribe(t.Context(), rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{{SessionID: "root", Since: new(frames.Seq(0)), Tree: true}}}); err != nil {
			t.Fatal(err)
		}
		r.want("subscribed root 0", "host/session-added", "subscribed out 0", "event out 1")
		if err := c.Unsubscribe(t.Context(), rpc.UnsubscribeParams{Sessions: []frames.SessionID{"out"}}); err != nil {
			t.Fatal(err)
		}
		r.want("subscribed root 0", "host/session-added", "host/live")
	})
}

// A subscription whose caller gave up is still the host's: it is remembered whole,
// and resumed as it was asked for.
func TestGivenUpSubscriptionIsRemembered(t *testing.T) {
	script := func(c *hostConn, n int) {
		id, p, _ := c.subscribe()
		if n > 1 {
			if s := p.Sessions; len(s) != 1 || s[0].SessionID != "s" || !s[0].Tree || *s[0].Since != 1 || p.Delivery == nil || p.Delivery.Text != "final" {
				c.t.Errorf("resumed %+v, want s with its tree and delivery after 1", p)
			}
			c.frame(frames.HostLive{})
			c.wait()
			return
		}
		time.Sleep(2 * time.Second)
		c.open(id, "s", 0, 1, "e")
		c.event("s", 1)
		time.Sleep(time.Second)
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p := rpc.SubscribeParams{
			Sessions: []rpc.SubscribeSession{{SessionID: "s", Since: new(frames.Seq(0)), Tree: true}},
			Delivery: &rpc.Delivery{Text: "final"},
		}
		if _, err := c.Subscribe(ctx, p); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Subscribe = %v, want the deadline", err)
		}
		framesOf(t, c).want("subscribed s 0", "event s 1", "host/live")
	})
}

// Of sessions with other deliveries, a member of a tree is resumed after its root:
// the call that resumes the tree would start it anew, with the root's delivery.
func TestTreesAreResumedBeforeTheirMembers(t *testing.T) {
	final := &rpc.Delivery{Text: "final"}
	script := func(c *hostConn, n int) {
		if n == 1 {
			for range 3 {
				id, p, _ := c.subscribe()
				sid := p.Sessions[0].SessionID
				if sid == "b-child" {
					c.frame(frames.SessionAdded{SessionID: sid, Session: frames.Session{SessionID: sid, ParentSessionID: "c-root", RootSessionID: "c-root"}})
				}
				c.open(id, sid, 0, 0, "e")
			}
			c.next()
			return
		}
		var order []frames.SessionID
		for !slices.Contains(order, "b-child") || !slices.Contains(order, "c-root") {
			id, p, ok := c.subscribe()
			if !ok {
				return
			}
			for _, s := range p.Sessions {
				order = append(order, s.SessionID)
			}
			c.reply(id, rpc.SubscribeResult{})
		}
		if slices.Index(order, "b-child") < slices.Index(order, "c-root") {
			c.t.Errorf("resumed %v, want c-root before b-child", order)
		}
		c.frame(frames.HostLive{})
		c.wait()
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		for _, s := range []struct {
			sid  frames.SessionID
			tree bool
			d    *rpc.Delivery
		}{{"a-other", false, final}, {"c-root", true, nil}, {"b-child", false, final}} {
			p := rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{{SessionID: s.sid, Since: new(frames.Seq(0)), Tree: s.tree}}, Delivery: s.d}
			if _, err := c.Subscribe(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = c.Prompt(t.Context(), rpc.PromptParams{SessionID: "a-other"}) // it cuts the connection
		framesOf(t, c).want("subscribed a-other 0", "subscribed c-root 0", "host/session-added", "subscribed b-child 0", "host/live")
	})
}
