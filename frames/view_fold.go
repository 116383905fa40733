package frames

import "slices"

func (v *View) foldAssistant(e Event, p any) {
	v.joinTurn(e)
	switch p := p.(type) {
	case *AssistantMessage:
		v.message(e, Item{Kind: ItemAssistant, Content: p.Content, Blocks: p.Blocks, Partial: p.Partial, Usage: p.Usage})
	case *ReasoningMessage:
		v.message(e, Item{
			Kind: ItemReasoning, Content: p.Content, Blocks: p.Blocks, Partial: p.Partial,
			Withheld: p.Withheld && len(p.Content) == 0,
		})
	case *AssistantRetracted:
		v.closeBlocks(e, p.Blocks)
		v.release(e, p.Blocks)
	}
}

// message takes a message, which replaces its blocks: where it replaces a whole
// earlier message it takes that one's place.
func (v *View) message(e Event, m Item) {
	m.Seq, m.Time, m.TurnID, m.By = e.Seq, e.Time, e.TurnID, e.By
	v.closeBlocks(e, m.Blocks)
	it := v.release(e, m.Blocks)
	if it == nil {
		it = &Item{}
		v.Items = append(v.Items, it)
	}
	*it = m
	v.indexBlocks(it)
}

// closeBlocks makes later deltas for the blocks void.
func (v *View) closeBlocks(e Event, blocks []int) {
	if v.TurnID != "" && e.TurnID == v.TurnID {
		for _, n := range blocks {
			v.closed[n] = struct{}{}
		}
	}
	if v.live != nil && e.TurnID != "" && e.TurnID == v.live.id {
		v.live.close(blocks)
	}
}

// release takes the blocks from the messages of the open turn that hold them,
// and returns the first message that was left empty.
func (v *View) release(e Event, blocks []int) *Item {
	if v.TurnID == "" || e.TurnID != v.TurnID {
		return nil
	}
	var first *Item
	for _, n := range blocks {
		it := v.blocks[n]
		if it == nil {
			continue
		}
		if len(it.Content) == len(it.Blocks) {
			delete(v.blocks, n)
			it.drop(n)
		} else {
			for _, b := range it.Blocks {
				delete(v.blocks, b)
			}
			it.Blocks = nil
		}
		if len(it.Blocks) == 0 {
			*it = Item{Kind: it.Kind, Seq: it.Seq, Time: it.Time, TurnID: it.TurnID, Void: true}
			if first == nil {
				first = it
			}
		}
	}
	return first
}

// drop removes block n and its content.
func (it *Item) drop(n int) {
	for i := slices.Index(it.Blocks, n); i >= 0; i = slices.Index(it.Blocks, n) {
		it.Blocks = slices.Delete(it.Blocks, i, i+1)
		it.Content = slices.Delete(it.Content, i, i+1)
	}
}

func (v *View) foldTool(e Event, p any) {
	v.joinTurn(e)
	switch p := p.(type) {
	case *ToolCall:
		v.stopTool(p.CallID)
		it := v.item(e, ItemTool)
		it.Tool = &ToolCard{
			CallID: p.CallID, Name: p.Name, Kind: p.Kind, Title: p.Title, Input: p.Input,
			Locations: p.Locations, Truncated: p.Truncated, Running: true,
		}
		v.calls[p.CallID], v.running[p.CallID] = it, it
		if v.live != nil && (e.TurnID == "" || e.TurnID == v.live.id) {
			v.live.openTool(p.CallID)
		}
	case *ToolResult:
		v.stopTool(p.CallID)
		v.result(e, p)
	}
}

// result ends a tool card; one whose call was not seen is made.
func (v *View) result(e Event, p *ToolResult) {
	it := v.calls[p.CallID]
	if it == nil {
		it = v.item(e, ItemTool)
		it.Tool = &ToolCard{CallID: p.CallID}
		v.calls[p.CallID] = it
	}
	c := it.Tool
	c.ResultSeq = e.Seq
	c.Content, c.IsError, c.ErrorCode = p.Content, p.IsError, p.ErrorCode
	c.DurationMs, c.Details = p.DurationMs, p.Details
}

