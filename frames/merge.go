package frames

// mergeRoom is what an envelope may take of a merged delta.
const mergeRoom = 4 << 10

// MergeDelta joins two neighbouring deltas of one block or tool call: b begins
// where a ends, in the same turn. The result carries b's time and After. It is
// false, and neither is changed, for anything else, or where the result would
// come near [MaxEvent].
func MergeDelta(a, b Event) (Event, bool) {
	if a.Type != b.Type || a.TurnID != b.TurnID || len(a.Data)+len(b.Data) > MaxEvent-mergeRoom {
		return Event{}, false
	}
	switch a.Type {
	case AssistantDeltaEvent, ReasoningDeltaEvent, ToolProgressEvent:
	default:
		return Event{}, false
	}
	pa, errA := a.Payload()
	pb, errB := b.Payload()
	if errA != nil || errB != nil {
		return Event{}, false
	}
	p := joinDeltas(pa, pb)
	if p == nil {
		return Event{}, false
	}
	merged, err := NewEvent(p)
	if err != nil {
		return Event{}, false
	}
	b.Data = merged.Data
	return b, true
}

// joinDeltas returns the joined payload, or nil where b does not follow a.
func joinDeltas(a, b any) Payload {
	switch a := a.(type) {
	case *AssistantDelta:
		if b := b.(*AssistantDelta); b.Block == a.Block && b.From == a.To {
			return AssistantDelta{a.Block, a.From, b.To, a.Text + b.Text}
		}
	case *ReasoningDelta:
		if b := b.(*ReasoningDelta); b.Block == a.Block && b.From == a.To {
			return ReasoningDelta{a.Block, a.From, b.To, a.Text + b.Text}
		}
	case *ToolProgress:
		if b := b.(*ToolProgress); b.CallID == a.CallID && b.From == a.To {
			return ToolProgress{a.CallID, a.From, b.To, a.Text + b.Text}
		}
	}
	return nil
}
