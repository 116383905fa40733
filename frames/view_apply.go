package frames

import (
	"encoding/json"
	"fmt"
	"maps"
)

// ApplyEvent takes the session's next event. A durable event with a seq that was
// applied before is ignored, one of an unknown type only advances Seq, and one
// that leaves a hole is applied and reported as [ErrGap]. A payload that does not
// decode advances Seq and is an error. Applying n events costs O(n) in all; e is
// not kept.
func (v *View) ApplyEvent(e Event) error {
	if !writable(e.Time.Time) {
		e.Time = Time{}
	}
	if e.Seq == 0 {
		return v.applyLive(e)
	}
	if e.Seq <= v.Seq {
		return nil
	}
	before := v.Seq
	v.Seq = e.Seq
	p, err := e.Payload()
	if err != nil {
		return err
	}
	if p != nil && ClassOf(e.Type).Durable() { // a delta with a seq only counts
		v.fold(e, p)
	}
	if before > 0 && e.Seq != before+1 {
		return fmt.Errorf("%w: got seq %d after %d", ErrGap, e.Seq, before)
	}
	return nil
}

// fold applies a durable event.
func (v *View) fold(e Event, p any) {
	switch eventIndex[e.Type].Family {
	case "session":
		v.foldSession(e, p)
	case "turn":
		v.foldTurn(e, p)
	case "input":
		v.foldInput(e, p)
	case "assistant":
		v.foldAssistant(e, p)
	case "tool":
		v.foldTool(e, p)
	case "gate":
		v.foldGate(e, p)
	case "subagent":
		v.foldAgent(e, p)
	default:
		v.foldRest(e, p)
	}
}

// applyLive applies a delta to the open turn.
func (v *View) applyLive(e Event) error {
	switch e.Type {
	case AssistantDeltaEvent, ReasoningDeltaEvent, ToolProgressEvent:
	default:
		return nil
	}
	p, err := e.Payload()
	if err != nil {
		return err
	}
	if v.live == nil || e.TurnID != "" && e.TurnID != v.live.id {
		if e.TurnID != "" && !v.over(e.TurnID) {
			v.Gaps = true // a turn whose start was not seen
		}
		return nil
	}
	if v.live.take(p) == missed {
		v.Gaps = true
	}
	return nil
}

func (v *View) foldSession(e Event, p any) {
	switch p := p.(type) {
	case *SessionCreated:
		if e.Seq > 1 {
			return // the source's, in the log of a fork
		}
		v.Agent, v.Cwd, v.Title, v.Origin = p.Agent, p.Cwd, p.Title, p.Origin
		v.ParentSessionID, v.RootSessionID, v.Depth = p.ParentSessionID, p.RootSessionID, p.Depth
		v.CallID, v.ForkedFrom, v.CreatedAt = p.CallID, p.ForkedFrom, e.Time
		v.Config, v.Policy, v.Budget, v.Labels = p.Config, p.Policy, p.Budget, p.Labels
	case *SessionResumed:
		v.Closed = false
	case *SessionRenamed:
		v.Title = p.Title
	case *SessionConfigured:
		v.configure(p)
	case *SessionCompacted:
		v.compacted = Surface{UpTo: p.UpTo, Summary: p.Content}
		it := v.item(e, ItemCompaction)
		it.Content, it.UpTo = p.Content, p.UpTo
	case *SessionClosed:
		v.Closed = true
	}
}

// configure changes what the event names. Options are merged by name.
func (v *View) configure(p *SessionConfigured) {
	if p.Policy != nil {
		v.Policy = p.Policy
	}
	if p.Budget != nil {
		v.Budget = p.Budget
	}
	if p.Labels != nil {
		v.Labels = p.Labels
	}
	var options map[string]json.RawMessage
	if len(p.Options) == 0 || unmarshal(p.Options, &options) != nil || len(options) == 0 {
		return
	}
	if v.Options == nil {
		v.Options = make(map[string]json.RawMessage)
	}
	maps.Copy(v.Options, options)
}

