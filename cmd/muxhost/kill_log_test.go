package main_test

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/muxhost/muxhost/frames"
)

// history is a session's log as read so far, and what is open at its end.
type history struct {
	epoch  frames.Epoch
	events []json.RawMessage

	turn      frames.TurnID
	calls     map[frames.CallID]bool
	asked     map[frames.RequestID]string // input hashes; "" for questions
	children  map[frames.SessionID]bool
	tasks     map[frames.TaskID]bool // they outlive turns
	begun     int                    // tasks
	queue     []frames.PromptID
	queued    map[frames.PromptID]bool
	started   map[frames.PromptID]frames.TurnID
	interrupt int // turns that ended interrupted
	faults    []string
}

// decision is how a request ended, as the log has it.
type decision struct {
	outcome frames.Outcome
	origin  frames.Cause
	hash    string
	grant   frames.GrantID
}

// verdicts are the decisions of all logs.
type verdicts struct {
	byID   map[frames.RequestID]decision
	allows map[string]bool                     // input hashes that were allowed
	grants map[frames.GrantID]frames.RequestID // who granted
}

func newHistory() *history {
	return &history{
		calls: map[frames.CallID]bool{}, asked: map[frames.RequestID]string{}, children: map[frames.SessionID]bool{},
		tasks: map[frames.TaskID]bool{}, queued: map[frames.PromptID]bool{}, started: map[frames.PromptID]frames.TurnID{},
	}
}

func (h *history) fault(format string, args ...any) {
	if len(h.faults) < 10 {
		h.faults = append(h.faults, fmt.Sprintf(format, args...))
	}
}

// take adds the next event.
func (h *history) take(raw json.RawMessage, v *verdicts) {
	e, err := frames.DecodeEvent(raw)
	if err != nil {
		h.fault("event %d: %v", len(h.events)+1, err)
		return
	}
	h.events = append(h.events, raw)
	if int(e.Seq) != len(h.events) {
		h.fault("event %d stands where %d belongs", e.Seq, len(h.events))
	}
	p, err := e.Payload()
	if err != nil {
		h.fault("event %d: %v", e.Seq, err)
		return
	}
	h.note(e, p, v)
}

// note takes in what the event opens and closes.
func (h *history) note(e frames.Event, p any, v *verdicts) {
	switch p := p.(type) {
	case *frames.PromptQueued:
		h.queue = append(h.queue, p.PromptID)
		h.queued[p.PromptID] = true
	case *frames.PromptDequeued:
		h.dequeue(e, p)
	case *frames.TurnStart:
		h.begin(e, p)
	case *frames.TurnEnd:
		h.end(e, p)
	case *frames.ToolCall:
		h.calls[p.CallID] = true
	case *frames.ToolResult:
		delete(h.calls, p.CallID)
	case *frames.AgentSpawned:
		h.children[p.ChildSessionID] = true
	case *frames.AgentCompleted:
		delete(h.children, p.ChildSessionID)
	case *frames.TaskStarted:
		h.tasks[p.TaskID] = true
		h.begun++
	case *frames.TaskCompleted:
		if !h.tasks[p.TaskID] {
			h.fault("event %d ends task %s, which does not run", e.Seq, p.TaskID)
		}
		delete(h.tasks, p.TaskID)
	case *frames.ApprovalAsked:
		h.asked[p.ID] = p.InputHash
	case *frames.ApprovalDecided:
		if hash, ok := h.asked[p.ID]; !ok || hash != p.InputHash {
			h.fault("event %d decides %s for input %q, asked was %q", e.Seq, p.ID, p.InputHash, hash)
		}
		h.decide(e, p.ID, decision{p.Outcome, p.Origin, p.InputHash, p.Grant}, v)
	case *frames.QuestionAsked:
		h.asked[p.ID] = ""
	case *frames.QuestionDecided:
		h.decide(e, p.ID, decision{outcome: p.Outcome, origin: p.Origin}, v)
	}
}

func (h *history) decide(e frames.Event, id frames.RequestID, d decision, v *verdicts) {
	if was, ok := v.byID[id]; ok {
		h.fault("event %d decides %s again: %v after %v", e.Seq, id, d, was)
	}
	delete(h.asked, id)
	v.byID[id] = d
	if !d.outcome.Allows() {
		return
	}
	v.allows[d.hash] = true
	if d.origin == frames.CauseReply && d.grant != "" {
		v.grants[d.grant] = id
	}
}

func (h *history) dequeue(e frames.Event, p *frames.PromptDequeued) {
	if len(h.queue) == 0 || h.queue[0] != p.PromptID || p.Reason != "started" {
		h.fault("event %d takes %s out of the queue (%s), which is %v", e.Seq, p.PromptID, p.Reason, h.queue)
	}
	h.queue = slices.DeleteFunc(h.queue, func(id frames.PromptID) bool { return id == p.PromptID })
}

func (h *history) begin(e frames.Event, p *frames.TurnStart) {
	if h.turn != "" {
		h.fault("event %d: turn %s begins in turn %s", e.Seq, e.TurnID, h.turn)
	}
	if was, ok := h.started[p.PromptID]; ok {
		h.fault("event %d: prompt %s runs again, after turn %s", e.Seq, p.PromptID, was)
	}
	if !h.queued[p.PromptID] && len(h.queue) > 0 {
		h.fault("event %d: prompt %s overtakes %v", e.Seq, p.PromptID, h.queue)
	}
	h.turn, h.started[p.PromptID] = e.TurnID, e.TurnID
}

func (h *history) end(e frames.Event, p *frames.TurnEnd) {
	switch p.Reason {
	case frames.TurnInterrupted:
		h.interrupt++
	case frames.TurnCompleted:
	default:
		h.fault("event %d: turn %s ended %s: %s", e.Seq, e.TurnID, p.Reason, p.Message)
	}
	if h.turn != e.TurnID {
		h.fault("event %d: turn %s ends, open is %q", e.Seq, e.TurnID, h.turn)
	}
	h.turn = ""
	if left := h.open(); left != "" {
		h.fault("event %d: turn %s ends with %s", e.Seq, e.TurnID, left)
	}
}

// open says what is open at the end of the log, "" if nothing is.
func (h *history) open() string {
	if h.turn == "" && len(h.calls)+len(h.asked)+len(h.children) == 0 {
		return ""
	}
	return fmt.Sprintf("turn %q, calls %v, requests %v, children %v open", h.turn, h.calls, h.asked, h.children)
}
