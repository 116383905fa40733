package conform

import (
	"fmt"
	"slices"
	"time"
)

func taskChecks() []Check {
	return []Check{
		{ID: "list", Section: "5", Says: "tasks.list tells the background work of a session: kind, status, startedAt, finishedAt.", run: taskList},
		{ID: "running", Section: "5", Says: "A task that runs is listed as running.", run: taskRunning},
		{ID: "get", Section: "5", Says: "tasks.get tells one task.", run: taskGet},
		{ID: "get-unknown", Section: "7", Says: "A task that does not exist is task-not-found.", run: taskUnknown("tasks.get")},
		{ID: "wait-unknown", Section: "7", Says: "A task that does not exist is task-not-found.", run: taskUnknown("tasks.wait")},
		{ID: "cancel-unknown", Section: "7", Says: "A task that does not exist is task-not-found.", run: taskUnknown("tasks.cancel")},
		{ID: "session-unknown", Section: "7", Says: "A session that does not exist is session-not-found.", run: func(t *T) { t.dial().refused("tasks.list", obj{"sessionId": nobodyID}, "session-not-found") }},
		{ID: "wait-done", Section: "5", Says: "tasks.wait of a task that has ended returns at once.", run: taskWaitDone},
		{ID: "wait-time", Section: "5", Says: "tasks.wait returns when its time is over, and says that the task still runs.", run: taskWaitTime},
		{ID: "wait-end", Section: "5", Says: "tasks.wait returns when the task ends.", run: taskWaitEnd},
		{ID: "wait-lane", Section: "2", Says: "A slow call never holds up the others.", run: taskWaitLane},
		{ID: "cancel", Section: "5", Says: "tasks.cancel ends a running task.", run: taskCancel},
		{ID: "outlives", Section: "3, 5", Says: "A task outlives the turn that began it: task/started, and it is listed as running.", run: taskOutlives},
		{ID: "output", Section: "5", Says: "tasks.get tells the tail of what a task printed.", run: taskOutput},
		{ID: "completed", Section: "3", Says: "The end of a task is an event: task/completed with its status.", run: taskCompleted},
		{ID: "cancel-background", Section: "3, 5", Says: "A task that is cancelled ends cancelled, and the log says so.", run: taskCancelBackground},
		{ID: "close", Section: "5", Says: "Closing a session ends its tasks.", run: taskClose},
		{ID: "cold", Section: "1", Says: "The tasks of a cold session are told too.", run: taskCold},
	}
}

// spawned makes a session whose two children have ended.
func (t *T) spawned() (session, *peer) {
	p := t.dial()
	s := t.session(p, spawns(2, 1))
	p.subscribe(s)
	p.turn(s, "go")
	return s, p
}

// children returns the children of a session in the order of their spawning.
func (p *peer) children(s session) []string {
	var out []string
	for _, e := range only(p.eventsOf(s, 0), "agent/spawned") {
		out = append(out, e.str("data.childSessionId"))
	}
	return out
}

func taskList(t *T) {
	s, p := t.spawned()
	tasks := p.ok("tasks.list", obj{"sessionId": s.id}).objs("tasks")
	var ids []string
	for _, k := range tasks {
		ids = append(ids, k.str("taskId"))
		t.must(k.str("kind") == "agent" && k.str("status") == "completed" && k.str("sessionId") == s.id, "kind agent, status completed", k)
		t.must(isTime(k.str("startedAt")) && isTime(k.str("finishedAt")), "startedAt and finishedAt", k)
	}
	t.equal("tasks", ids, p.children(s))
}

// waitingChild starts the demonstration, and returns the child that waits for its
// own child.
func (t *T) waitingChild() (root session, p *peer, task string) {
	p = t.dial()
	root, _, card := t.tour(p)
	return root, p, card.str("parentSessionId")
}

func taskRunning(t *T) {
	root, p, child := t.waitingChild()
	tasks := p.ok("tasks.list", obj{"sessionId": root.id}).objs("tasks")
	i := slices.IndexFunc(tasks, func(k obj) bool { return k.str("taskId") == child })
	t.must(i >= 0 && tasks[i].str("status") == "running" && !tasks[i].has("finishedAt"), "the child as a running task", tasks)
}

func taskGet(t *T) {
	s, p := t.spawned()
	id := p.children(s)[0]
	k := p.ok("tasks.get", obj{"sessionId": s.id, "taskId": id}).obj("task")
	t.must(k.str("taskId") == id && k.str("status") == "completed", "the task, completed", k)
}

func taskUnknown(method string) func(*T) {
	return func(t *T) {
		p := t.dial()
		s := t.session(p, echoes)
		p.refused(method, obj{"sessionId": s.id, "taskId": "none"}, "task-not-found")
		p.refused(method, obj{"sessionId": nobodyID, "taskId": "none"}, "session-not-found")
	}
}

