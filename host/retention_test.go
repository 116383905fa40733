package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/hosttest"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
	"github.com/muxhost/muxhost/store"
)

// twin is a store that keeps aside whatever is appended: the logs as they would be
// untrimmed.
type twin struct {
	store.Store
	mu    sync.Mutex
	logs  map[frames.SessionID][]store.Event
	full  bool // trims fail
	trims int
}

func (w *twin) Append(ctx context.Context, sid frames.SessionID, at store.Head, evs []store.Event, rows ...store.Row) (store.Head, error) {
	h, err := w.Store.Append(ctx, sid, at, evs, rows...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && frames.Seq(len(w.logs[sid])) == at.Seq {
		w.logs[sid] = append(w.logs[sid], slices.Clone(evs)...)
	}
	return h, err
}

func (w *twin) Trim(ctx context.Context, sid frames.SessionID, before frames.Seq, rows ...store.Row) error {
	w.mu.Lock()
	w.trims++
	full := w.full
	w.mu.Unlock()
	if full {
		return store.ErrFull
	}
	return w.Store.Trim(ctx, sid, before, rows...)
}

// fold returns the fold of an untrimmed log, as JSON, and its head.
func (w *twin) fold(t *testing.T, sid frames.SessionID) (string, frames.Seq) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	v := frames.NewView()
	for _, s := range w.logs[sid] {
		e, err := frames.DecodeEvent(s.Data)
		if err == nil {
			err = v.ApplyEvent(e)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return lasting(t, v), v.Seq
}

// lasting returns what of a view comes from the log, as JSON.
func lasting(t *testing.T, v *frames.View) string {
	t.Helper()
	b, err := json.Marshal(v.Durable())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// kept plays a scene in which logs are trimmed, on a twin.
func kept(t *testing.T, r host.Retention, f func(t *testing.T, s *scene, w *twin)) {
	t.Helper()
	w := &twin{logs: map[frames.SessionID][]store.Event{}}
	play(t, func(c *host.Config) {
		c.Retention, c.AskTimeout = r, 20*time.Second
		if w.Store == nil {
			w.Store = c.Store
		}
		c.Store = w
	}, func(t *testing.T, s *scene) { f(t, s, w) })
}

// follower is a client of package rpc/client that folds a tree, over as many
// connections as it takes.
type follower struct {
	c      *client.Client
	wires  *wires
	stop   context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	fold   client.Folder // guarded by mu
	pause  time.Duration // guarded by mu: after each frame
	resets int           // guarded by mu
	err    error         // guarded by mu
}

// wires passes requests on and can cut what they became.
type wires struct {
	http.RoundTripper
	mu   sync.Mutex
	open []io.Closer
	down bool // nobody gets through
}

func (w *wires) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	down := w.down
	w.mu.Unlock()
	if down {
		return nil, io.ErrUnexpectedEOF
	}
	resp, err := w.RoundTripper.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		w.mu.Lock()
		w.open = append(w.open, resp.Body)
		w.mu.Unlock()
	}
	return resp, err
}

// cut cuts every connection; where it is down none comes after.
func (w *wires) cut(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
	for _, c := range w.open {
		_ = c.Close()
	}
	w.open = nil
}

// trail starts a follower of the tree below root, from its start.
func (s *scene) trail(root frames.SessionID) *follower {
	s.t.Helper()
	f := &follower{wires: &wires{RoundTripper: s.host.Local().Transport}}
	var err error
	f.c, err = client.Dial(s.t.Context(), client.Options{URL: host.LocalURL, Token: canary, HTTPClient: &http.Client{Transport: f.wires}})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := f.c.Subscribe(s.t.Context(), rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{{SessionID: root, Since: new(frames.Seq), Tree: true}}}); err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.wg.Go(func() { f.run(ctx) })
	return f
}

func (f *follower) run(ctx context.Context) {
	for fr, err := range f.c.Frames(ctx) {
		f.mu.Lock()
		if err == nil {
			_, err = f.fold.Apply(fr)
		}
		if _, ok := fr.(*client.Reset); ok {
			f.resets++
		}
		if err != nil && ctx.Err() == nil && f.err == nil {
			f.err = err
		}
		pause := f.pause
		f.mu.Unlock()
		if err != nil || pause > 0 && rest(ctx, pause) != nil {
			return
		}
	}
}

func (f *follower) slow(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pause = d
}

func (f *follower) close() {
	f.stop()
	_ = f.c.Close()
	f.wg.Wait()
}

