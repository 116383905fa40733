package client_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Over connections that are cut at random points, in every way, a consumer gets
// each durable event of each session once and in order.
func TestEveryEventOnceWhateverIsCut(t *testing.T) {
	const total = 60
	for seed := range uint64(25) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		script := func(c *hostConn, n int) { cutAfter(c, total, rnd.IntN(3*total), rnd.IntN(4)) }
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t, script)
			o := h.options()
			o.MaxBackoff = time.Second
			c := h.connect(o)
			h.wg.Go(func() {
				for _, sid := range []frames.SessionID{"a", "b", "c"} {
					_, err := c.Subscribe(t.Context(), rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{{SessionID: sid, Since: new(frames.Seq(0))}}})
					if err != nil {
						t.Errorf("seed %d: Subscribe: %v", seed, err)
					}
				}
			})
			have := map[frames.SessionID]frames.Seq{}
			for f, err := range c.Frames(t.Context()) {
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				e, ok := f.(*frames.SessionEvent)
				if !ok {
					continue
				}
				ev, err := frames.DecodeEvent(e.Event)
				if err != nil || ev.Seq != have[e.SessionID]+1 {
					t.Fatalf("seed %d: %s got %d after %d (%v)", seed, e.SessionID, ev.Seq, have[e.SessionID], err)
				}
				have[e.SessionID] = ev.Seq
				if have["a"] == total && have["b"] == total && have["c"] == total {
					break
				}
			}
		})
	}
}

// cutAfter serves subscriptions and cuts the connection, in one of four ways,
// after a number of events. Every message may be the last.
func cutAfter(c *hostConn, total, left, way int) {
	defer func() {
		switch way {
		case 0:
			_ = c.sock.Close(4008, "slow")
		case 1:
			_ = c.sock.Close(websocket.StatusGoingAway, "down")
		case 2:
			c.event("a", 1<<40) // a gap: the client leaves
		}
	}()
	for left > 0 {
		r, ok := c.next()
		if !ok {
			return
		}
		var p rpc.SubscribeParams
		if err := json.Unmarshal(r.Params, &p); err != nil || r.Method != "mux.subscribe" {
			c.t.Errorf("%s %s: %v", r.Method, r.Params, err)
		}
		var res rpc.SubscribeResult
		for _, s := range p.Sessions {
			res = append(res, rpc.Subscribed{SessionID: s.SessionID, Head: frames.Seq(total), Epoch: "e"})
		}
		if left--; left == 0 || !c.reply(r.ID, res) {
			return
		}
		for _, s := range p.Sessions {
			if left--; left == 0 {
				return
			}
			c.frame(frames.SessionSubscribed{SessionID: s.SessionID, Since: *s.Since, Head: frames.Seq(total), First: 1, Epoch: "e"})
			for seq := *s.Since + 1; seq <= frames.Seq(total); seq++ {
				if left--; left == 0 || !c.event(s.SessionID, seq) {
					return
				}
			}
		}
	}
}

// A folder keeps one view per session, and a Reset starts it anew.
func TestFolderFoldsAndResets(t *testing.T) {
	script := func(c *hostConn, n int) {
		id, _, _ := c.subscribe()
		if n == 1 {
			c.open(id, "s", 0, 2, "old")
			c.event("s", 1)
			c.event("s", 2)
			return
		}
		c.fail(id, rpc.Errorf(rpc.KindCursorExpired, "epoch"))
		id, _, _ = c.subscribe()
		c.open(id, "s", 0, 1, "new")
		c.event("s", 1)
		c.wait()
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		watch(t, c, "s")
		var d client.Folder
		var got []string
		for f, err := range c.Frames(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			sid, err := d.Apply(f)
			if err != nil || sid != "s" {
				t.Fatalf("Apply(%T) = %q, %v", f, sid, err)
			}
			if v := d.View("s"); v != nil {
				got = append(got, fmt.Sprint(v.Seq, v.Title))
			} else {
				got = append(got, "none")
			}
			if len(got) == 6 {
				break
			}
		}
		want := []string{"0", "1title 1", "2title 2", "none", "0", "1title 1"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("folded %q, want %q", got, want)
		}
	})
}

// The host's baseline takes away the cards of every session; what it repeats is
// back.
func TestFolderVoidsCardsWithTheInbox(t *testing.T) {
	var d client.Folder
	apply := func(fs ...frames.Frame) {
		t.Helper()
		for _, f := range fs {
			if _, err := d.Apply(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	a, b := frames.QuestionRequested{SessionID: "a", ID: "qa"}, frames.QuestionRequested{SessionID: "b", ID: "qb"}
	apply(&a, &b, &frames.HostSubscribed{}, &b)
	if na, nb := len(d.View("a").Pending()), len(d.View("b").Pending()); na != 0 || nb != 1 {
		t.Errorf("%d and %d pending, want none in a and one in b", na, nb)
	}
}
