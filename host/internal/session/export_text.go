package session

import (
	"fmt"
	"strings"
	"unicode"
)

// visible makes every control and formatting character of s a visible escape, but
// for line feeds and tabs; CR LF is LF. What is left does nothing to a terminal.
func visible(s string) string {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	if strings.IndexFunc(s, hidden) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if !hidden(r) {
			b.WriteRune(r)
			continue
		}
		if r < 0x80 {
			fmt.Fprintf(&b, `\x%02x`, r)
		} else {
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
	}
	return b.String()
}

// hidden reports whether r acts on what is around it instead of being seen.
func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r == '\u2028' || r == '\u2029':
		return true
	}
	return unicode.Is(unicode.C, r) && !unicode.Is(unicode.Co, r)
}

// special are the characters that mean something in a line of Markdown.
const special = "\\`*_{}[]<>#|~&!"

// inline is text as a part of one line, meaning nothing but itself.
func inline(s string) string {
	s = strings.TrimSpace(strings.Join(strings.Fields(visible(s)), " "))
	if !strings.ContainsAny(s, special) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune(special, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// code is text as a code span of one line; "" stays.
func code(s string) string {
	s = strings.Join(strings.Fields(visible(s)), " ")
	if s == "" {
		return ""
	}
	ticks := strings.Repeat("`", longestRun(s, '`')+1)
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		s = " " + s + " "
	}
	return ticks + s + ticks
}

// fence writes text as a code block whose fence no line of it can close.
func fence(dst []byte, lang, text string) []byte {
	text = visible(text)
	ticks := strings.Repeat("`", max(3, longestRun(text, '`')+1))
	dst = append(append(append(dst, ticks...), lang...), '\n')
	dst = append(dst, text...)
	if !strings.HasSuffix(text, "\n") {
		dst = append(dst, '\n')
	}
	return append(append(dst, ticks...), '\n')
}

// quote writes text as a block quote. Its Markdown stays, but no HTML does, which
// would reach beyond the quote.
func quote(dst []byte, text string) []byte {
	text = strings.TrimRight(visible(text), "\n")
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" {
			dst = append(dst, ">\n"...)
			continue
		}
		dst = append(append(append(dst, "> "...), noHTML(line)...), '\n')
	}
	return dst
}

// noHTML escapes what would begin a tag, a comment or a declaration.
func noHTML(line string) string {
	var b strings.Builder
	for i := range len(line) {
		if line[i] == '<' && i+1 < len(line) && (line[i+1] == '/' || line[i+1] == '!' || line[i+1] == '?' || isLetter(line[i+1])) {
			b.WriteString("&lt;")
			continue
		}
		b.WriteByte(line[i])
	}
	return b.String()
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// longestRun returns the length of the longest run of c.
func longestRun(s string, c byte) int {
	best, run := 0, 0
	for i := range len(s) {
		if s[i] == c {
			run++
			best = max(best, run)
		} else {
			run = 0
		}
	}
	return best
}
