package session

import (
	"cmp"
	"slices"

	"github.com/muxhost/muxhost/frames"
)

// Task is background work of an agent: a command that goes on by itself, or a
// child session from its start to the end of its first turn.
type Task struct {
	ID      frames.TaskID
	Session frames.SessionID
	Turn    frames.TurnID
	// Child is the child session of a task of kind "agent"; ID is the same.
	Child          frames.SessionID
	Kind, Label    string
	Status         string // "running", "completed", "failed", "cancelled", "interrupted"
	Detail         string
	Started, Ended frames.Time
	// Output is the end of what it printed; OutputBytes counts all of it.
	Output      string
	OutputBytes int64
}

// taskRunning is the status of a task that has not ended.
const taskRunning = "running"

// Bounds of what is remembered of the tasks of one session.
const (
	maxListed  = 256 // tasks, the newest; what runs comes on top
	maxOutputs = 16  // outputs of tasks that have ended
)

// work is one task in a [works].
type work struct {
	Task
	bg   *background   // nil for children, and for what is known from the log only
	done chan struct{} // closed when it has ended
}

// works is the fold of a session's events to its tasks, oldest first. The
// manager's mutex guards that of a live session, which begins when it wakes.
type works struct {
	sid frames.SessionID
	// id, when set, is the only task that is wanted.
	id   frames.TaskID
	list []*work
}

// take applies an event. bg returns who works on a task that starts; nil knows
// nobody.
func (w *works) take(e frames.Event, bg func(frames.TaskID) *background) {
	switch e.Type {
	case frames.TaskStartedEvent, frames.TaskCompletedEvent, frames.AgentSpawnedEvent, frames.AgentCompletedEvent:
	default:
		return
	}
	p, err := e.Payload()
	if err != nil {
		return
	}
	switch p := p.(type) {
	case *frames.TaskStarted:
		k := w.begin(p.TaskID, e)
		k.Kind, k.Label = p.Kind, p.Label
		if bg != nil {
			k.bg = bg(p.TaskID)
		}
	case *frames.TaskCompleted:
		w.end(p.TaskID, e, p.Status, p.Detail)
	case *frames.AgentSpawned:
		k := w.begin(frames.TaskID(p.ChildSessionID), e)
		k.Kind, k.Label, k.Child = "agent", cmp.Or(p.Title, p.Agent), p.ChildSessionID
	case *frames.AgentCompleted:
		status, detail := childEnd(p.Status, p.Message)
		w.end(frames.TaskID(p.ChildSessionID), e, status, detail)
	}
}

// childEnd says the end of a child's turn in the words of tasks.
func childEnd(reason, message string) (status, detail string) {
	switch frames.TurnEndReason(reason) {
	case frames.TurnCompleted, frames.TurnCancelled, frames.TurnInterrupted:
		return reason, message
	case frames.TurnError:
		return "failed", message
	}
	if message != "" {
		message = ": " + message
	}
	return "failed", reason + message
}

// begin adds a task that runs.
func (w *works) begin(id frames.TaskID, e frames.Event) *work {
	k := &work{
		Task: Task{ID: id, Session: w.sid, Turn: e.TurnID, Status: taskRunning, Started: e.Time},
		done: make(chan struct{}),
	}
	w.add(k)
	return k
}

// add keeps k, if it is wanted. Where there are too many, the oldest that has
// ended is dropped; what runs is bounded elsewhere.
func (w *works) add(k *work) {
	if w.id != "" && w.id != k.ID {
		return
	}
	w.list = append(w.list, k)
	if len(w.list) <= maxListed {
		return
	}
	if at := slices.IndexFunc(w.list, func(k *work) bool { return k.Status != taskRunning }); at >= 0 {
		w.list = slices.Delete(w.list, at, at+1)
	}
}

// end ends a task, once.
func (w *works) end(id frames.TaskID, e frames.Event, status, detail string) {
	k := w.get(id)
	if k == nil || k.Status != taskRunning {
		return
	}
	k.Status, k.Detail, k.Ended = status, detail, e.Time
	close(k.done)
	kept := 0
	for _, k := range slices.Backward(w.list) {
		if k.bg == nil || k.Status == taskRunning {
			continue
		}
		if kept++; kept > maxOutputs {
			k.bg = nil
		}
	}
}

// work keeps the tasks of a live session up to date with its log. The manager's
// mutex is held.
func (a *actor) work(events []frames.Event) {
	if a.e.actor != a { // it is only repaired
		return
	}
	if a.e.works == nil {
		a.e.works = &works{sid: a.id}
	}
	for _, e := range events {
		a.e.works.take(e, func(id frames.TaskID) *background { return a.tasks[id] })
	}
}

// abandon ends what runs still, for those who wait for it: the session is gone.
func (w *works) abandon(status string) {
	for _, k := range w.list {
		if k.Status == taskRunning {
			k.Status = status
			close(k.done)
		}
	}
}

// get returns the task, the newest of that id.
func (w *works) get(id frames.TaskID) *work {
	if w == nil {
		return nil
	}
	for _, k := range slices.Backward(w.list) {
		if k.ID == id {
			return k
		}
	}
	return nil
}

// base takes over what a stored fold knows. It does not know when children ended.
func (w *works) base(v *frames.View) {
	began := map[frames.SessionID]*frames.Item{}
	for _, it := range v.Items {
		if it.Agent != nil {
			began[it.Agent.ChildSessionID] = it
		}
	}
	var all []*work
	for _, t := range v.Tasks() {
		all = append(all, &work{Task: Task{
			ID: t.TaskID, Session: w.sid, Kind: t.Kind, Label: t.Label, Status: cmp.Or(t.Status, taskRunning),
			Detail: t.Detail, Started: t.StartedAt, Ended: t.FinishedAt,
		}})
	}
	for _, c := range v.Children() {
		k := &work{Task: Task{
			ID: frames.TaskID(c.SessionID), Session: w.sid, Child: c.SessionID, Kind: "agent",
			Label: cmp.Or(c.Title, c.Agent), Status: taskRunning,
		}}
		if it := began[c.SessionID]; it != nil {
			k.Started, k.Turn = it.Time, it.TurnID
		}
		if c.Status != "" {
			k.Status, k.Detail = childEnd(c.Status, "")
		}
		all = append(all, k)
	}
	slices.SortStableFunc(all, func(a, b *work) int { return a.Started.Compare(b.Started.Time) })
	for _, k := range all {
		k.done = make(chan struct{})
		if k.Status != taskRunning {
			close(k.done)
		}
		w.add(k)
	}
}