func (v *View) foldGate(e Event, p any) {
	switch p := p.(type) {
	case *ApprovalAsked:
		v.ask(e, Pending{
			ID: p.ID, Kind: ItemApproval, CallID: p.CallID, Tool: &p.Tool, Input: p.Input, InputHash: p.InputHash,
			Truncated: p.Truncated, Reason: p.Reason, Options: p.Options, ExpiresAt: p.ExpiresAt,
		})
	case *QuestionAsked:
		v.ask(e, Pending{ID: p.ID, Kind: ItemQuestion, Questions: p.Questions, ExpiresAt: p.ExpiresAt})
	case *ApprovalDecided:
		d := v.decide(e, ItemApproval, p.ID)
		d.Outcome, d.Origin, d.By = p.Outcome, p.Origin, p.By
		d.Feedback, d.Grant = p.Feedback, p.Grant
	case *QuestionDecided:
		d := v.decide(e, ItemQuestion, p.ID)
		d.Outcome, d.Origin, d.By, d.Answers = p.Outcome, p.Origin, p.By, p.Answers
	}
	v.settle()
}

// ask makes a request pending and begins its history, on the tool's card where
// there is one. What the audit event says wins over what a frame said.
func (v *View) ask(e Event, p Pending) {
	p.Seq, p.TurnID, p.AskedAt = e.Seq, e.TurnID, e.Time
	if old := v.pending.get(p.ID); old != nil {
		p.Card = old.Card
	}
	v.putPending(p)
	d := &Decision{ID: p.ID, AskedSeq: e.Seq, Questions: p.Questions}
	v.open[p.ID] = d
	if it := v.calls[p.CallID]; it != nil && p.CallID != "" {
		it.Tool.Decisions = append(it.Tool.Decisions, d)
		return
	}
	v.item(e, p.Kind).Decision = d
}

// decide ends a request and returns its history to fill in.
func (v *View) decide(e Event, kind ItemKind, id RequestID) *Decision {
	v.dropPending(id)
	d := v.open[id]
	delete(v.open, id)
	if d == nil {
		d = &Decision{ID: id}
		v.item(e, kind).Decision = d
	}
	d.Seq, d.Time = e.Seq, e.Time
	return d
}

func (v *View) foldAgent(e Event, p any) {
	switch p := p.(type) {
	case *AgentSpawned:
		it := v.item(e, ItemAgent)
		it.Agent = &AgentCard{ChildSessionID: p.ChildSessionID, CallID: p.CallID, Agent: p.Agent, Title: p.Title}
		v.agents[p.ChildSessionID] = it
		v.children.put(p.ChildSessionID, Child{SessionID: p.ChildSessionID, Agent: p.Agent, Title: p.Title, CallID: p.CallID})
	case *AgentCompleted:
		v.completed(e, p)
	}
}

// completed ends a child's card and its row; what was not seen of them is made.
func (v *View) completed(e Event, p *AgentCompleted) {
	it := v.agents[p.ChildSessionID]
	if it == nil {
		it = v.item(e, ItemAgent)
		it.Agent = &AgentCard{ChildSessionID: p.ChildSessionID, CallID: p.CallID}
		v.agents[p.ChildSessionID] = it
	}
	it.Agent.Status, it.Agent.EndSeq, it.Agent.Result = p.Status, e.Seq, p.Result
	c := v.children.get(p.ChildSessionID)
	if c == nil {
		c = v.children.put(p.ChildSessionID, Child{SessionID: p.ChildSessionID, CallID: p.CallID})
	}
	c.Status = p.Status
}

// foldRest applies the families that have one thing to say each.
func (v *View) foldRest(e Event, p any) {
	switch p := p.(type) {
	case *TodoWrite:
		v.Todos = nonNil(p.Todos)
	case *TaskStarted:
		v.tasks.put(p.TaskID, Task{TaskID: p.TaskID, Kind: p.Kind, Label: p.Label, StartedAt: e.Time})
	case *TaskCompleted:
		t := v.tasks.get(p.TaskID)
		if t == nil {
			t = v.tasks.put(p.TaskID, Task{TaskID: p.TaskID})
		}
		t.Status, t.Detail, t.FinishedAt = p.Status, p.Detail, e.Time
	case *ModelStart:
		v.Model = p.Model
	case *ModelSwitched:
		v.Model = p.To
	case *UsageUpdated:
		v.Usage = &p.Usage
	case *CommandAvailable:
		v.Commands = nonNil(p.Commands)
	case *ErrorReported:
		it := v.item(e, ItemError)
		it.Code, it.Message, it.Retryable = p.Code, p.Message, p.Retryable
	}
}
