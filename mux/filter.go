package mux

import "github.com/muxhost/muxhost/frames"

// filter is what one subscription lets through, by class of event.
type filter struct {
	drop     uint8 // bit per class
	withhold bool  // durable reasoning goes without its data
}

func bit(c frames.Class) uint8 { return 1 << c }

// liveOnly are the classes that a cursor skips until it is live.
var liveOnly = bit(frames.ClassText) | bit(frames.ClassReasoning) | bit(frames.ClassTool) | bit(frames.ClassLive)

// filterOf returns the filter of d; unknown words count as the default.
func filterOf(d Delivery) filter {
	var f filter
	if d.Text == "final" {
		f.drop |= bit(frames.ClassText)
	}
	if d.Reasoning == "final" || d.Reasoning == "off" {
		f.drop |= bit(frames.ClassReasoning)
	}
	f.withhold = d.Reasoning == "off"
	if d.Tools == "off" {
		f.drop |= bit(frames.ClassTool)
	}
	return f
}

// durable returns f without any live-only event.
func (f filter) durable() filter {
	f.drop |= liveOnly
	return f
}

func (f filter) everything() bool           { return f == filter{} }
func (f filter) passes(c frames.Class) bool { return f.drop&bit(c) == 0 }
func (f filter) withholds(c frames.Class) bool {
	return f.withhold && c == frames.ClassDurableReasoning
}

// pick appends to out the entries i to j of c that pass, neighbours as one run.
func (f filter) pick(c *chunk, i, j int, out []piece) []piece {
	join := false
	for ; i < j; i++ {
		e := c.entries[i]
		if !f.passes(e.class) {
			join = false
			continue
		}
		hold := f.withholds(e.class)
		b := c.buf[c.start(i):e.end:e.end]
		if join && !hold {
			last := &out[len(out)-1]
			last.b = c.buf[int(e.end)-len(b)-len(last.b) : e.end : e.end]
		} else {
			out = append(out, piece{b: b, withhold: hold})
		}
		join = !hold
	}
	return out
}

// live removes from part what the subscription does not stream, and reports
// whether part must still be sent.
func (f filter) live(part *frames.SessionLive) bool {
	if part.Turn == nil || f.everything() {
		return true
	}
	turn := frames.LiveTurn{TurnID: part.Turn.TurnID}
	for _, b := range part.Turn.Blocks {
		class := frames.ClassText
		if b.Kind == frames.KindReasoning {
			class = frames.ClassReasoning
		}
		if f.passes(class) {
			turn.Blocks = append(turn.Blocks, b)
		}
	}
	if f.passes(frames.ClassTool) {
		turn.Tools = part.Turn.Tools
	}
	part.Turn = &turn
	return !part.More || len(turn.Blocks)+len(turn.Tools) > 0
}
