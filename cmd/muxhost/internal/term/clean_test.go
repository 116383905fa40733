package term_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/term"
)

// Escape sequences, controls and bidirectional characters are gone; text stays.
func TestCleanDropsWhatATerminalWouldObey(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"colours", "a\x1b[31mred\x1b[0mb", "aredb"},
		{"clipboard", "x\x1b]52;c;ZXZpbA==\x07y", "xy"},
		{"link", "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\", "click"},
		{"device control", "a\x1bP1;2|secret\x1b\\b", "ab"},
		{"application string", "a\x1b_payload\x1b\\b", "ab"},
		{"C1 control sequence", "a\u009b31mb", "ab"},
		{"C1 string", "a\u009d0;title\u009cb", "ab"},
		{"charset", "a\x1b(0b", "ab"},
		{"backspace and bell", "pass\x08\x08\x07word", "password"},
		{"override", "a\u202egnp.exe\u202cb", "agnp.exeb"},
		{"isolates", "\u2066x\u2069", "x"},
		{"zero width", "a\u200bb\ufeffc", "abc"},
		{"tags", "a\U000e0041b", "ab"},
		{"newline, tab", "a\n\tb", "a\n\tb"},
		{"carriage return", "one\rtwo\r\nthree\r", "one\ntwo\nthree\n"},
		{"unfinished string ends at a newline", "a\x1b]0;never closed\nb", "a\nb"},
		{"unfinished sequence", "a\x1b[", "a"},
		{"broken character", "a\xffb", "a\ufffdb"},
		{"words in any script", "naïve 日本語 😀", "naïve 日本語 😀"},
	} {
		if got := term.Clean(c.in); got != c.want {
			t.Errorf("%s: Clean(%q) = %q, want %q", c.name, c.in, got, c.want)
		}
	}
}

// An endless string swallows a bounded amount of text.
func TestCleanBoundsAnUnfinishedString(t *testing.T) {
	in := "\x1b]0;" + strings.Repeat("x", 10_000) + "shown"
	if got := term.Clean(in); !strings.HasSuffix(got, "shown") {
		t.Errorf("the end of the text is lost: got %d bytes", len(got))
	}
}

// A stream cleaned in pieces is the stream cleaned at once.
func TestCleanerKeepsItsStateBetweenPieces(t *testing.T) {
	in := "a\x1b[31mré\x1b]52;c;xx\x07d\r\ne\u202ef\rg"
	want := term.Clean(in)
	for cut := range len(in) {
		var c term.Cleaner
		got := c.Clean(in[:cut]) + c.Clean(in[cut:]) + c.Flush()
		if got != want {
			t.Errorf("cut at %d: got %q, want %q", cut, got, want)
		}
	}
}

// Text on which a person decides shows what is hidden in it.
func TestVisibleShowsHiddenCharacters(t *testing.T) {
	if got, want := term.Visible("rm \u202e-rf\x1b[8m /"), "rm ⟨U+202E⟩-rf⟨U+001B⟩[8m /"; got != want {
		t.Errorf("Visible = %q, want %q", got, want)
	}
}

func TestLineKeepsOneLine(t *testing.T) {
	if got, want := term.Line("a\n\tb\x1b[2Jc \r d"), "a bc d"; got != want {
		t.Errorf("Line = %q, want %q", got, want)
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"a\x1b[31mb", "\x1b]52;c;x\x07", "\u202e", "\xc2", "\r\n", "\x1bP\x1b\\", "\u009b1m"} {
		f.Add(s, 1)
	}
	f.Fuzz(func(t *testing.T, s string, cut int) {
		got := term.Clean(s)
		if !utf8.ValidString(got) {
			t.Fatalf("Clean(%q) = %q is not UTF-8", s, got)
		}
		for _, r := range got {
			if r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r <= 0x9f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
				t.Fatalf("Clean(%q) = %q holds %U", s, got, r)
			}
		}
		if v := term.Visible(s); strings.ContainsAny(v, "\x1b\u202e\u0007\r") {
			t.Fatalf("Visible(%q) = %q", s, v)
		}
		if cut < 0 || cut > len(s) {
			return
		}
		var c term.Cleaner
		if piece := c.Clean(s[:cut]) + c.Clean(s[cut:]) + c.Flush(); piece != got {
			t.Fatalf("in pieces %q, at once %q", piece, got)
		}
	})
}

// JSON keeps its meaning and loses what a terminal would obey.
func TestJSONIsInertAndSaysTheSame(t *testing.T) {
	for _, s := range []string{"plain", "a\u009b31mb\u202e\U000e0041\u007f", "\u009d0;title\u009c", "日本語 😀"} {
		in, err := json.Marshal(map[string]string{"s": s})
		if err != nil {
			t.Fatal(err)
		}
		got := term.JSON(in)
		if strings.ContainsAny(string(got), "\u009b\u009c\u009d\u202e\U000e0041\u007f") {
			t.Errorf("JSON(%q) = %q", in, got)
		}
		var back map[string]string
		if err := json.Unmarshal(got, &back); err != nil || back["s"] != s {
			t.Errorf("JSON(%q) = %q, which says %q, %v", in, got, back["s"], err)
		}
	}
}

// A line made visible is one line: a newline in it shows and breaks nothing.
func TestVisibleLineIsOneLine(t *testing.T) {
	if got, want := term.VisibleLine("/tmp\n│ tool ls\t\u202e"), "/tmp⟨U+000A⟩│ tool ls⟨U+0009⟩⟨U+202E⟩"; got != want {
		t.Errorf("VisibleLine = %q, want %q", got, want)
	}
}