// bit is an act that does a bit of everything, at random.
func bit(rnd *rand.Rand) act {
	var mu sync.Mutex
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rnd.IntN(n)
	}
	return func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
		for range 1 + roll(5) {
			var err error
			switch roll(9) {
			case 0, 1:
				err = say(ctx, t, strings.Repeat("é\"", roll(4000)), " ", fmt.Sprint(roll(1000)))
			case 2:
				err = say(ctx, t, strings.Repeat("long ", roll(30_000)))
			case 3:
				_, err = gatedCall(ctx, t, fmt.Sprint("call-", roll(1<<30)))
			case 4:
				err = t.Emit(ctx, frames.ToolCall{CallID: frames.CallID(fmt.Sprint("open-", roll(1<<30))), Name: "sh"}, frames.TodoWrite{Todos: []frames.Todo{{Content: "x", Status: "pending"}}})
			case 5:
				_, err = t.Question(ctx, frames.Question{ID: "q", Question: "which?", AllowText: true})
			case 6:
				_, err = t.Spawn(ctx, agent.Spawn{Prompt: []frames.ContentBlock{frames.Text("kid")}})
			case 7:
				_ = t.Text(ctx, t.NewBlock(), "never recorded")
				err = rest(ctx, time.Duration(roll(5000))*time.Millisecond)
			case 8:
				err = t.Emit(ctx, frames.SessionCompacted{UpTo: 1, Content: []frames.ContentBlock{frames.Text("so far")}})
			}
			if err != nil {
				return agent.Result{}, err
			}
		}
		if roll(12) == 0 {
			panic("boom")
		}
		return agent.Result{}, nil
	}
}

// Whatever sessions do, wherever their logs are trimmed meanwhile, and however
// clients follow them (from the start, from the middle, slowly, over connections
// that are cut), everyone ends with the view that the whole log gives, and with
// each event once. Trims that fail leave everything as it was.
func TestTrimmedLogsReadLikeWholeOnes(t *testing.T) {
	var trims, resets int
	rounds := under(1, 4)
	for round := range rounds {
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) {
			rnd := seeded(round)
			r := host.Retention{MaxEvents: int64(6 + rnd.IntN(20))}
			switch round % 4 {
			case 1:
				r = host.Retention{MaxBytes: int64(20+rnd.IntN(100)) << 10}
			case 2:
				r = host.Retention{MaxAge: time.Duration(5+rnd.IntN(60)) * time.Minute, MaxTotalBytes: 300 << 10}
			}
			kept(t, r, func(t *testing.T, s *scene, w *twin) {
				g := &trimGame{t: t, s: s, w: w, rnd: rnd, watches: map[*hosttest.Watch]bool{}}
				s.pup.on("bit", bit(rand.New(rand.NewPCG(uint64(round), 3))))
				s.pup.on("kid", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
					return agent.Result{}, say(ctx, t, "kid")
				})
				g.play(100)
				a, b := g.happened()
				trims, resets = trims+a, resets+b
			})
		})
	}
	if trims < 2*rounds || resets == 0 {
		t.Errorf("%d trims and %d resets in %d rounds: too little happened", trims, resets, rounds)
	}
}

// trimGame is one random game on one tree.
type trimGame struct {
	t         *testing.T
	s         *scene
	w         *twin
	rnd       *rand.Rand
	boss      *hosttest.Watch
	sid       frames.SessionID
	watches   map[*hosttest.Watch]bool // whether it began at the start
	followers []*follower
}

func (g *trimGame) play(steps int) {
	g.boss = g.s.dial()
	g.sid = g.s.create(g.boss)
	g.s.inbox(g.boss)
	for range 3 {
		g.followers = append(g.followers, g.s.trail(g.sid))
	}
	defer func() {
		for _, f := range g.followers {
			f.close()
		}
	}()
	for range steps {
		g.step()
	}
	g.settle()
	for sid := range g.s.list(g.boss) {
		g.compare(sid)
	}
}

// step does one thing at random, and lets time pass.
func (g *trimGame) step() {
	f := g.followers[g.rnd.IntN(len(g.followers))]
	switch g.rnd.IntN(12) {
	case 0, 1, 2:
		if r, err := g.boss.Call(g.t.Context(), "session.prompt", promptParams(g.sid, "bit")); err != nil || r.Error != nil && r.Kind() != "queue-full" {
			g.t.Errorf("prompt: %v %+v", err, r.Error)
		}
	case 3, 4:
		for _, id := range g.boss.Cards() {
			g.answer(id)
		}
	case 5:
		f.wires.cut(g.rnd.IntN(3) > 0)
	case 6:
		f.slow(time.Duration(g.rnd.IntN(3)) * 200 * time.Millisecond)
	case 7, 8:
		g.join()
	case 9:
		for w := range g.watches {
			if g.rnd.IntN(2) == 0 {
				w.Hold()
			} else {
				w.Resume()
			}
		}
	case 10:
		g.w.mu.Lock()
		g.w.full = g.rnd.IntN(3) == 0
		g.w.mu.Unlock()
	case 11:
		_ = rest(g.t.Context(), time.Duration(g.rnd.IntN(90))*time.Minute)
	}
	_ = rest(g.t.Context(), time.Duration(g.rnd.IntN(30))*time.Second)
	synctest.Wait()
}

// answer answers a request of any session in one way or the other.
func (g *trimGame) answer(id frames.RequestID) {
	for _, got := range g.boss.Got() {
		switch f := got.Frame.(type) {
		case *frames.ApprovalRequested:
			if f.ID == id {
				g.s.respond(g.boss, f.SessionID, id, []frames.Outcome{frames.AllowedOnce, frames.Rejected}[g.rnd.IntN(2)])
				return
			}
		case *frames.QuestionRequested:
			if f.ID == id {
				_, _ = g.boss.Call(g.t.Context(), "question.respond", map[string]any{"sessionId": f.SessionID, "id": id, "answers": []frames.Answer{{ID: "q", Text: "this"}}})
				return
			}
		}
	}
}

