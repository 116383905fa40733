package frames

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// ErrMissed reports a delta whose predecessor never came. The text so far is
// kept; what is missing comes with the block's message or the next snapshot.
var ErrMissed = errors.New("frames: a chunk of a stream was missed")

// The kinds of [LiveBlock].
const (
	KindAssistant = "assistant"
	KindReasoning = "reasoning"
)

// OpenTurn gathers what a running turn holds that is not in the log yet: the
// text of open blocks and the progress of running tools. One goroutine uses it;
// the snapshots it hands out may be read by any.
type OpenTurn struct {
	id     TurnID
	blocks map[int]*openBlock
	closed map[int]struct{}
	tools  map[CallID]*openTool
	opened int // tools so far; gives their order
	bytes  int // text of open blocks
}

type openBlock struct {
	block int
	kind  string
	stream
}

type openTool struct {
	id    CallID
	order int
	stream
}

// NewOpenTurn returns the empty turn id.
func NewOpenTurn(id TurnID) *OpenTurn {
	return &OpenTurn{
		id:     id,
		blocks: make(map[int]*openBlock),
		closed: make(map[int]struct{}),
		tools:  make(map[CallID]*openTool),
	}
}

// Apply takes one event of the turn: deltas and progress add text, `tool/call`
// opens a tool and `tool/result` closes it, messages and retractions close the
// blocks that they list; later deltas for those are dropped. Events of other
// types or turns are ignored. A delta whose predecessor is missing adds nothing
// and is [ErrMissed].
func (t *OpenTurn) Apply(e Event) error {
	if e.TurnID != "" && e.TurnID != t.id || !ofOpenTurn(e.Type) {
		return nil
	}
	p, err := e.Payload()
	if err != nil {
		return err
	}
	if t.take(p) == missed {
		return fmt.Errorf("%w: %s %s of turn %s", ErrMissed, e.Type, clip(e.Data), t.id)
	}
	return nil
}

// ofOpenTurn spares decoding what Apply ignores.
func ofOpenTurn(t EventType) bool {
	switch t {
	case AssistantDeltaEvent, ReasoningDeltaEvent, ToolProgressEvent, ToolCallEvent, ToolResultEvent,
		AssistantMessageEvent, ReasoningMessageEvent, AssistantRetractedEvent:
		return true
	}
	return false
}

// take applies a decoded payload.
func (t *OpenTurn) take(p any) verdict {
	switch p := p.(type) {
	case *AssistantDelta:
		return t.delta(KindAssistant, p.Block, p.From, p.To, p.Text)
	case *ReasoningDelta:
		return t.delta(KindReasoning, p.Block, p.From, p.To, p.Text)
	case *ToolProgress:
		return t.progress(p)
	case *ToolCall:
		t.openTool(p.CallID)
	case *ToolResult:
		delete(t.tools, p.CallID)
	case *AssistantMessage:
		t.close(p.Blocks)
	case *ReasoningMessage:
		t.close(p.Blocks)
	case *AssistantRetracted:
		t.close(p.Blocks)
	}
	return added
}

func (t *OpenTurn) delta(kind string, block, from, to int, text string) verdict {
	if _, ok := t.closed[block]; ok {
		return had
	}
	b := t.blocks[block]
	if b == nil {
		b = &openBlock{block: block, kind: kind}
	}
	v := b.add(from, to, text)
	if v == added {
		t.blocks[block] = b
		t.bytes += len(text)
	}
	return v
}

// progress adds to a running tool; what comes for another is late.
func (t *OpenTurn) progress(p *ToolProgress) verdict {
	tool := t.tools[p.CallID]
	if tool == nil {
		return had
	}
	v := tool.add(p.From, p.To, p.Text)
	tool.keepTail()
	return v
}

// openTool starts a tool; a second call with the id of a running one replaces it.
func (t *OpenTurn) openTool(id CallID) *openTool {
	tool := &openTool{id: id, order: t.opened}
	t.opened++
	t.tools[id] = tool
	return tool
}

func (t *OpenTurn) close(blocks []int) {
	for _, n := range blocks {
		if b := t.blocks[n]; b != nil {
			t.bytes -= len(b.text)
			delete(t.blocks, n)
		}
		t.closed[n] = struct{}{}
	}
}

// TextBytes returns how many bytes of assistant and reasoning text are open.
func (t *OpenTurn) TextBytes() int { return t.bytes }

// Blocks returns the open blocks by number, with all of their text.
func (t *OpenTurn) Blocks() []LiveBlock {
	out := make([]LiveBlock, 0, len(t.blocks))
	for _, b := range t.sortedBlocks() {
		out = append(out, LiveBlock{Block: b.block, Kind: b.kind, Text: string(b.text), To: b.to})
	}
	return out
}

// Tools returns the running tools in the order of their calls.
func (t *OpenTurn) Tools() []CallID {
	out := make([]CallID, 0, len(t.tools))
	for _, tool := range t.sortedTools() {
		out = append(out, tool.id)
	}
	return out
}

// Snapshot returns the turn as it stands. It copies no text: the snapshot shares
// it, and never changes.
func (t *OpenTurn) Snapshot() *TurnSnapshot {
	s := &TurnSnapshot{id: t.id}
	for _, b := range t.sortedBlocks() {
		s.blocks = append(s.blocks, snapBlock{b.block, b.kind, share(b.text), b.to})
	}
	for _, tool := range t.sortedTools() {
		s.tools = append(s.tools, snapTool{tool.id, tool.tail(), tool.to})
	}
	return s
}

func (t *OpenTurn) sortedBlocks() []*openBlock {
	return slices.SortedFunc(maps.Values(t.blocks), func(a, b *openBlock) int { return cmp.Compare(a.block, b.block) })
}

func (t *OpenTurn) sortedTools() []*openTool {
	return slices.SortedFunc(maps.Values(t.tools), func(a, b *openTool) int { return cmp.Compare(a.order, b.order) })
}
