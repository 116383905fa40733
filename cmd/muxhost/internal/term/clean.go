package term

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxSequence bounds how much text an unfinished escape sequence may swallow.
const maxSequence = 4096

// state says where in an escape sequence a [Cleaner] is.
type state uint8

const (
	ground  state = iota
	escape        // after ESC
	control       // in a CSI sequence, until its final byte
	str           // in an OSC, DCS, APC, PM or SOS string, until ST or BEL
	strEsc        // after ESC inside a string
)

// Cleaner drops escape sequences, control characters (but newline and tab) and
// bidirectional and invisible formatting characters from a stream of text. It
// keeps its state between calls, so a sequence cut in two is still dropped. A
// carriage return that no newline follows becomes a newline. The zero Cleaner is
// ready. It belongs to one goroutine.
type Cleaner struct {
	st   state
	seen int  // bytes of the sequence so far
	cr   bool // a carriage return waits for what follows
	part []byte
}

// Clean returns the printable part of s.
func Clean(s string) string {
	var c Cleaner
	return c.Clean(s) + c.Flush()
}

// Line is [Clean] with newlines and tabs turned into single spaces: for titles,
// ids and everything else that must stay on one line.
func Line(s string) string {
	return strings.Join(strings.Fields(Clean(s)), " ")
}

// Clean returns the printable part of the next piece of a stream. Bytes of a
// character cut in two wait for the next piece.
func (c *Cleaner) Clean(s string) string {
	b := append(c.part, s...)
	c.part = nil
	var out strings.Builder
	out.Grow(len(b))
	for len(b) > 0 {
		if !utf8.FullRune(b) {
			c.part = append(c.part, b...)
			break
		}
		r, n := utf8.DecodeRune(b)
		b = b[n:]
		c.step(&out, r)
	}
	return out.String()
}

// Flush returns what waited for more: a broken character, a carriage return.
func (c *Cleaner) Flush() string {
	var out strings.Builder
	if len(c.part) > 0 {
		c.step(&out, utf8.RuneError)
	}
	if c.cr {
		out.WriteByte('\n')
	}
	*c = Cleaner{}
	return out.String()
}

func (c *Cleaner) step(out *strings.Builder, r rune) {
	if c.st != ground {
		c.sequence(out, r)
		return
	}
	if c.cr {
		c.cr = false
		out.WriteByte('\n')
		if r == '\n' {
			return
		}
	}
	switch {
	case r == 0x1b:
		c.enter(escape)
	case r == 0x9b:
		c.enter(control)
	case r == 0x90, r == 0x98, r == 0x9d, r == 0x9e, r == 0x9f:
		c.enter(str)
	case r == '\r':
		c.cr = true
	case !hidden(r):
		out.WriteRune(r)
	}
}

func (c *Cleaner) enter(s state) { c.st, c.seen = s, 0 }

// sequence consumes r inside an escape sequence. A newline, or too long a
// sequence, ends it: what follows is plain text again, and harmless.
func (c *Cleaner) sequence(out *strings.Builder, r rune) {
	c.seen += utf8.RuneLen(r)
	if r == '\n' || c.seen > maxSequence {
		c.st = ground
		if r == '\n' {
			out.WriteByte('\n')
		}
		return
	}
	switch c.st {
	case escape:
		c.afterEscape(r)
	case control:
		if r >= 0x40 && r <= 0x7e {
			c.st = ground
		}
	case str:
		switch r {
		case 0x07, 0x9c:
			c.st = ground
		case 0x1b:
			c.st = strEsc
		}
	case strEsc:
		c.st = str
		if r == '\\' {
			c.st = ground
		}
	}
}

func (c *Cleaner) afterEscape(r rune) {
	switch r {
	case '[':
		c.st = control
	case ']', 'P', 'X', '^', '_':
		c.st = str
	case 0x1b:
	default:
		if r >= 0x20 && r <= 0x2f { // intermediate bytes: one final byte follows
			return
		}
		c.st = ground
	}
}

// hidden reports whether r must never reach a terminal.
func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x20, r >= 0x7f && r <= 0x9f: // C0, DEL, C1
		return true
	case r == 0x061c, r >= 0x200b && r <= 0x200f: // marks, zero width
		return true
	case r >= 0x2028 && r <= 0x202e: // separators, embeddings, overrides
		return true
	case r >= 0x2060 && r <= 0x206f: // joiners, isolates, deprecated formats
		return true
	case r == 0xfeff, r >= 0xfff9 && r <= 0xfffb: // BOM, annotations
		return true
	case r >= 0xe0000 && r <= 0xe007f: // tags
		return true
	case r == 0x00ad, r == 0x180e: // soft hyphen, vowel separator
		return true
	}
	return false
}

// Visible returns s with every character that [Clean] would drop shown as
// ⟨U+XXXX⟩, so that a person sees that it is there. Newlines and tabs stay.
func Visible(s string) string { return visible(s, hidden) }

// VisibleLine is [Visible] for what must stay on one line: newlines and tabs are
// shown too.
func VisibleLine(s string) string {
	return visible(s, func(r rune) bool { return r == '\n' || r == '\t' || hidden(r) })
}

func visible(s string, hide func(rune) bool) string {
	var out strings.Builder
	out.Grow(len(s))
	for _, r := range s {
		if hide(r) {
			fmt.Fprintf(&out, "⟨U+%04X⟩", r)
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}
