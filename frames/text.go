package frames

import (
	"strings"
	"unicode/utf8"
)

// ValidText returns s with every run of invalid UTF-8 replaced by one U+FFFD.
func ValidText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Preview returns the first max bytes of s or fewer, cut before a character
// that does not fit whole, and whether anything was cut.
func Preview(s string, max int) (string, bool) {
	if len(s) <= max {
		return s, false
	}
	return s[:cutBefore(s, max)], true
}

// Tail returns the last max bytes of s or fewer, cut at the start of a
// character.
func Tail(s string, max int) string {
	if len(s) <= max {
		return s
	}
	return s[tailStart(s, max):]
}

// cutBefore returns the greatest character boundary <= at.
func cutBefore[T string | []byte](s T, at int) int {
	at = min(max(at, 0), len(s))
	for back := range utf8.UTFMax {
		if i := at - back; i <= 0 || i == len(s) || utf8.RuneStart(s[i]) {
			return max(i, 0)
		}
	}
	return at // no UTF-8 anyway
}

// tailStart returns where the last limit bytes of s begin, moved up to a
// character boundary.
func tailStart[T string | []byte](s T, limit int) int {
	at := len(s) - min(max(limit, 0), len(s))
	for i := at; i < min(at+utf8.UTFMax, len(s)); i++ {
		if utf8.RuneStart(s[i]) {
			return i
		}
	}
	return min(at+utf8.UTFMax-1, len(s))
}
