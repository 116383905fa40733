package frames

import (
	"iter"
	"unicode/utf8"
)

// TurnSnapshot is an [OpenTurn] at one moment. It never changes and may be read
// from any goroutine. A nil *TurnSnapshot stands for "no turn is open".
type TurnSnapshot struct {
	id     TurnID
	blocks []snapBlock
	tools  []snapTool
}

type snapBlock struct {
	block int
	kind  string
	text  []byte
	to    int
}

type snapTool struct {
	id   CallID
	text []byte
	to   int
}

// TurnID returns the turn's id, "" for nil.
func (s *TurnSnapshot) TurnID() TurnID {
	if s == nil {
		return ""
	}
	return s.id
}

// entryOverhead is more than an encoded block or tool takes beside its text and
// its call id.
const entryOverhead = 128

// Parts yields the snapshot as one or more [SessionLive] frames, each at most
// max bytes when encoded as a whole notification; texts are cut at character
// boundaries. More is set on all but the last part. A nil snapshot yields one
// part with a null turn. A max that is too small for the envelope and one
// character is exceeded rather than looped on.
func (s *TurnSnapshot) Parts(sid SessionID, seq Seq, max int) iter.Seq[SessionLive] {
	return func(yield func(SessionLive) bool) {
		if s == nil {
			yield(SessionLive{SessionID: sid, Seq: seq})
			return
		}
		p := newPacker(s.id, sid, seq, max, yield)
		for _, b := range s.blocks {
			if !p.split(b.text, 0, func(text string, offset, to int) {
				p.turn.Blocks = append(p.turn.Blocks, LiveBlock{b.block, b.kind, text, offset, to})
			}, b.to) {
				return
			}
		}
		for _, t := range s.tools {
			if !p.split(t.text, encodedLen(t.id), func(text string, offset, to int) {
				p.turn.Tools = append(p.turn.Tools, LiveTool{t.id, text, offset, to})
			}, t.to) {
				return
			}
		}
		p.flush(false)
	}
}

// packer fills parts.
type packer struct {
	sid   SessionID
	seq   Seq
	yield func(SessionLive) bool
	room  int // bytes of an empty part
	left  int // bytes left in this part
	turn  *LiveTurn
}

func newPacker(id TurnID, sid SessionID, seq Seq, max int, yield func(SessionLive) bool) *packer {
	p := &packer{sid: sid, seq: seq, yield: yield, turn: &LiveTurn{TurnID: id}}
	// The envelope is some 150 bytes; 64 cover the two lists' names and numbers.
	p.room = max - len(frameHead) - len(SessionLiveFrame) - encodedLen(sid) - encodedLen(id) - 160
	p.left = p.room
	return p
}

// split adds one text, in pieces over as many parts as it needs. Each piece says
// where it begins; only the last one counts its chunks.
func (p *packer) split(text []byte, idLen int, add func(text string, offset, to int), to int) bool {
	for offset := 0; ; {
		fit := p.fit(text[offset:], idLen)
		if fit == 0 && offset < len(text) || p.left < entryOverhead+idLen {
			if !p.empty() {
				if !p.flush(true) {
					return false
				}
				continue
			}
			fit = firstRune(text[offset:])
		}
		end := offset + fit
		last := end == len(text)
		n := 0
		if last {
			n = to
		}
		add(string(text[offset:end]), offset, n)
		p.left -= entryOverhead + idLen + encodedLen(text[offset:end])
		if last {
			return true
		}
		offset = end
		if !p.flush(true) {
			return false
		}
	}
}

func (p *packer) empty() bool { return len(p.turn.Blocks) == 0 && len(p.turn.Tools) == 0 }

// fit returns how many bytes of text still go into this part.
func (p *packer) fit(text []byte, idLen int) int {
	left := p.left - entryOverhead - idLen
	i := 0
	for i < len(text) {
		n, cost := runeCost(text[i:])
		if left < cost {
			break
		}
		left -= cost
		i += n
	}
	return i
}

func (p *packer) flush(more bool) bool {
	ok := p.yield(SessionLive{SessionID: p.sid, Seq: p.seq, Turn: p.turn, More: more})
	p.turn = &LiveTurn{TurnID: p.turn.TurnID}
	p.left = p.room
	return ok
}

func firstRune(text []byte) int {
	_, n := utf8.DecodeRune(text)
	return n
}

// encodedLen returns how long s is inside a JSON string as encoding/json writes
// it without HTML escaping.
func encodedLen[T ~string | ~[]byte](s T) int {
	n := 0
	for i := 0; i < len(s); {
		size, cost := runeCost(s[i:])
		n += cost
		i += size
	}
	return n
}

// runeCost returns the size of the first character of s, and its encoded size.
func runeCost[T ~string | ~[]byte](s T) (size, cost int) {
	switch c := s[0]; {
	case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t' || c == '\b' || c == '\f':
		return 1, 2
	case c < 0x20:
		return 1, 6
	case c < utf8.RuneSelf:
		return 1, 1
	}
	r, n := utf8.DecodeRuneInString(string(s[:min(len(s), utf8.UTFMax)]))
	if r == utf8.RuneError && n == 1 || r == '\u2028' || r == '\u2029' {
		return n, 6
	}
	return n, n
}
