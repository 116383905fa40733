package agenttest

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// Suite says how [Run] makes a driver do what it checks.
type Suite struct {
	Driver agent.Driver
	Script Script
	Config json.RawMessage
	// Short is a prompt that ends by itself, soon.
	Short string
	// Long is a prompt that runs, after anything it asks was allowed, until it
	// is cancelled. The suite cancels it when the agent first streams something.
	Long string
	// Gated is a prompt that asks for approval of a tool call. Ran reports
	// whether that call did what it does. Empty means that the agent never asks.
	Gated string
	Ran   func(h *Host) bool
	// Background is a prompt whose turn ends by itself and leaves a task that
	// prints something and runs until it is cancelled. Empty means that the
	// agent has no tasks.
	Background string
	// Bubble runs the checks in virtual time, for drivers without processes.
	Bubble bool
}

// cancelTime is how long Prompt may take after its cancellation; the host gives
// up on it after [agent.CloseTimeout].
const cancelTime = agent.CloseTimeout / 2

// Run checks what every driver promises its host.
func Run(t *testing.T, s Suite) {
	check := func(name string, f func(*testing.T)) {
		t.Run(name, func(t *testing.T) {
			if s.Bubble {
				synctest.Test(t, f)
			} else {
				f(t)
			}
		})
	}
	check("the driver has a name and a kind", s.named)
	check("a turn ends by itself", s.ends)
	check("Prompt returns soon after cancel", s.cancels)
	check("Close ends a running turn and is idempotent", s.closes)
	check("turn methods after the end fail cleanly", s.turnOver)
	check("a failed append ends the turn with its error", s.storeFails)
	if s.Gated != "" {
		check("nothing runs after a rejection", s.rejects)
		check("nothing runs after a cancelled approval", s.cancelsAsk)
	}
	if s.Background != "" {
		check("a task outlives its turn and ends when it is cancelled", s.cancelsTask)
		check("Close ends tasks", s.closesTasks)
	}
}

func (s Suite) named(t *testing.T) {
	i := s.Driver.Info()
	if i.Name == "" || i.Kind == "" || strings.ToLower(i.Name) != i.Name {
		t.Errorf("Info = %+v; want a lower-case name, and a kind", i)
	}
}

func (s Suite) ends(t *testing.T) {
	ss := s.open(t, s.Script)
	if res, err := ss.Prompt(t.Context(), s.Short); err != nil || res.Reason != "" && res.Reason != frames.TurnCompleted {
		t.Errorf("Prompt(%q) = %+v, %v; want a completed turn", s.Short, res, err)
	}
}

func (s Suite) cancels(t *testing.T) {
	r := s.long(t)
	began := time.Now()
	r.cancel()
	r.ended(t)
	if d := time.Since(began); d > cancelTime {
		t.Errorf("Prompt returned %v after its cancellation; want at most %v", d, cancelTime)
	}
}

func (s Suite) closes(t *testing.T) {
	r := s.long(t)
	ctx, cancel := context.WithTimeout(context.Background(), agent.CloseTimeout)
	defer cancel()
	for range 2 {
		if err := r.session.Close(ctx); err != nil {
			t.Errorf("Close = %v; want nil, also the second time", err)
		}
	}
	said := len(r.session.Events())
	r.ended(t)
	if n := len(r.session.Events()) - said; n > 0 {
		t.Errorf("Close returned before the running turn had ended: %d events came later", n)
	}
	if _, err := r.session.Prompt(t.Context(), s.Short); err == nil {
		t.Error("Prompt after Close succeeded; want an error")
	}
	if err := r.session.Steer(t.Context(), "x"); err == nil {
		t.Error("Steer after Close succeeded; want an error")
	}
}

func (s Suite) turnOver(t *testing.T) {
	ss := s.open(t, s.Script)
	if _, err := ss.Prompt(t.Context(), s.Short); err != nil {
		t.Fatal(err)
	}
	n := len(ss.Events())
	if err := ss.LastTurn().Emit(t.Context(), frames.TodoWrite{}); !errors.Is(err, agent.ErrTurnOver) {
		t.Errorf("Emit after the end = %v; want ErrTurnOver", err)
	}
	if err := ss.Steer(t.Context(), "late"); !errors.Is(err, agent.ErrNotTaken) {
		t.Errorf("Steer with no turn = %v; want ErrNotTaken", err)
	}
	if got := len(ss.Events()); got != n {
		t.Errorf("%d events appeared after the turn was over", got-n)
	}
}

var errDisk = errors.New("agenttest: the disk is full")

func (s Suite) storeFails(t *testing.T) {
	script := s.Script
	script.Event = func(*Session, frames.Payload) error { return errDisk }
	ss := s.open(t, script)
	if _, err := ss.Prompt(t.Context(), s.Short); !errors.Is(err, errDisk) {
		t.Errorf("Prompt = %v while nothing can be stored; want the store's error", err)
	}
}

func (s Suite) rejects(t *testing.T) {
	script := s.Script
	script.Approve = func(context.Context, *Session, agent.Approval) agent.Decision {
		return agent.Decision{Outcome: frames.Rejected, Cause: frames.CauseReply}
	}
	ss := s.open(t, script)
	if res, err := ss.Prompt(t.Context(), s.Gated); err != nil || res.Reason != "" && res.Reason != frames.TurnCompleted {
		t.Errorf("Prompt = %+v, %v after a rejection; want the turn to go on and complete", res, err)
	}
	s.notRun(t, ss)
}

