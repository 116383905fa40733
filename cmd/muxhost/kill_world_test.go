package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/hosttest"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
	"github.com/muxhost/muxhost/store/bolt"
	"github.com/muxhost/muxhost/store/bolt/bolttest"
)

// recorders is how many clients watch, answer and remember.
const recorders = 3

// world is one state directory and everybody who knows something about it. Hosts
// come and go.
type world struct {
	t     *testing.T
	mode  string
	dir   string // of the host
	cwd   string // of the sessions
	marks string // where commands leave a file each
	calm  string // when this file exists, commands end soon
	rnd   *rand.Rand
	moment
	*ledger

	host  *hostProcess
	token string
	roots []*root
	recs  []*hosttest.Recorder
	ctx   context.Context //nolint:containedctx // of the calls to the present host
	still bool            // nothing is left unanswered any more
	links sync.WaitGroup  // connections of the recorders
	calls sync.WaitGroup  // calls to the present host
	hunts sync.WaitGroup  // for orphans

	logs     map[frames.SessionID]*history
	verdicts *verdicts
	compared []map[frames.SessionID]int // events of each recorder held against the log
	lost     int                        // sectors that losses of power took

	mu       sync.Mutex
	problems []string // guarded by mu
}

// root is a session that is given work in every round.
type root struct {
	sid    frames.SessionID
	agent  string
	config string
	most   int // prompts that may wait
	text   func(w *world, n int) (text, mark string)
	spawns bool
	waits  int // prompts that wait, as the log has it
}

func newWorld(t *testing.T, mode string, seed uint64) *world {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, mode: mode, dir: filepath.Join(top, "state"), cwd: filepath.Join(top, "work"), marks: filepath.Join(top, "marks"),
		calm: filepath.Join(top, "calm"), rnd: rand.New(rand.NewPCG(seed, 8)), ledger: newLedger(), logs: map[frames.SessionID]*history{},
		verdicts: &verdicts{byID: map[frames.RequestID]decision{}, allows: map[string]bool{}, grants: map[frames.GrantID]frames.RequestID{}},
		roots:    newRoots(),
	}
	t.Cleanup(w.hunts.Wait)
	for _, dir := range []string{w.cwd, w.marks} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// problem notes a broken promise.
func (w *world) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.problems) < 40 {
		w.problems = append(w.problems, fmt.Sprintf(format, args...))
	}
}

func (w *world) found() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.problems
}

// fatal ends the test with what the last host said.
func (w *world) fatal(err error) {
	w.t.Helper()
	b, _ := os.ReadFile(errorsOf(w.dir))
	w.t.Fatalf("%v\nproblems so far: %s\nthe hosts said:\n%s", err, strings.Join(w.found(), "\n"), b[max(0, len(b)-4<<10):])
}

// start starts a host, lets the recorders resume, and returns a client.
func (w *world) start() *client.Client {
	w.t.Helper()
	w.host = spawnHost(w.t, w.mode, w.dir)
	url, err := w.host.ready()
	if err != nil {
		w.fatal(err)
	}
	if w.token, err = host.LoadToken(w.dir); err != nil {
		w.fatal(err)
	}
	c, err := client.Dial(w.t.Context(), client.Options{URL: url, Token: w.token, Label: "load"})
	if err != nil {
		w.fatal(err)
	}
	if w.recs == nil {
		w.settle(c, url)
	}
	for _, r := range w.recs {
		r.Move(socketOf(url))
		w.links.Go(func() { _ = r.Session(w.t.Context(), nil) }) // ends with the host
	}
	return c
}

func socketOf(url string) string { return "ws" + strings.TrimPrefix(url, "http") + "/v1/ws" }

// settle makes the sessions that are given work, and those who watch them.
func (w *world) settle(c *client.Client, url string) {
	w.t.Helper()
	var ids []frames.SessionID
	for _, r := range w.roots {
		s, err := c.Create(w.t.Context(), rpc.CreateParams{Agent: r.agent, Cwd: w.cwd, Config: json.RawMessage(r.config)})
		if err != nil {
			w.fatal(err)
		}
		r.sid = s.SessionID
		ids = append(ids, r.sid)
	}
	for i := range recorders {
		r := hosttest.NewRecorder(socketOf(url), w.token, ids...)
		r.Seen = func(f frames.Frame) {
			if _, ok := f.(*frames.SessionEvent); ok || w.still {
				w.tick()
			}
		}
		r.Answer = w.answerer(uint64(i))
		w.recs = append(w.recs, r)
		w.compared = append(w.compared, map[frames.SessionID]int{})
	}
}

// crash ends the host with SIGKILL, and waits until everybody has read what it
// had sent. In the modes with a power to lose, unsynced writes are then lost.
func (w *world) crash(c *client.Client, cancel context.CancelFunc) {
	w.t.Helper()
	w.hunt(func() { w.host.kill() })
	w.links.Wait()
	cancel()
	w.calls.Wait()
	if c != nil {
		_ = c.Close()
	}
	if w.mode == modeServe {
		return
	}
	lost, err := bolttest.Lose(filepath.Join(w.dir, dbName), filepath.Join(w.dir, journalName), w.mode == modeNoSync, w.rnd)
	if err != nil {
		w.fatal(err)
	}
	w.lost += lost
	if err := os.Remove(filepath.Join(w.dir, journalName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.fatal(err)
	}
}

// hunt lets end kill the host, and sees to it that its commands die within 5 s.
func (w *world) hunt(end func()) {
	marks := commandsIn(w.cwd)
	end()
	began := time.Now()
	w.hunts.Go(func() {
		if left := outlive(w.cwd, marks, began.Add(5*time.Second)); left > 0 {
			w.problem("%d processes of commands still run %v after the host was killed", left, time.Since(began))
		}
	})
}

// checkCopy verifies the whole database, as the dead host left it.
func (w *world) checkCopy() {
	w.t.Helper()
	to := filepath.Join(w.t.TempDir(), dbName)
	if err := copyFile(to, filepath.Join(w.dir, dbName)); err != nil {
		w.fatal(err)
	}
	if err := bolt.Check(to); err != nil {
		w.problem("the database after a kill: %v", err)
	}
	if err := os.Remove(to); err != nil {
		w.fatal(err)
	}
}

func copyFile(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		return err
	}
	return dst.Close()
}

// nextMark returns a channel that is closed when the next command has begun, or
// with other.
func (w *world) nextMark(ctx context.Context, other <-chan struct{}) <-chan struct{} {
	begun := make(chan struct{})
	was := changedAt(w.marks)
	w.calls.Go(func() {
		defer close(begun)
		ticks := time.NewTicker(200 * time.Microsecond)
		defer ticks.Stop()
		for changedAt(w.marks).Equal(was) {
			select {
			case <-ticks.C:
			case <-other:
				return
			case <-ctx.Done():
				return
			}
		}
	})
	return begun
}

// changedAt is when a directory last got a file.
func changedAt(dir string) time.Time {
	info, err := os.Stat(dir)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// moment is a number of events from now.
type moment struct {
	mu   sync.Mutex
	left int
	hit  chan struct{} // closed when left reaches 0
}

// in returns a channel that is closed when n more events were seen.
func (m *moment) in(n int) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left, m.hit = n, make(chan struct{})
	return m.hit
}

func (m *moment) tick() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left--; m.left == 0 {
		close(m.hit)
	}
}
