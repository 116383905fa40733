package session

import (
	"context"
	"unicode/utf8"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// maxChunk bounds the text of one delta event, in bytes: what is merged, and the
// pieces of what is larger. Escaped it still fits an event.
const maxChunk = 32 << 10

// streamKey names a stream of a turn: a block, or a tool call.
type streamKey struct {
	kind  frames.EventType
	block int
	call  frames.CallID
}

// stream is one text that grows. wire is the block's number for clients: the
// agent's own until the text grew so long that the rest moved to a new block.
type stream struct {
	wire   []int // all numbers so far; the last one is open
	to     int   // chunks so far of the open one
	rest   string
	closed bool // a message took the block's place
}

// delta is text on its way to clients, made of chunks pieces.
type delta struct {
	turn   *turn
	key    streamKey
	text   string
	chunks int
}

// Text implements [agent.Turn].
func (t *turn) Text(ctx context.Context, block int, text string) error {
	return t.grow(ctx, streamKey{kind: frames.AssistantDeltaEvent, block: block}, text)
}

// Reasoning implements [agent.Turn].
func (t *turn) Reasoning(ctx context.Context, block int, text string) error {
	return t.grow(ctx, streamKey{kind: frames.ReasoningDeltaEvent, block: block}, text)
}

// Progress implements [agent.Turn].
func (t *turn) Progress(ctx context.Context, call frames.CallID, text string) error {
	return t.grow(ctx, streamKey{kind: frames.ToolProgressEvent, call: call}, text)
}

// grow sends text to the actor in pieces. It waits only where the actor is
// behind.
func (t *turn) grow(ctx context.Context, key streamKey, text string) error {
	for text != "" {
		if t.over.Load() {
			return agent.ErrTurnOver
		}
		piece, _ := frames.Preview(text, maxChunk)
		if piece == "" {
			piece = text[:min(len(text), maxChunk)]
		}
		text = text[len(piece):]
		if err := t.a.send(ctx, msg{delta: &delta{t, key, piece, 1}}); err != nil {
			return turnOver(err)
		}
	}
	return nil
}

// stream publishes a delta, merged with those of its stream that wait behind it.
func (a *actor) stream(d *delta) {
	for len(d.text) < maxChunk {
		q, ok := a.more()
		if !ok {
			break
		}
		if q.delta == nil || q.delta.turn != d.turn || q.delta.key != d.key || len(d.text)+len(q.delta.text) > maxChunk {
			a.ahead = &q
			break
		}
		d.text += q.delta.text
		d.chunks += q.delta.chunks
	}
	t := d.turn
	if a.turn != t || t.outcome != nil || t.failed != nil {
		return
	}
	s := t.streams[d.key]
	if s == nil {
		s = &stream{wire: []int{d.key.block}}
		t.streams[d.key] = s
		t.used(d.key.block)
	}
	if s.closed {
		return
	}
	text := s.whole(d.text)
	if text == "" {
		return
	}
	if d.key.kind != frames.ToolProgressEvent && t.open.TextBytes()+len(text) > frames.MaxOpenText {
		if err := a.writePartials(t); err != nil {
			a.fail(t, err)
			return
		}
	}
	a.sayLive(t, s.event(d, text))
}

// whole returns the text that is complete with what was kept back, and keeps
// back the bytes of a character whose end has not come.
func (s *stream) whole(text string) string {
	text = s.rest + text
	cut := len(text)
	for i := 1; i <= min(utf8.UTFMax-1, len(text)); i++ {
		if b := text[len(text)-i:]; utf8.RuneStart(b[0]) {
			if !utf8.FullRuneInString(b) {
				cut = len(text) - i
			}
			break
		}
	}
	s.rest = text[cut:]
	return frames.ValidText(text[:cut])
}

// event numbers the chunks of a delta.
func (s *stream) event(d *delta, text string) frames.Payload {
	from := s.to
	s.to += d.chunks
	block := s.wire[len(s.wire)-1]
	switch d.key.kind {
	case frames.AssistantDeltaEvent:
		return frames.AssistantDelta{Block: block, From: from, To: s.to, Text: text}
	case frames.ReasoningDeltaEvent:
		return frames.ReasoningDelta{Block: block, From: from, To: s.to, Text: text}
	default:
		return frames.ToolProgress{CallID: d.key.call, From: from, To: s.to, Text: text}
	}
}

// sayLive publishes an event that is never stored.
func (a *actor) sayLive(t *turn, p frames.Payload) {
	e, err := frames.NewEvent(p)
	if err == nil {
		e.After, e.Time, e.TurnID = a.head.Seq, now(), t.id
		var enc frames.Encoded
		if enc, err = frames.EncodeEvent(e); err == nil {
			_ = t.open.Apply(e) // the chunks are numbered above, none is missed
			a.publish(Update{Events: []frames.Encoded{enc}}, false, false)
			return
		}
	}
	a.log.Debug("a delta could not be encoded", "type", string(p.EventType()), "error", err)
}

// writePartials stores the open text of a turn, so that it is not held in memory
// only. What follows of those blocks goes to new ones.
func (a *actor) writePartials(t *turn) error {
	c := &commit{turn: t.id}
	a.addPartials(c, t)
	c.then = func() {
		for key, s := range t.streams {
			if key.kind != frames.ToolProgressEvent && s.to > 0 && !s.closed {
				s.wire, s.to = append(s.wire, t.NewBlock()), 0
			}
		}
	}
	return a.commitAll(c)
}

// addPartials adds a partial message for every open block.
func (a *actor) addPartials(c *commit, t *turn) {
	for _, b := range t.open.Blocks() {
		content, blocks := []frames.ContentBlock{frames.Text(b.Text)}, []int{b.Block}
		var p frames.Payload = frames.AssistantMessage{Content: content, Blocks: blocks, Partial: true}
		if b.Kind == "reasoning" {
			p = frames.ReasoningMessage{Content: content, Blocks: blocks, Partial: true}
		}
		fitted, _, err := a.m.fit(a.m.io, p)
		if err != nil {
			a.log.Debug("open text could not be kept whole", "error", err)
			fitted = frames.AssistantMessage{Content: content[:0], Blocks: blocks, Partial: true}
		}
		c.add(fitted)
	}
}

// renumbered returns the events of an emission with the block numbers that
// clients know: a block whose text moved on is listed with all its numbers.
func (a *actor) renumbered(em *emission) []frames.Event {
	if em.turn == nil || len(em.turn.streams) == 0 {
		return em.events
	}
	for i, p := range em.payloads {
		var moved bool
		switch v := p.(type) {
		case frames.AssistantMessage:
			v.Blocks, moved = em.turn.wire(v.Blocks)
			p = v
		case frames.ReasoningMessage:
			v.Blocks, moved = em.turn.wire(v.Blocks)
			p = v
		case frames.AssistantRetracted:
			v.Blocks, moved = em.turn.wire(v.Blocks)
			p = v
		}
		if !moved {
			continue
		}
		if e, err := frames.NewEvent(p); err == nil {
			e.TurnID = em.turn.id
			em.events[i] = e
		}
	}
	return em.events
}

// wire translates an agent's block numbers and closes the blocks.
func (t *turn) wire(blocks []int) (out []int, moved bool) {
	for _, b := range blocks {
		known := false
		for _, kind := range []frames.EventType{frames.AssistantDeltaEvent, frames.ReasoningDeltaEvent} {
			if s := t.streams[streamKey{kind: kind, block: b}]; s != nil {
				s.closed, known = true, true
				out = append(out, s.wire...)
				moved = moved || len(s.wire) > 1
			}
		}
		if !known {
			out = append(out, b)
		}
	}
	return out, moved
}

// used keeps NewBlock from minting a number that the agent chose itself.
func (t *turn) used(block int) {
	for {
		n := t.block.Load()
		if int64(n) > int64(block) || t.block.CompareAndSwap(n, int32(block)+1) {
			return
		}
	}
}