func (s Suite) cancelsAsk(t *testing.T) {
	script := s.Script
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	script.Approve = func(ctx context.Context, _ *Session, _ agent.Approval) agent.Decision {
		cancel()
		<-ctx.Done()
		return agent.Decision{Outcome: frames.Cancelled, Cause: frames.CauseAbort}
	}
	ss := s.open(t, script)
	if _, err := ss.Prompt(ctx, s.Gated); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Prompt = %v; want nil or its context's error", err)
	}
	s.notRun(t, ss)
}

func (s Suite) notRun(t *testing.T, ss *Session) {
	t.Helper()
	if s.Ran(ss.host) {
		t.Error("the call ran without an approval")
	}
	asked := false
	for _, e := range treeEvents(ss) {
		_, ok := e.(frames.ApprovalAsked)
		asked = asked || ok
	}
	if !asked {
		t.Errorf("%q asked for no approval; the check needs one that does", s.Gated)
	}
}

// background starts the task and returns once its turn is over and it has printed
// something.
func (s Suite) background(t *testing.T) (*Session, *Task) {
	t.Helper()
	script := s.Script
	printed := make(chan struct{}, 1)
	script.Output = func(*Session, *Task, string) { poke(printed) }
	ss := s.open(t, script)
	if res, err := ss.Prompt(t.Context(), s.Background); err != nil || res.Reason != "" && res.Reason != frames.TurnCompleted {
		t.Fatalf("Prompt(%q) = %+v, %v; want a completed turn", s.Background, res, err)
	}
	tasks := ss.Tasks()
	if len(tasks) != 1 || tasks[0].Kind == "" || tasks[0].Label == "" {
		t.Fatalf("%q left the tasks %+v; want one, with a kind and a label", s.Background, tasks)
	}
	<-printed
	if tasks[0].ctx.Err() != nil || tasks[0].Printed() == "" {
		t.Error("the task ended with its turn; want it to go on")
	}
	return ss, tasks[0]
}

func (s Suite) cancelsTask(t *testing.T) {
	ss, k := s.background(t)
	began := time.Now()
	k.Cancel()
	if status, detail := k.Wait(); status != "cancelled" {
		t.Errorf("a cancelled task ended %s (%s); want cancelled", status, detail)
	}
	if d := time.Since(began); d > cancelTime {
		t.Errorf("the task ended %v after its cancellation; want at most %v", d, cancelTime)
	}
	if res, err := ss.Prompt(t.Context(), s.Short); err != nil {
		t.Errorf("the next turn = %+v, %v; want one as ever", res, err)
	}
}

func (s Suite) closesTasks(t *testing.T) {
	ss, k := s.background(t)
	ctx, cancel := context.WithTimeout(context.Background(), agent.CloseTimeout)
	defer cancel()
	if err := ss.Close(ctx); err != nil {
		t.Errorf("Close = %v", err)
	}
	select {
	case <-k.done:
	default:
		t.Error("Close returned before the task had ended")
	}
}

func treeEvents(root *Session) []frames.Payload {
	var all []frames.Payload
	for _, s := range root.host.Sessions() {
		all = append(all, s.Events()...)
	}
	return all
}

// open opens a session on a host that is closed, and found to have left no
// goroutine of the driver behind, when the test ends.
func (s Suite) open(t *testing.T, script Script) *Session {
	t.Helper()
	if script.Cwd == "" {
		script.Cwd = t.TempDir()
	}
	h := New(script, s.Driver)
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
		noGoroutines(t)
	})
	ss, err := h.Open(t.Context(), s.Config)
	if err != nil {
		t.Fatal(err)
	}
	return ss
}

// noGoroutines waits until no goroutine was started by a driver's package. Close
// waited for their work; what is left is their last few instructions.
func noGoroutines(t *testing.T) {
	t.Helper()
	buf := make([]byte, 1<<20)
	for range 10_000 {
		if !driverGoroutine(string(buf[:runtime.Stack(buf, true)])) {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("a goroutine was left behind:\n%s", buf[:runtime.Stack(buf, true)])
}

// driverGoroutine reports whether a stack other than the caller's runs code below
// host/agent that is no test's.
func driverGoroutine(stacks string) bool {
	_, others, _ := strings.Cut(stacks, "\n\n")
	for stack := range strings.SplitSeq(others, "\n\n") {
		if strings.Contains(stack, "/host/agent/") && !strings.Contains(stack, "testing.tRunner") &&
			!strings.Contains(stack, "_test.go") {
			return true
		}
	}
	return false
}

// running is a turn that goes on until it is cancelled.
type running struct {
	session *Session
	cancel  context.CancelFunc
	done    chan struct{} // closed when Prompt returned
	res     agent.Result
	err     error
}

// long starts the long prompt and returns once the agent has streamed something.
func (s Suite) long(t *testing.T) *running {
	t.Helper()
	script := s.Script
	spoke := make(chan struct{}, 1)
	script.Streamed = func(*Session) { poke(spoke) }
	r := &running{session: s.open(t, script), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	r.session.host.wg.Go(func() {
		defer close(r.done)
		r.res, r.err = r.session.Prompt(ctx, s.Long)
	})
	select {
	case <-spoke:
	case <-r.done:
		t.Fatalf("%q ended by itself: %+v, %v", s.Long, r.res, r.err)
	}
	return r
}

func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// ended waits for the end of a cancelled turn.
func (r *running) ended(t *testing.T) {
	t.Helper()
	<-r.done
	r.cancel()
	if r.err != nil && !errors.Is(r.err, context.Canceled) {
		t.Errorf("Prompt = %v after its cancellation; want nil or its context's error", r.err)
	}
}
