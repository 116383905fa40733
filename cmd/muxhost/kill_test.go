package main_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/hosttest"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

// killsEnv says how often TestKilledHostLosesNothingSeen kills; the other test
// kills a fifth of that.
const killsEnv = "MUXHOST_TEST_KILLS"

// kills is how often hosts are killed in this run.
func kills(t *testing.T) int {
	t.Helper()
	if s := os.Getenv(killsEnv); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("%s=%s: it takes a number of kills, such as 1000", killsEnv, s)
		}
		return n
	}
	if testing.Short() {
		return 15
	}
	return 100
}

// However often and whenever the host is killed: no event that a client saw and
// no call that was acknowledged is undone, nothing ran that nobody allowed, what
// was open is closed, what waited goes on in order, and no process is left.
func TestKilledHostLosesNothingSeen(t *testing.T) {
	w := newWorld(t, modeServe, 1)
	w.run(kills(t))
	for _, p := range w.found() {
		t.Error(p)
	}
	w.weigh(kills(t))
}

// The same where each kill is a loss of power: of what the database has written
// and not synced, any sector is lost.
func TestHostWithoutPowerLosesNothingSeen(t *testing.T) {
	n := max(5, kills(t)/5)
	w := newWorld(t, modePower, 2)
	w.run(n)
	for _, p := range w.found() {
		t.Error(p)
	}
	w.weigh(n)
	if w.lost == 0 {
		t.Error("no loss of power took a single sector: the test has tested nothing")
	}
}

// The test above has teeth: of a host that does not sync, the first losses of
// power take what somebody saw.
func TestHostThatDoesNotSyncIsNoticed(t *testing.T) {
	w := newWorld(t, modeNoSync, 3)
	for round := range 5 {
		w.round(round, false)
		if missing := w.missing(); missing > 0 {
			t.Logf("after %d losses of power, %d events that were seen are gone", round+1, missing)
			return
		}
	}
	t.Error("five losses of power took nothing from a host that does not sync; the test has no teeth")
}

// run kills n hosts, and lets the last one finish everything.
func (w *world) run(n int) {
	w.t.Helper()
	for round := range n {
		w.round(round, true)
		if len(w.found()) > 0 {
			return
		}
		if round%10 == 9 {
			w.checkCopy()
		}
	}
	w.finish()
	w.hunts.Wait()
}

// round starts a host, checks it, gives it work and kills it at a random moment.
func (w *world) round(round int, check bool) {
	w.t.Helper()
	if round > 0 && w.rnd.IntN(10) == 0 {
		w.killEarly()
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	w.ctx = ctx
	c := w.start()
	if check {
		w.check(c, round%20 == 19)
	}
	now := w.in(1 + w.rnd.IntN(1+w.rnd.IntN(400)))
	if w.rnd.IntN(3) == 0 {
		now = w.nextMark(ctx, w.in(800)) // just when a command begins
	}
	w.load(c, round)
	w.await(now)
	w.crash(c, cancel)
}

// killEarly kills a host while it opens its database and repairs what the one
// before has left.
func (w *world) killEarly() {
	w.t.Helper()
	w.host = spawnHost(w.t, w.mode, w.dir)
	if err := w.host.opening(w.dir); err != nil {
		w.fatal(err)
	}
	w.crash(nil, func() {})
}

// await waits for a moment.
func (w *world) await(now <-chan struct{}) {
	w.t.Helper()
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case <-now:
	case <-timer.C:
		w.fatal(fmt.Errorf("nothing happens for %v", startTimeout))
	}
}

// finish lets a last host do everything that waits, with every client at the end
// of every log, and ends it properly.
func (w *world) finish() {
	w.t.Helper()
	if err := os.WriteFile(w.calm, nil, 0o600); err != nil {
		w.fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	w.ctx, w.still = ctx, true
	c := w.start()
	w.check(c, true)
	var feeds sync.WaitGroup
	for _, r := range w.roots {
		feeds.Go(func() { w.feed(ctx, c, r, 7) })
	}
	feeds.Wait()
	for {
		now := w.in(1)
		if !w.busy(c) {
			break
		}
		w.await(now)
	}
	w.catchUp()
	if err := w.host.stop(); err != nil {
		w.problem("the last host, interrupted: %v", err)
	}
	w.links.Wait()
	cancel()
	w.calls.Wait()
	_ = c.Close()
	w.checkDone()
}

// busy reads what is new in all logs, and reports whether a turn runs or waits.
func (w *world) busy(c *client.Client) bool {
	w.t.Helper()
	busy := false
	for s, err := range c.ListAll(w.t.Context(), rpc.ListParams{}) {
		if err != nil {
			w.fatal(err)
		}
		if h := w.logs[s.SessionID]; h != nil && int(s.Head) < len(h.events) {
			busy = true // a log is read ahead of its summary, by what is just being stored
			continue
		}
		w.read(c, s, false)
		h := w.logs[s.SessionID]
		busy = busy || h.open() != "" || len(h.queue)+len(h.tasks) > 0
	}
	return busy
}

// catchUp waits until every client has seen everything of the trees it watches.
func (w *world) catchUp() {
	w.t.Helper()
	want := map[frames.SessionID]frames.Seq{}
	for _, r := range w.recs {
		r.Sessions(func(sid frames.SessionID, _ *hosttest.Record) {
			if h := w.logs[sid]; h != nil {
				want[sid] = frames.Seq(len(h.events))
			}
		})
	}
	for _, r := range w.recs {
		for {
			now := w.in(1)
			if len(r.Behind(want)) == 0 {
				break
			}
			w.await(now)
		}
	}
}

// missing counts the events that clients saw and the next host does not have.
func (w *world) missing() int {
	w.t.Helper()
	c := w.start()
	defer func() {
		w.host.kill()
		w.links.Wait()
		_ = c.Close()
	}()
	n := 0
	w.recs[0].Sessions(func(sid frames.SessionID, rec *hosttest.Record) {
		res, err := c.Get(w.t.Context(), rpc.GetParams{SessionID: sid})
		if err != nil {
			n += len(rec.Events)
			return
		}
		n += max(0, len(rec.Events)-int(res.Session.Head))
	})
	return n
}

// weigh makes sure that the run was worth its name.
func (w *world) weigh(kills int) {
	w.t.Helper()
	interrupted, events, tasks := 0, 0, 0
	for _, h := range w.logs {
		interrupted += h.interrupt
		events += len(h.events)
		tasks += h.begun
	}
	ran, err := os.ReadDir(w.marks)
	if err != nil {
		w.fatal(err)
	}
	w.t.Logf("%d kills: %d sessions, %d events, %d turns interrupted, %d requests decided (%d answers acknowledged), %d prompts, %d commands ran, %d tasks began, %d sectors lost",
		kills, len(w.logs), events, interrupted, len(w.verdicts.byID), len(w.accepted), len(w.order), len(ran), tasks, w.lost)
	if w.t.Failed() {
		return
	}
	if kills >= 50 && tasks == 0 {
		w.t.Errorf("no command ran in the background in %d kills; the load is too weak to test that", kills)
	}
	for what, got := range map[string]int{
		"turns interrupted": interrupted, "requests decided": len(w.verdicts.byID), "answers acknowledged": len(w.accepted), "commands run": 10 * len(ran),
	} {
		if got < kills {
			w.t.Errorf("only %d %s in %d kills; the load is too weak to test anything: %s", got, what, kills, strings.Join(w.found(), "; "))
		}
	}
}