func (v *View) foldTurn(e Event, p any) {
	switch p := p.(type) {
	case *PromptQueued:
		v.queue.put(p.PromptID, QueuedPrompt{p.PromptID, e.TurnID, p.Mode, p.Content, e.By, e.Time})
	case *PromptDequeued:
		v.queue.del(p.PromptID)
	case *TurnStart:
		v.queue.del(p.PromptID)
		v.openTurn(e, p)
	case *TurnEnd:
		v.endTurn(e, p)
	}
}

// openTurn begins a turn; one that is open still is over.
func (v *View) openTurn(e Event, p *TurnStart) {
	if v.TurnID == e.TurnID {
		v.live = nil
	}
	v.clearTurn()
	v.TurnID = e.TurnID
	v.turns[e.TurnID] = struct{}{}
	v.Turns = append(v.Turns, Turn{
		TurnID: e.TurnID, Trigger: p.Trigger, PromptID: p.PromptID, StartedAt: e.Time, StartSeq: e.Seq,
	})
	switch {
	case e.TurnID == "":
		v.live = nil
	case v.live == nil || v.live.id != e.TurnID:
		v.live = v.freshLive(e.TurnID)
	}
	v.settle()
}

// joinTurn opens the turn of e in a log whose beginning was not seen.
func (v *View) joinTurn(e Event) {
	if v.TurnID == "" && len(v.Turns) == 0 && e.TurnID != "" {
		v.openTurn(e, &TurnStart{})
	}
}

func (v *View) endTurn(e Event, p *TurnEnd) {
	v.joinTurn(e)
	if v.TurnID == "" || e.TurnID != "" && e.TurnID != v.TurnID {
		if v.live != nil && e.TurnID != "" && e.TurnID == v.live.id { // its start was not seen
			v.live = nil
			if v.TurnID != "" {
				v.live = v.freshLive(v.TurnID)
			}
			v.settle()
		}
		return
	}
	t := &v.Turns[len(v.Turns)-1]
	t.Reason, t.Message, t.Usage = p.Reason, p.Message, p.Usage
	t.EndedAt, t.EndSeq = e.Time, e.Seq
	v.clearTurn()
	v.live = nil
	v.settle()
}

// clearTurn closes the open turn's blocks and running tools.
func (v *View) clearTurn() {
	v.TurnID = ""
	clear(v.blocks)
	v.closed = make(map[int]struct{})
	for id := range v.running {
		v.stopTool(id)
	}
}

// stopTool ends what runs of a tool call, if it does.
func (v *View) stopTool(id CallID) {
	if it := v.running[id]; it != nil {
		it.Tool.Running = false
		delete(v.running, id)
	}
	if v.live != nil {
		delete(v.live.tools, id)
	}
}

// over reports whether the turn was seen and is not the open one.
func (v *View) over(id TurnID) bool {
	_, seen := v.turns[id]
	return seen && id != v.TurnID
}

// item appends an item made by e.
func (v *View) item(e Event, kind ItemKind) *Item {
	it := &Item{Kind: kind, Seq: e.Seq, Time: e.Time, TurnID: e.TurnID, By: e.By}
	v.Items = append(v.Items, it)
	return it
}

func (v *View) foldInput(e Event, p any) {
	switch p := p.(type) {
	case *UserMessage:
		v.input(e, ItemUser, p.PromptID, p.Content)
	case *SteeringMessage:
		v.input(e, ItemSteering, p.PromptID, p.Content)
	case *ContextMessage:
		v.input(e, ItemContext, p.PromptID, p.Content)
	case *PromptBlocked:
		v.input(e, ItemBlocked, p.PromptID, nil).Message = p.Reason
	}
}

// input appends what a person said; it leaves the queue with that.
func (v *View) input(e Event, kind ItemKind, id PromptID, content []ContentBlock) *Item {
	v.queue.del(id)
	it := v.item(e, kind)
	it.PromptID, it.Content = id, content
	return it
}
