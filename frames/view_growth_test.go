package frames_test

import (
	"fmt"
	"testing"

	"github.com/muxhost/muxhost/frames"
)

// longLog has n turns with every kind of growth in them.
func longLog(t testing.TB, n int) []frames.Event {
	l := &log{t: t}
	for i := range n {
		call := frames.CallID(fmt.Sprint("c", i))
		id := frames.RequestID(fmt.Sprint("r", i))
		l.add(frames.PromptQueued{PromptID: frames.PromptID(fmt.Sprint("q", i)), Content: text("x")})
		if i%50 == 0 {
			l.begin(frames.TurnID(fmt.Sprint("t", i)))
		}
		l.add(frames.ToolCall{CallID: call}, frames.ToolProgress{CallID: call, To: 1, Text: "p"},
			frames.ApprovalAsked{ID: id, CallID: call}, frames.AssistantDelta{Block: i, To: 1, Text: "a"},
			frames.AssistantDelta{Block: i, From: 1, To: 2, Text: "b"}, frames.AssistantMessage{Blocks: []int{i}, Content: text("ab")},
			frames.AgentSpawned{ChildSessionID: frames.SessionID(fmt.Sprint("k", i)), CallID: call})
		if i%2 == 0 {
			l.add(frames.ApprovalDecided{ID: id}, frames.ToolResult{CallID: call})
		}
	}
	return l.all
}

// Folding costs the same per event however long the log is.
func TestFoldingIsLinear(t *testing.T) {
	const n, times = 60, 20
	short, long := longLog(t, n), longLog(t, times*n)
	allocs := func(es []frames.Event) float64 {
		return testing.AllocsPerRun(1, func() { folded(t, es) })
	}
	if a, b := allocs(short), allocs(long); b > 1.1*times*a {
		t.Errorf("%v allocations for %d events, %v for %d: more than linear", a, len(short), b, len(long))
	}
	if r := ratio(times, func() { folded(t, short) }, func() { folded(t, long) }); r > 5 {
		t.Errorf("an event costs %.1f times as much among %d as among %d", r, len(long), len(short))
	}
}

func BenchmarkView(b *testing.B) {
	for _, n := range []int{100, 1000} {
		es := longLog(b, n)
		b.Run(fmt.Sprintf("events=%d", len(es)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				folded(b, es)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(es)), "ns/event")
		})
	}
}
