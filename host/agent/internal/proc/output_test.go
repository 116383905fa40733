package proc_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/muxhost/muxhost/host/agent/internal/proc"
)

// Text comes out the same however the bytes were cut, and is always valid.
func TestRepairDoesNotDependOnChunks(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "é", "€", "😀", "\xff", "\xe2\x82", "\xf0\x9f", "\x80", "\x00"}
	for range 2000 {
		var b []byte
		for range r.IntN(20) {
			b = append(b, alphabet[r.IntN(len(alphabet))]...)
		}
		want := proc.Repair(b)
		var got strings.Builder
		var rep proc.Repairer
		for rest := b; len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			piece := rep.Text(rest[:n])
			if !utf8.ValidString(piece) {
				t.Fatalf("%q came out as invalid %q", b, piece)
			}
			got.WriteString(piece)
			rest = rest[n:]
		}
		got.WriteString(rep.Flush())
		if got.String() != want {
			t.Fatalf("%q in chunks = %q; want %q", b, got.String(), want)
		}
	}
}
