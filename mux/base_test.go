package mux_test

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/mux"
	"github.com/muxhost/muxhost/mux/muxtest"
)

// trim drops the session's events before first in log and hub, and keeps their
// fold as base.
func (s *session) trim(first frames.Seq) {
	base := frames.NewView()
	evs, err := s.log.Read(s.t.Context(), s.sid, 0, 1<<30)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range evs {
		if e.Seq >= first {
			break
		}
		d, err := frames.DecodeEvent(e.Data)
		if err == nil {
			err = base.ApplyEvent(d)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	b, err := json.Marshal(base)
	if err != nil {
		s.t.Fatal(err)
	}
	s.log.Trim(s.sid, first, b)
	s.hub.Trimmed(s.sid, first)
}

// runs joins what came several times in a row.
func runs(words []string) []string {
	var out []string
	for i := 0; i < len(words); {
		n := 1
		for i+n < len(words) && words[i+n] == words[i] {
			n++
		}
		if n > 1 {
			out = append(out, fmt.Sprintf("%s ×%d", words[i], n))
		} else {
			out = append(out, words[i])
		}
		i += n
	}
	return out
}

// A base that is too large for a frame follows session/subscribed in parts, before
// what is pending; the folds agree with the whole log's.
func TestLargeBasesComeInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		s := w.add("s", nil)
		s.say(60, 20<<10)
		s.raise("a1")
		s.trim(58)
		conn, cl := muxtest.Join(t, w.hub, "c")
		subscribe(t, conn, since("s", 0))
		s.raise("a2") // may not come before the parts and what waited already
		s.say(1, 1)
		synctest.Wait()
		got := cl.Take()
		want := []string{"response", "session/subscribed", "session/base ×5", "+a1", "+a2", "58", "59", "60", "61", "session/live"}
		if b := runs(brief(got)); !slices.Equal(b, want) {
			t.Errorf("got  %q\nwant %q", b, want)
		}
		v := frames.NewView()
		for _, m := range got[1:] {
			if len(m.Raw) > frames.MaxFrame {
				t.Errorf("%s has %d bytes", m.Type(), len(m.Raw))
			}
			if err := v.ApplyFrame(m.Frame); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := asJSON(t, v.Durable()), asJSON(t, s.view.Durable()); got != want {
			t.Errorf("fold:\ngot  %.300s\nwant %.300s", got, want)
		}
	})
}

// Clients that stop reading in the middle of a large base hold one frame each and
// share one base, which is read once; when they read on they miss nothing.
func TestStuckReadersShareOneBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{PingInterval: time.Hour, Heartbeat: time.Hour})
		s := w.add("s", nil)
		s.say(100, 20<<10) // 2 MB
		s.trim(100)
		before := heap()
		var stuck []*websocket.Conn
		var conns []*mux.Conn
		for i := range 20 {
			conn, ws := muxtest.Accept(t, w.hub, mux.AcceptOptions{ID: frames.ClientID(fmt.Sprint(i))})
			subscribe(t, conn, since("s", 0))
			for range 3 { // response, session/subscribed, a part
				readOne(t, ws)
			}
			stuck, conns = append(stuck, ws), append(conns, conn)
		}
		synctest.Wait()
		if n := w.log.Bases(); n != 1 {
			t.Errorf("the base was read %d times, want once", n)
		}
		if grown := heap() - before; grown > 20*(frames.MaxFrame+256<<10) {
			t.Errorf("the heap grew by %d KiB for 20 stuck clients", grown>>10)
		}
		for i, c := range conns {
			if n := mux.Held(c); n > 256<<10+frames.MaxFrame {
				t.Errorf("client %d holds %d bytes", i, n)
			}
		}
		good, cl := muxtest.Join(t, w.hub, "good")
		subscribe(t, good, since("s", 100))
		wantBrief(t, cl, "response", "session/subscribed", "session/live")
		s.raise("p")
		wantBrief(t, cl, "+p")
		late := muxtest.Watch(t, stuck[7])
		synctest.Wait()
		b := runs(brief(late.Take()))
		if n := len(b); n != 4 || !strings.HasPrefix(b[0], "session/base ×") || !slices.Equal(b[1:], []string{"+p", "100", "session/live"}) {
			t.Errorf("got %q, want the rest of the base, +p, 100, session/live", b)
		}
	})
}

