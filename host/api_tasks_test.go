package host_test

import (
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent/demo"
	"github.com/muxhost/muxhost/rpc"
)

// withTasks adds an agent that works in the background: in a session of the
// config below it begins a task that runs until it is cancelled.
func withTasks(c *host.Config) { c.Drivers = append(c.Drivers, demo.New(demo.Options{})) }

var endless = map[string]any{"agent": "demo", "config": map[string]any{"role": "tasks", "size": 8, "everyMs": 1}}

// task makes a session with a task that runs.
func (r *rig) task(p *peer) (frames.Session, rpc.Task) {
	r.t.Helper()
	s := r.create(p, endless)
	subscribe(p, s.SessionID)
	prompt(p, s.SessionID, "go")
	p.event(frames.TurnEndEvent)
	ts := must[rpc.TasksResult](p, "tasks.list", map[string]any{"sessionId": s.SessionID, "running": true}).Tasks
	if len(ts) != 1 || ts[0].Status != "running" || ts[0].Kind != "demo" || ts[0].Label != "Task 1" || ts[0].Output != "" || ts[0].StartedAt.IsZero() || !ts[0].FinishedAt.IsZero() {
		r.t.Fatalf("tasks.list = %+v, want one that runs", ts)
	}
	return s, ts[0]
}

// A task is waited for while its session, and the connection, go on; its cancel
// is answered before its end is told, and ends the wait.
func TestTaskIsWatchedAndCancelled(t *testing.T) {
	r := start(t, withTasks)
	p := r.dial(canary)
	s, k := r.task(p)
	id := map[string]any{"sessionId": s.SessionID, "taskId": k.TaskID}
	for k.Output == "" {
		k = must[rpc.TaskResult](p, "tasks.get", id).Task
	}
	if len(k.Output) == 0 || k.Output[:2] != "0 " {
		t.Errorf("output %q, want chunks", k.Output)
	}
	short := must[rpc.TaskWaitResult](p, "tasks.wait", map[string]any{"sessionId": s.SessionID, "taskId": k.TaskID, "timeoutMs": 0})
	if short.Done || short.Task.Status != "running" {
		t.Errorf("a wait of no time: %+v, want it running", short)
	}
	wait := p.send("tasks.wait", id)
	must[rpc.SessionResult](p, "session.configure", map[string]any{"sessionId": s.SessionID, "title": "goes on"})
	p.event(frames.SessionRenamedEvent)
	if !must[rpc.CancelResult](p, "tasks.cancel", id).Cancelled {
		t.Error("nothing was cancelled")
	}
	mustNotSee(t, p, "tasks.cancel", "task/completed")
	var done message
	for done.ID == nil {
		if m := p.read(); string(m.ID) == wait {
			done = m
		}
	}
	if got := string(done.Result); !strings.Contains(got, `"done":true`) || !strings.Contains(got, `"status":"cancelled"`) || !strings.Contains(got, `"finishedAt"`) {
		t.Errorf("the wait ended with %s, want done and cancelled", got)
	}
	if must[rpc.CancelResult](p, "tasks.cancel", id).Cancelled {
		t.Error("a task that has ended was cancelled")
	}
	must[rpc.Empty](p, "session.close", map[string]any{"sessionId": s.SessionID})
	if ts := must[rpc.TasksResult](p, "tasks.list", map[string]any{"sessionId": s.SessionID}).Tasks; len(ts) != 1 || ts[0].Status != "cancelled" {
		t.Errorf("tasks of the cold session: %+v", ts)
	}
	if kind := kindOf(p.call("tasks.list", map[string]any{"sessionId": s.SessionID, "tree": s.SessionID})); kind != "-32602" {
		t.Errorf("a session and a tree: %s, want -32602", kind)
	}
}

// A client that is limited to trees sees and touches no task outside of them, and
// is told the same as of sessions that do not exist; an observer cancels nothing.
func TestTasksStayInTheirTrees(t *testing.T) {
	guest, observer := host.NewToken(), host.NewToken()
	r := start(t, func(c *host.Config) {
		withTasks(c)
		c.Tokens = []host.Token{
			{Secret: guest, Scopes: []rpc.Scope{rpc.ScopeOperate}, Trees: []frames.SessionID{"another"}},
			{Secret: observer, Scopes: []rpc.Scope{rpc.ScopeObserve}},
		}
	})
	s, k := r.task(r.dial(canary))
	id := map[string]any{"sessionId": s.SessionID, "taskId": k.TaskID}
	g := r.dial(guest)
	for method, params := range map[string]any{
		"tasks.list": map[string]any{"sessionId": s.SessionID}, "tasks.get": id, "tasks.wait": id, "tasks.cancel": id,
	} {
		if kind := kindOf(g.call(method, params)); kind != "session-not-found" {
			t.Errorf("%s outside of the trees: %s, want session-not-found", method, kind)
		}
	}
	if kind := kindOf(g.call("tasks.list", map[string]any{"tree": s.SessionID})); kind != "session-not-found" {
		t.Errorf("a tree outside: %s", kind)
	}
	if ts := must[rpc.TasksResult](g, "tasks.list", map[string]any{}).Tasks; len(ts) != 0 {
		t.Errorf("tasks of all: %+v, want none", ts)
	}
	o := r.dial(observer)
	if ts := must[rpc.TasksResult](o, "tasks.list", map[string]any{}).Tasks; len(ts) != 1 {
		t.Errorf("an observer sees %+v, want the task", ts)
	}
	if kind := kindOf(o.call("tasks.cancel", id)); kind != "forbidden" {
		t.Errorf("an observer's cancel: %s, want forbidden", kind)
	}
}

// A budget that is used up, and a tree that grows too fast, have their own errors;
// limits are told before one runs into them.
func TestBudgetsAndRatesOnTheWire(t *testing.T) {
	r := start(t, func(c *host.Config) { withTasks(c); c.SpawnRate = 1; c.MaxQueue = 3 })
	p := r.dial(canary)
	l := must[rpc.DescribeResult](p, "host.describe", map[string]any{}).Limits
	for name, want := range map[string]int64{"spawnsPerMinute": 1, "maxQueue": 3, "maxTree": 1000, "maxTreeDepth": 16, "maxTasks": 64, "taskOutputBytes": 65536} {
		if l[name] != want {
			t.Errorf("limit %s = %d, want %d", name, l[name], want)
		}
	}
	s := r.create(p, map[string]any{"agent": "demo", "budget": map[string]any{"tokens": 70}})
	subscribe(p, s.SessionID)
	prompt(p, s.SessionID, "hello") // an echo uses 70
	p.event(frames.TurnEndEvent)
	if kind := kindOf(p.call("session.prompt", map[string]any{"sessionId": s.SessionID, "content": []frames.ContentBlock{frames.Text("hello")}})); kind != "budget-exceeded" {
		t.Errorf("prompt: %s, want budget-exceeded", kind)
	}
	child := map[string]any{"cwd": r.cwd, "parentSessionId": s.SessionID}
	if kind := kindOf(p.call("session.create", child)); kind != "budget-exceeded" {
		t.Errorf("create: %s, want budget-exceeded", kind)
	}
	must[rpc.SessionResult](p, "session.configure", map[string]any{"sessionId": s.SessionID, "budget": map[string]any{"tokens": 71}})
	must[rpc.SessionResult](p, "session.create", child)
	m := p.call("session.create", child)
	if kindOf(m) != "rate-limited" || !strings.Contains(string(m.Error.Data), `"retryAfterMs":`) {
		t.Errorf("create: %s %s, want rate-limited with the time to wait", kindOf(m), m.Error.Data)
	}
}
