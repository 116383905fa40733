package frames_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/muxhost/muxhost/frames"
)

// Cuts never split a character, keep as much as fits, and say so.
func TestCutsKeepCharactersWhole(t *testing.T) {
	const s = "aö漢😀e"
	for limit := -1; limit <= len(s)+1; limit++ {
		head, cut := frames.Preview(s, limit)
		if !utf8.ValidString(head) || !strings.HasPrefix(s, head) || len(head) > max(limit, 0) || len(head) < min(limit, len(s))-3 || cut != (head != s) {
			t.Errorf("Preview(%q, %d) = %q, %v", s, limit, head, cut)
		}
		tail := frames.Tail(s, limit)
		if !utf8.ValidString(tail) || !strings.HasSuffix(s, tail) || len(tail) > max(limit, 0) || len(tail) < min(limit, len(s))-3 {
			t.Errorf("Tail(%q, %d) = %q", s, limit, tail)
		}
	}
}

// Invalid UTF-8 becomes U+FFFD, valid text stays.
func TestValidTextRepairs(t *testing.T) {
	for in, want := range map[string]string{"aö😀": "aö😀", "a\xffb": "a\uFFFDb", "\xe6\xbc": "\uFFFD", "": ""} {
		if got := frames.ValidText(in); got != want {
			t.Errorf("ValidText(%q) = %q, want %q", in, got, want)
		}
	}
}

// Cutting text that is no UTF-8 still keeps the limit.
func TestCutsSurviveInvalidUTF8(t *testing.T) {
	s := strings.Repeat("\x80", 20)
	for limit := range 22 {
		if head, _ := frames.Preview(s, limit); len(head) > limit {
			t.Errorf("Preview(%d) has %d bytes", limit, len(head))
		}
		if tail := frames.Tail(s, limit); len(tail) > limit {
			t.Errorf("Tail(%d) has %d bytes", limit, len(tail))
		}
	}
}
