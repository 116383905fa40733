package client_test

import (
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

// base sends session/subscribed of a trimmed log that begins with event 5, with
// its base in three parts, of which it sends n.
func (c *hostConn) base(id int64, n int) {
	text := []string{`{"seq":4,`, `"ti`, `tle":"base"}`}
	c.reply(id, rpc.SubscribeResult{{SessionID: "s", Head: 6, Epoch: "e"}})
	c.frame(frames.SessionSubscribed{SessionID: "s", First: 5, Head: 6, Epoch: "e", BaseParts: len(text), State: frames.StateIdle})
	for i := range n {
		c.frame(frames.SessionBase{SessionID: "s", Part: i, Parts: len(text), Text: text[i]})
	}
}

// A connection that breaks within a base is resumed from 0, since nothing stands
// for what was trimmed; one that breaks behind it is resumed behind it. The fold is
// that of the base and what follows.
func TestABaseThatWasCutComesAnew(t *testing.T) {
	for cut := range 4 {
		script := func(c *hostConn, n int) {
			id, p, _ := c.subscribe()
			since := *p.Sessions[0].Since
			switch {
			case n == 1:
				c.base(id, cut)
				return
			case cut == 3 && since != 4, cut < 3 && since != 0:
				c.t.Errorf("cut after %d parts: resumed from %d", cut, since)
			case cut == 3:
				c.open(id, "s", 4, 6, "e")
			default:
				c.base(id, 3)
			}
			c.event("s", 5)
			c.event("s", 6)
			c.wait()
		}
		bubble(t, script, func(t *testing.T, h *fakeHost) {
			c := h.connect(h.options())
			watch(t, c, "s")
			var d client.Folder
			for f, err := range c.Frames(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if _, err := d.Apply(f); err != nil {
					t.Fatal(err)
				}
				if v := d.View("s"); v != nil && v.Seq == 6 {
					break
				}
			}
			if v := d.View("s"); v.Title != "title 6" || v.Epoch != "e" {
				t.Errorf("cut after %d parts: title %q in epoch %q", cut, v.Title, v.Epoch)
			}
			if h.connections() != 2 {
				t.Errorf("%d connections, want 2", h.connections())
			}
		})
	}
}

// A host that leaves out a part of a base is left, and the base taken anew.
func TestAPartThatIsMissingIsAGap(t *testing.T) {
	script := func(c *hostConn, n int) {
		id, p, _ := c.subscribe()
		if since := *p.Sessions[0].Since; since != 0 {
			c.t.Errorf("resumed from %d, want 0", since)
		}
		if n > 1 {
			c.base(id, 3)
			c.wait()
			return
		}
		c.base(id, 1)
		c.frame(frames.SessionBase{SessionID: "s", Part: 2, Parts: 3, Text: "}"})
		c.wait()
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		watch(t, c, "s")
		framesOf(t, c).want("subscribed s 0", "session/base", "subscribed s 0", "session/base", "session/base", "session/base")
	})
}

// Where a subscription expires while it is replayed, the client starts over from
// the base, after a Reset.
func TestAReplayThatExpiredStartsFromTheBase(t *testing.T) {
	script := func(c *hostConn, n int) {
		id, p, _ := c.subscribe()
		if n == 1 {
			c.open(id, "s", 0, 6, "e")
			c.event("s", 1)
			c.frame(frames.SessionUnsubscribed{SessionID: "s", Reason: "cursor-expired", First: 5})
			c.wait()
			return
		}
		if since := *p.Sessions[0].Since; since != 1 {
			c.t.Errorf("resumed from %d, want 1", since)
		}
		c.fail(id, rpc.Errorf(rpc.KindCursorExpired, "the log begins at 5"))
		id, p, _ = c.subscribe()
		if since := *p.Sessions[0].Since; since != 0 {
			c.t.Errorf("started over from %d, want 0", since)
		}
		c.base(id, 3)
		c.event("s", 5)
		c.wait()
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		watch(t, c, "s")
		framesOf(t, c).want("subscribed s 0", "event s 1", "reset s", "subscribed s 0", "session/base", "session/base", "session/base", "event s 5")
	})
}