// Many who subscribe while the base is read wait for it and do not read it too;
// when it cannot be read, the next one tries.
func TestOneReadsTheBaseForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		s := w.add("s", nil)
		s.say(20, 20<<10)
		s.trim(20)
		gate := make(chan struct{})
		w.log.Slow(func() { <-gate })
		var cls []*muxtest.Client
		var first *mux.Conn
		for i := range 10 {
			conn, cl := muxtest.Join(t, w.hub, frames.ClientID(fmt.Sprint(i)))
			subscribe(t, conn, since("s", 0))
			synctest.Wait()
			cls = append(cls, cl)
			if i == 0 {
				first = conn
			}
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { first.Close(4001, "revoked") })
		synctest.Wait()
		close(gate)
		synctest.Wait()
		for i, cl := range cls[1:] {
			if b := runs(brief(cl.Take())); len(b) != 5 {
				t.Errorf("client %d got %q", i+1, b)
			}
		}
		if n := w.log.Bases(); n > 2 {
			t.Errorf("the base was read %d times, want at most twice", n)
		}
	})
}

// A base that cannot be read ends its subscription and nothing else.
func TestABaseThatFailsEndsOnlyItsSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		s, other := w.add("s", nil), w.add("other", nil)
		s.say(5, 1)
		s.trim(4)
		s.raise("p")
		conn, cl := muxtest.Join(t, w.hub, "c")
		w.log.Fail(io.ErrUnexpectedEOF)
		subscribe(t, conn, mux.SubscribeRequest{Sessions: []mux.SubscribeEntry{{SessionID: "s", Since: new(frames.Seq)}, {SessionID: "other", Since: new(frames.Seq)}}})
		got := wantBrief(t, cl, "response", "session/subscribed", "+p", "session/subscribed", "session/live", "session/unsubscribed")
		for _, m := range got {
			if f, ok := m.Frame.(*frames.SessionUnsubscribed); ok && (f.SessionID != "s" || f.Reason != "storage-failed") {
				t.Errorf("session/unsubscribed = %+v", f)
			}
		}
		w.log.Fail(nil)
		other.say(1, 1)
		s.say(1, 1)
		wantBrief(t, cl, "1")
		subscribe(t, conn, since("s", 0))
		wantBrief(t, cl, "response", "session/subscribed", "+p", "4", "5", "6", "session/live")
	})
}

// Whoever is replaying what is trimmed meanwhile is told so, though the hub was
// not told yet; subscribed again from 0, it gets the base.
func TestReplayThatIsOvertakenByATrimExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{RingBytes: 8 << 10, WriteChunk: 4 << 10})
		s := w.add("s", nil)
		s.say(100, 1000)
		conn, ws := muxtest.Accept(t, w.hub, mux.AcceptOptions{ID: "c"})
		subscribe(t, conn, since("s", 0))
		for range 6 { // response, session/subscribed, 1 to 4
			readOne(t, ws)
		}
		synctest.Wait()
		w.log.Trim("s", 90, json.RawMessage(`{"seq":89}`))
		cl := muxtest.Watch(t, ws)
		synctest.Wait()
		got := cl.Take()
		f, ok := got[len(got)-1].Frame.(*frames.SessionUnsubscribed)
		if !ok || f.Reason != "cursor-expired" || f.First != 90 {
			t.Fatalf("the last of %q is %+v, want cursor-expired from 90", brief(got), f)
		}
		subscribe(t, conn, since("s", 0))
		synctest.Wait()
		got = cl.Take()
		if f := got[1].Frame.(*frames.SessionSubscribed); string(f.Base) != `{"seq":89}` || f.First != 90 || got[2].Event.Seq != 90 {
			t.Errorf("session/subscribed = %+v, then %q", f, brief(got[2:]))
		}
	})
}

// A session that is born with a trimmed log comes to those who follow its tree
// with its base, from its start.
func TestMembersBornTrimmedBringTheirBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		w.add("root", nil)
		conn, cl := muxtest.Join(t, w.hub, "c")
		subscribe(t, conn, mux.SubscribeRequest{Sessions: []mux.SubscribeEntry{{SessionID: "root", Tree: true}}})
		wantBrief(t, cl, "response", "session/subscribed", "session/live")
		kid := &session{t: t, hub: w.hub, log: w.log, sid: "kid", view: frames.NewView()}
		kid.say(5, 1) // the hub does not know it yet
		w.log.Trim("kid", 4, json.RawMessage(`{"seq":3}`))
		w.hub.Add(mux.Session{First: 4, Summary: frames.Session{
			SessionID: "kid", ParentSessionID: "root", RootSessionID: "root", Epoch: "e", Head: 5, State: frames.StateIdle, Origin: frames.OriginFork,
		}})
		got := wantBrief(t, cl, "host/session-added", "session/subscribed", "4", "5", "session/live")
		if f := got[1].Frame.(*frames.SessionSubscribed); string(f.Base) != `{"seq":3}` || f.Since != 0 || f.First != 4 {
			t.Errorf("session/subscribed = %+v", f)
		}
	})
}
