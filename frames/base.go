package frames

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Base is the stored fold of what was trimmed from a log, cut for sending: whole
// inside `session/subscribed`, or as parts that follow it. It never changes and
// may be shared by any number of senders.
type Base struct {
	text []byte
	ends []int // where the parts end
}

// baseRoom is how long the text of one part may be as a JSON string. The rest of
// [MaxFrame] is for the envelope and the longest session id, escaped.
const baseRoom = MaxFrame - 4<<10

// NewBase cuts raw, the JSON of a [View], at character boundaries. An empty one
// is no base: what it begins says nothing of one. raw is kept.
func NewBase(raw json.RawMessage) *Base {
	b := &Base{text: raw}
	left := baseRoom
	for i := 0; i < len(raw); {
		n, cost := runeCost(raw[i:])
		if cost > left {
			b.ends, left = append(b.ends, i), baseRoom
		}
		left -= cost
		i += n
	}
	if len(raw) > 0 {
		b.ends = append(b.ends, len(raw))
	}
	return b
}

// Begin returns f with the base in it where the whole frame fits into [MaxFrame],
// and else with the number of parts, which have to follow at once.
func (b *Base) Begin(f SessionSubscribed) SessionSubscribed {
	f.Base, f.BaseParts = nil, 0
	if len(b.text) == 0 {
		return f
	}
	f.BaseParts = len(b.ends)
	if len(b.text) >= MaxFrame {
		return f
	}
	whole := f
	whole.Base, whole.BaseParts = json.RawMessage(b.text), 0
	if _, err := EncodeFrame(whole); err != nil {
		return f
	}
	return whole
}

// Part returns part i, from 0; each fits a frame of any session.
func (b *Base) Part(sid SessionID, i int) SessionBase {
	from := 0
	if i > 0 {
		from = b.ends[i-1]
	}
	return SessionBase{SessionID: sid, Part: i, Parts: len(b.ends), Text: string(b.text[from:b.ends[i]])}
}

// PartialBase is the JSON of what a [View] has received of a base in parts. It
// takes effect with the last part.
type PartialBase struct {
	Part  int    `json:"part"` // the next one
	Parts int    `json:"parts"`
	Text  string `json:"text"`
}

// partialBase collects the parts.
type partialBase struct {
	part, parts int
	text        strings.Builder
}

func (p *partialBase) wire() *PartialBase {
	if p == nil {
		return nil
	}
	return &PartialBase{p.part, p.parts, p.text.String()}
}

func (w *PartialBase) restored() *partialBase {
	if w == nil {
		return nil
	}
	p := &partialBase{part: w.Part, parts: w.Parts}
	p.text.WriteString(w.Text)
	return p
}

// takeBase takes the next part of a base; the last one replaces the view. A part
// out of order, or a base that does not decode, is an error and drops what came;
// the view stays as it was.
func (v *View) takeBase(f SessionBase) error {
	p := v.partial
	v.partial = nil
	switch {
	case p == nil:
		return fmt.Errorf("base: part %d of %d came, want a session/subscribed that announces it: subscribe again", f.Part, f.Parts)
	case f.Part != p.part || f.Parts != p.parts:
		return fmt.Errorf("base: part %d of %d came, want %d of %d: subscribe again", f.Part, f.Parts, p.part, p.parts)
	}
	p.text.WriteString(f.Text)
	if p.part++; p.part < p.parts {
		v.partial = p
		return nil
	}
	return v.rebase(json.RawMessage(p.text.String()))
}

// rebase replaces the view with a base, but for what the subscription said.
func (v *View) rebase(raw json.RawMessage) error {
	base := NewView()
	if err := base.UnmarshalJSON(raw); err != nil {
		return fmt.Errorf("base: %w", err)
	}
	base.voidCards()
	base.Epoch, base.Status, base.subscribed, base.partial = v.Epoch, v.Status, true, nil
	*v = *base
	return nil
}