func taskWaitDone(t *T) {
	s, p := t.spawned()
	r := p.ok("tasks.wait", obj{"sessionId": s.id, "taskId": p.children(s)[0]})
	t.must(r.flag("done") && r.str("task.status") == "completed", "done, completed", r)
}

func taskWaitTime(t *T) {
	root, p, child := t.waitingChild()
	began := time.Now()
	r := p.ok("tasks.wait", obj{"sessionId": root.id, "taskId": child, "timeoutMs": 200})
	t.must(!r.flag("done") && r.str("task.status") == "running", "not done, running", r)
	t.must(time.Since(began) >= 150*time.Millisecond, "an answer after 200 ms", fmt.Sprint(time.Since(began)))
}

func taskWaitEnd(t *T) {
	root, p, child := t.waitingChild()
	id := p.send("tasks.wait", obj{"sessionId": root.id, "taskId": child, "timeoutMs": 20_000})
	p.fence()
	p.ok("session.cancel", obj{"sessionId": root.id})
	r := p.response(id).obj()
	t.must(r.flag("done") && r.str("task.status") == "cancelled", "done, cancelled", r)
}

func taskWaitLane(t *T) {
	root, p, child := t.waitingChild()
	id := p.send("tasks.wait", obj{"sessionId": root.id, "taskId": child, "timeoutMs": 20_000})
	p.ok("session.get", obj{"sessionId": root.id})
	p.ok("session.configure", obj{"sessionId": root.id, "title": "x"})
	p.ok("tasks.get", obj{"sessionId": root.id, "taskId": child})
	p.ok("session.cancel", obj{"sessionId": root.id})
	p.response(id)
}

func taskCancel(t *T) {
	root, p, child := t.waitingChild()
	r := p.ok("tasks.cancel", obj{"sessionId": root.id, "taskId": child})
	t.must(r.flag("cancelled"), "cancelled: true", r)
	w := p.ok("tasks.wait", obj{"sessionId": root.id, "taskId": child})
	t.must(w.flag("done") && w.str("task.status") == "cancelled", "done, cancelled", w)
	t.must(!p.ok("tasks.cancel", obj{"sessionId": root.id, "taskId": child}).flag("cancelled"), "cancelled: false for a task that is over", "true")
}

func taskCold(t *T) {
	s, p := t.spawned()
	p.ok("session.close", obj{"sessionId": s.id})
	t.equal("tasks", len(p.ok("tasks.list", obj{"sessionId": s.id}).list("tasks")), 2)
}

// background makes a session whose turn is over and whose task runs, or ran.
func (t *T) background(more obj) (s session, p *peer, task string) {
	p = t.dial()
	s = t.session(p, obj{"role": "tasks", "count": 1}.with(more))
	p.subscribe(s)
	p.prompt(s, "go")
	task = p.event(s, "task/started").str("data.taskId")
	return s, p, task
}

func taskOutlives(t *T) {
	s, p, task := t.background(obj{"everyMs": 50})
	p.event(s, "turn/end")
	k := p.ok("tasks.get", obj{"sessionId": s.id, "taskId": task}).obj("task")
	t.must(k.str("status") == "running" && k.str("kind") != "agent" && isTime(k.str("startedAt")), "running, of a kind of its own", k)
	list := p.ok("tasks.list", obj{"sessionId": s.id}).objs("tasks")
	t.must(len(list) == 1 && list[0].str("taskId") == task, "the task in tasks.list", list)
	t.equal("state of the session", p.ok("session.get", obj{"sessionId": s.id}).str("session.state"), "idle")
}

func taskOutput(t *T) {
	s, p, task := t.background(obj{"chunks": 3, "size": 10})
	k := p.ok("tasks.wait", obj{"sessionId": s.id, "taskId": task}).obj("task")
	t.must(k.str("status") == "completed" && len(k.str("output")) >= 30 && k.num("outputBytes") == int64(len(k.str("output"))), "completed, three chunks of output, all counted", k)
}

func taskCompleted(t *T) {
	s, p, task := t.background(obj{"chunks": 1, "size": 10})
	e := p.event(s, "task/completed")
	t.must(e.str("data.taskId") == task && e.str("data.status") == "completed" && e.num("seq") > 0, "the task's id, completed, a seq", e)
}

func taskCancelBackground(t *T) {
	s, p, task := t.background(obj{"everyMs": 50})
	t.must(p.ok("tasks.cancel", obj{"sessionId": s.id, "taskId": task}).flag("cancelled"), "cancelled: true", "false")
	e := p.event(s, "task/completed")
	t.must(e.str("data.taskId") == task && e.str("data.status") == "cancelled", "the task's id, cancelled", e)
}

func taskClose(t *T) {
	s, p, task := t.background(obj{"everyMs": 50})
	p.event(s, "turn/end")
	p.ok("session.close", obj{"sessionId": s.id})
	k := p.ok("tasks.get", obj{"sessionId": s.id, "taskId": task}).obj("task")
	t.must(k.str("status") != "running" && isTime(k.str("finishedAt")), "a task that has ended", k)
}
