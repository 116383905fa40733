package mux

import (
	"testing"

	"github.com/muxhost/muxhost/frames"
)

// A small ring keeps most of what it may keep, also when a new chunk begins.
func TestSmallRingKeepsWhatReadersAreAboutToTake(t *testing.T) {
	const limit = 64 << 10
	r := &ring{sid: "s", overhead: len(frames.AppendSessionEvent(nil, "s", nil)), limit: limit}
	kept := func() (n int) {
		for _, c := range r.chunks {
			n += len(c.buf)
		}
		return n
	}
	event := make([]byte, 1<<10)
	for i := range 1000 {
		r.append(frames.Encoded{Class: frames.ClassText, Data: event})
		if got := kept(); i > 100 && got < limit/2 {
			t.Fatalf("after %d events of 1 KiB it keeps %d bytes of %d", i, got, limit)
		}
	}
}
