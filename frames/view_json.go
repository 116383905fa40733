package frames

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// plainView has the fields of View and not its methods.
type plainView View

// viewWire is the JSON of a view.
type viewWire struct {
	*plainView
	Pending      []Pending      `json:"pending"`
	Children     []Child        `json:"children"`
	Tasks        []Task         `json:"tasks"`
	Queue        []QueuedPrompt `json:"queue"`
	Surface      Surface        `json:"surface"`
	ClosedBlocks []int          `json:"closedBlocks,omitempty"`
	Live         *LiveTurn      `json:"live,omitempty"`
	Subscribed   bool           `json:"subscribed,omitempty"`
	PartialBase  *PartialBase   `json:"partialBase,omitempty"`
}

// MarshalJSON writes the view; equal views give equal bytes.
func (v *View) MarshalJSON() ([]byte, error) {
	w := v.wire()
	w.Live, w.Subscribed, w.PartialBase = v.Live(), v.subscribed, v.partial.wire()
	return json.Marshal(w)
}

// wire is all but what is live.
func (v *View) wire() viewWire {
	return viewWire{
		plainView:    (*plainView)(v),
		Pending:      v.Pending(),
		Children:     v.Children(),
		Tasks:        v.Tasks(),
		Queue:        v.Queue(),
		Surface:      v.Surface(),
		ClosedBlocks: slices.Sorted(maps.Keys(v.closed)),
	}
}

// Durable returns a copy of the view without anything that came only from
// live-only events and frames: what folding the log alone gives. Two clients
// that applied the same log have Durable views that marshal to the same bytes.
func (v *View) Durable() *View {
	plain := plainView(*v)
	plain.Epoch, plain.Gaps, plain.Lagging = "", false, false
	plain.Status = v.status(false)
	w := v.wire()
	w.plainView = &plain
	w.Pending = slices.DeleteFunc(w.Pending, func(p Pending) bool { return p.Seq == 0 })
	for i := range w.Pending {
		w.Pending[i].Card = false
	}
	b, err := json.Marshal(w)
	out := NewView()
	if err == nil {
		err = out.UnmarshalJSON(b)
	}
	if err != nil {
		// Everything in a view came through the codec, which admits only what it
		// can write.
		panic(fmt.Sprintf("frames: a view does not survive its own JSON: %v", err))
	}
	return out
}

// UnmarshalJSON replaces v with the view that was marshalled.
func (v *View) UnmarshalJSON(b []byte) error {
	out := NewView()
	w := viewWire{plainView: (*plainView)(out)}
	if err := unmarshal(b, &w); err != nil {
		return fmt.Errorf("view: %w", err)
	}
	out.Turns, out.Items = nonNil(out.Turns), nonNil(out.Items)
	out.Todos, out.Commands = nonNil(out.Todos), nonNil(out.Commands)
	out.compacted = w.Surface
	out.subscribed, out.partial = w.Subscribed, w.PartialBase.restored()
	for _, p := range w.Pending {
		out.putPending(p)
	}
	for _, c := range w.Children {
		out.children.put(c.SessionID, c)
	}
	for _, t := range w.Tasks {
		out.tasks.put(t.TaskID, t)
	}
	for _, q := range w.Queue {
		out.queue.put(q.PromptID, q)
	}
	for _, n := range w.ClosedBlocks {
		out.closed[n] = struct{}{}
	}
	if err := out.reindex(); err != nil {
		return err
	}
	out.restoreLive(w.Live)
	*v = *out
	return nil
}

// reindex rebuilds the index from turns and items.
func (v *View) reindex() error {
	for _, t := range v.Turns {
		v.turns[t.TurnID] = struct{}{}
	}
	if n := len(v.Turns); v.TurnID != "" && (n == 0 || v.Turns[n-1].TurnID != v.TurnID) {
		return fmt.Errorf("view: open turn %s: want it as the last of turns", clip([]byte(v.TurnID)))
	}
	for i, it := range v.Items {
		switch {
		case it == nil, it.Kind == ItemTool && it.Tool == nil, it.Kind == ItemAgent && it.Agent == nil:
			return fmt.Errorf("view: item %d: want an item with what its kind names, got none", i)
		case it.Kind == ItemTool:
			v.indexTool(it)
		case it.Kind == ItemAgent:
			v.agents[it.Agent.ChildSessionID] = it
		case it.Kind == ItemAssistant || it.Kind == ItemReasoning:
			v.indexBlocks(it)
		case it.Decision != nil:
			v.indexDecision(it.Decision)
		}
	}
	maps.DeleteFunc(v.open, func(_ RequestID, d *Decision) bool { return d.Seq > 0 })
	return nil
}

func (v *View) indexTool(it *Item) {
	v.calls[it.Tool.CallID] = it
	if it.Tool.Running {
		v.running[it.Tool.CallID] = it
	}
	for _, d := range it.Tool.Decisions {
		if d != nil {
			v.indexDecision(d)
		}
	}
}

// indexBlocks finds a message of the open turn by its blocks.
func (v *View) indexBlocks(it *Item) {
	if v.TurnID == "" || it.TurnID != v.TurnID || it.Seq < v.Turns[len(v.Turns)-1].StartSeq {
		return
	}
	for _, n := range it.Blocks {
		v.blocks[n] = it
	}
}

// indexDecision keeps the decision of an id that was asked for last.
func (v *View) indexDecision(d *Decision) {
	if old := v.open[d.ID]; old == nil || old.AskedSeq < d.AskedSeq {
		v.open[d.ID] = d
	}
}

// restoreLive makes the open turn from the running cards and what live holds.
func (v *View) restoreLive(live *LiveTurn) {
	if v.TurnID != "" {
		v.live = v.freshLive(v.TurnID)
	}
	if live == nil {
		return
	}
	if v.live == nil || v.live.id != live.TurnID {
		v.live = v.freshLive(live.TurnID)
	}
	v.load(live)
	for i, tool := range live.Tools { // also of calls that have no card
		if t := v.live.tools[tool.CallID]; t != nil {
			t.order = i
		}
	}
	v.live.opened = max(v.live.opened, len(live.Tools))
}

// nonNil makes a list that marshals to [] rather than null.
func nonNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