// first returns where a log begins.
func (g *trimGame) first(sid frames.SessionID) frames.Seq {
	return ask[rpc.HistoryResult](g.s, g.boss, "session.history", map[string]any{"sessionId": sid, "limit": 1}).First
}

// join subscribes a new client, from the start or from somewhere; what is no
// longer kept is refused, and says what is.
func (g *trimGame) join() {
	w := g.s.dial()
	since := 0
	if g.rnd.IntN(2) == 0 {
		since = g.rnd.IntN(int(g.s.list(g.boss)[g.sid].Head)) + 1
	}
	first := g.first(g.sid)
	r, err := w.Call(g.t.Context(), "mux.subscribe", from(g.sid, since, since == 0))
	if err != nil {
		g.t.Fatal(err)
	}
	expired := since > 0 && since < int(first)-1
	if (r.Kind() == "cursor-expired") != expired || !expired && r.Kind() != "ok" {
		g.t.Errorf("since %d, where the log begins at %d: %s", since, first, r.Kind())
	}
	if expired {
		var d struct {
			Details struct{ First, Head frames.Seq }
		}
		if json.Unmarshal(r.Error.Data, &d) != nil || d.Details.First != first || d.Details.Head < first {
			g.t.Errorf("since %d, where the log begins at %d: %s", since, first, r.Error.Data)
		}
		g.s.leave(w)
		return
	}
	g.watches[w] = since == 0
}

// happened tells how often logs were trimmed and clients had to start over; once at
// least, the log was trimmed.
func (g *trimGame) happened() (trims, resets int) {
	parts := 0
	for _, f := range g.followers {
		f.mu.Lock()
		resets += f.resets
		f.mu.Unlock()
	}
	for w := range g.watches {
		parts += len(framesOf[*frames.SessionBase](w))
	}
	first := g.first(g.sid)
	g.t.Logf("the log begins at %d, %d trims, %d resets, %d parts of bases, %d clients", first, g.w.trims, resets, parts, len(g.watches))
	if first == 1 {
		g.t.Error("too little happened")
	}
	return g.w.trims, resets
}

// settle lets everything come to its end.
func (g *trimGame) settle() {
	g.w.mu.Lock()
	g.w.full = false
	g.w.mu.Unlock()
	for _, f := range g.followers {
		f.slow(0)
		f.wires.cut(false)
	}
	for w := range g.watches {
		w.Resume()
	}
	for range 100 {
		_ = rest(g.t.Context(), 10*time.Minute) // what waits runs
		for _, id := range g.boss.Cards() {
			g.answer(id)
		}
		if !slices.ContainsFunc(slices.Collect(maps.Values(g.s.list(g.boss))), func(x frames.Session) bool { return x.State != frames.StateIdle }) {
			break
		}
	}
	_ = rest(g.t.Context(), 3*time.Hour)
	synctest.Wait()
}

// compare holds everyone who follows a session against its untrimmed log.
func (g *trimGame) compare(sid frames.SessionID) {
	want, head := g.w.fold(g.t, sid)
	for i, f := range g.followers {
		f.mu.Lock()
		if f.err != nil {
			g.t.Errorf("follower %d: %v", i, f.err)
		}
		if v := f.fold.View(sid); v == nil {
			g.t.Errorf("follower %d has no view of %s", i, sid)
		} else if got := lasting(g.t, v); got != want {
			g.t.Errorf("follower %d, after %d resets, folds %s to\n%.2000s\nwant\n%.2000s", i, f.resets, sid, got, want)
		}
		f.mu.Unlock()
	}
	res := ask[rpc.GetResult](g.s, g.boss, "session.get", map[string]any{"sessionId": sid, "view": true})
	if string(res.View) != want || res.Seq != head {
		g.t.Errorf("session.get of %s: %.2000s\nwant\n%.2000s", sid, res.View, want)
	}
	fresh := g.s.dial()
	g.s.watch(fresh, sid, 0)
	synctest.Wait()
	g.watches[fresh] = true
	for w, whole := range g.watches {
		cursor, live := w.Cursor(sid)
		if cursor == 0 && w != fresh || w.Err() != nil {
			continue // it follows another session, was too slow, or its cursor expired
		}
		if cursor != head || !live {
			g.t.Errorf("a client is at %d of %d of %s, live: %v", cursor, head, sid, live)
		}
		if whole {
			g.same(w, sid, want)
		}
	}
	delete(g.watches, fresh)
	g.s.leave(fresh)
}

func (g *trimGame) same(w *hosttest.Watch, sid frames.SessionID, want string) {
	fold, _, err := w.View(sid)
	v := frames.NewView()
	if err == nil {
		err = json.Unmarshal([]byte(fold), v)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	if got := lasting(g.t, v); got != want {
		g.t.Errorf("a client folds %s to\n%.2000s\nwant\n%.2000s", sid, got, want)
	}
}
