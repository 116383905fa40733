package frames_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/muxhost/muxhost/frames"
)

// apply feeds the payloads to turn and fails on an error.
func apply(t testing.TB, turn *frames.OpenTurn, ps ...frames.Payload) {
	t.Helper()
	for _, p := range ps {
		if err := turn.Apply(event(t, 0, p)); err != nil {
			t.Fatalf("Apply(%+v): %v", p, err)
		}
	}
}

// parts returns the parts of a snapshot, checking the bound and More.
func parts(t testing.TB, s *frames.TurnSnapshot, max int) []frames.SessionLive {
	t.Helper()
	out := slices.Collect(s.Parts("s", 9, max))
	for i, p := range out {
		b, err := frames.EncodeFrame(p)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > max {
			t.Errorf("part %d of %d has %d bytes, want at most %d", i, len(out), len(b), max)
		}
		if p.More != (i < len(out)-1) {
			t.Errorf("part %d of %d has More %v", i, len(out), p.More)
		}
	}
	return out
}

// whole puts the parts of a snapshot together again.
func whole(ps []frames.SessionLive) frames.LiveTurn {
	out := frames.LiveTurn{TurnID: ps[0].Turn.TurnID}
	for _, p := range ps {
		for _, b := range p.Turn.Blocks {
			if last := len(out.Blocks) - 1; b.Offset > 0 {
				out.Blocks[last].Text += b.Text
				out.Blocks[last].To = b.To
				continue
			}
			out.Blocks = append(out.Blocks, b)
		}
		for _, b := range p.Turn.Tools {
			if last := len(out.Tools) - 1; b.Offset > 0 {
				out.Tools[last].Text += b.Text
				out.Tools[last].To = b.To
				continue
			}
			out.Tools = append(out.Tools, b)
		}
	}
	return out
}

// The open turn holds the text of blocks without a message and the progress of
// running tools, and nothing else.
func TestOpenTurnHoldsWhatIsNotInTheLog(t *testing.T) {
	turn := frames.NewOpenTurn("t1")
	apply(t, turn,
		frames.ReasoningDelta{Block: 0, From: 0, To: 1, Text: "hm"},
		frames.AssistantDelta{Block: 1, From: 0, To: 2, Text: "Hello"},
		frames.ToolCall{CallID: "z", Name: "sh"},
		frames.ToolCall{CallID: "a", Name: "sh"},
		frames.ToolProgress{CallID: "z", From: 0, To: 1, Text: "out"},
		frames.AssistantDelta{Block: 1, From: 2, To: 3, Text: ", you"},
		frames.AssistantDelta{Block: 2, From: 0, To: 1, Text: "gone"},
		frames.AssistantRetracted{Blocks: []int{2}},
		frames.AssistantDelta{Block: 2, From: 1, To: 2, Text: "late"},
		frames.ReasoningMessage{Blocks: []int{0}, Partial: true},
		frames.UserMessage{},
	)
	if got, want := turn.TextBytes(), len("Hello, you"); got != want {
		t.Errorf("TextBytes = %d, want %d", got, want)
	}
	if got := turn.Tools(); !slices.Equal(got, []frames.CallID{"z", "a"}) {
		t.Errorf("Tools = %v, want z and a in the order of their calls", got)
	}
	want := frames.LiveTurn{
		TurnID: "t1",
		Blocks: []frames.LiveBlock{{Block: 1, Kind: "assistant", Text: "Hello, you", To: 3}},
		Tools:  []frames.LiveTool{{CallID: "z", Text: "out", To: 1}, {CallID: "a"}},
	}
	if got := turn.Blocks(); !reflect.DeepEqual(got, want.Blocks) {
		t.Errorf("Blocks = %+v, want %+v", got, want.Blocks)
	}
	got := parts(t, turn.Snapshot(), frames.MaxFrame)
	if len(got) != 1 || !reflect.DeepEqual(*got[0].Turn, want) || got[0].Seq != 9 || got[0].SessionID != "s" {
		t.Errorf("Parts = %+v, want one with %+v", got, want)
	}
	apply(t, turn, frames.ToolResult{CallID: "z"}, frames.AssistantMessage{Blocks: []int{1}})
	if turn.TextBytes() != 0 || len(turn.Blocks()) != 0 || !slices.Equal(turn.Tools(), []frames.CallID{"a"}) {
		t.Errorf("after message and result: %d bytes, %v, %v", turn.TextBytes(), turn.Blocks(), turn.Tools())
	}
}

// A chunk that was there is dropped, the next is appended, and one whose
// predecessor is missing is reported and adds nothing.
func TestOpenTurnFollowsTheChunkRule(t *testing.T) {
	for _, c := range []struct {
		from, to int
		missed   bool
		want     string
	}{
		{0, 2, false, "ab"},
		{1, 2, false, "ab"},
		{2, 3, false, "ab+"},
		{3, 4, true, "ab"},
		{1, 3, true, "ab"},
		{-1, 3, true, "ab"},
		{5, 1, false, "ab"},
	} {
		turn := frames.NewOpenTurn("t1")
		apply(t, turn, frames.AssistantDelta{From: 0, To: 2, Text: "ab"})
		err := turn.Apply(event(t, 0, frames.AssistantDelta{From: c.from, To: c.to, Text: "+"}))
		if errors.Is(err, frames.ErrMissed) != c.missed || turn.Blocks()[0].Text != c.want {
			t.Errorf("[%d,%d) on [0,2): err %v, text %q; want missed %v, %q", c.from, c.to, err, turn.Blocks()[0].Text, c.missed, c.want)
		}
	}
}

// Events of another turn do not touch this one.
func TestOpenTurnIgnoresOtherTurns(t *testing.T) {
	turn := frames.NewOpenTurn("other")
	apply(t, turn, frames.AssistantDelta{To: 1, Text: "x"})
	if turn.TextBytes() != 0 {
		t.Errorf("TextBytes = %d, want 0", turn.TextBytes())
	}
}

// A tool's progress keeps its last MaxProgress bytes from a character boundary,
// however it was chunked.
func TestProgressKeepsItsTail(t *testing.T) {
	var all strings.Builder
	turn := frames.NewOpenTurn("t1")
	apply(t, turn, frames.ToolCall{CallID: "c"})
	for i := range 3000 {
		text := fmt.Sprintf("%d: ö漢😀%s\n", i, strings.Repeat("😀", i%40))
		all.WriteString(text)
		apply(t, turn, frames.ToolProgress{CallID: "c", From: i, To: i + 1, Text: text})
	}
	got := whole(parts(t, turn.Snapshot(), frames.MaxFrame)).Tools[0]
	if want := frames.Tail(all.String(), frames.MaxProgress); got.Text != want || got.To != 3000 {
		t.Errorf("kept %d bytes to %d, want %d bytes to 3000", len(got.Text), got.To, len(want))
	}
	if len(got.Text) <= frames.MaxProgress-4 {
		t.Errorf("kept %d bytes, want nearly %d", len(got.Text), frames.MaxProgress)
	}
}

// However the text escapes, every part keeps the bound, and the parts make up
// the whole.
func TestPartsKeepTheBoundAfterEscaping(t *testing.T) {
	turn := frames.NewOpenTurn("t\"1")
	set := func(p frames.Payload) {
		t.Helper()
		e := event(t, 0, p)
		e.TurnID = "t\"1"
		if err := turn.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	for i, text := range []string{
		strings.Repeat("\x01", 9000), strings.Repeat(`"\`, 5000), strings.Repeat("漢😀", 3000), "", strings.Repeat("\u2028a", 2000), "end",
	} {
		set(frames.AssistantDelta{Block: i, To: i + 1, Text: text})
		id := frames.CallID(fmt.Sprintf("call\n%d", i))
		set(frames.ToolCall{CallID: id})
		set(frames.ToolProgress{CallID: id, To: i + 1, Text: text})
	}
	s := turn.Snapshot()
	want := whole(parts(t, s, frames.MaxFrame))
	for i, b := range turn.Blocks() {
		if want.Blocks[i] != b {
			t.Errorf("block %d: a single part differs from Blocks", i)
		}
	}
	for _, max := range []int{600, 1024, 4096, 100_000} {
		if got := whole(parts(t, s, max)); !reflect.DeepEqual(got, want) {
			t.Errorf("max %d: the parts do not make up the whole", max)
		}
	}
}

// Without an open turn there is one part with a null turn; an open turn without
// text is one part that names it.
func TestPartsOfNothing(t *testing.T) {
	var none *frames.TurnSnapshot
	if got := parts(t, none, 1000); len(got) != 1 || got[0].Turn != nil || got[0].Seq != 9 {
		t.Errorf("nil snapshot: %+v, want one part with a nil turn", got)
	}
	if got := parts(t, frames.NewOpenTurn("t").Snapshot(), 1000); len(got) != 1 || got[0].Turn == nil || got[0].Turn.TurnID != "t" {
		t.Errorf("empty turn: %+v, want one part with turn t", got)
	}
}

// Who stops listening to the parts gets no more of them.
func TestPartsStopsWhenToldTo(t *testing.T) {
	turn := frames.NewOpenTurn("t1")
	apply(t, turn, frames.AssistantDelta{To: 1, Text: strings.Repeat("x", 5000)})
	n := 0
	for range turn.Snapshot().Parts("s", 1, 1000) {
		n++
		break
	}
	if n != 1 {
		t.Errorf("got %d parts, want 1", n)
	}
}

// A snapshot never changes, also while the turn goes on in another goroutine.
func TestSnapshotIsImmutable(t *testing.T) {
	turn := frames.NewOpenTurn("t1")
	apply(t, turn, frames.ToolCall{CallID: "c"})
	var wg sync.WaitGroup
	var want strings.Builder
	type taken struct {
		snap *frames.TurnSnapshot
		text string
	}
	check := func(s taken) {
		got := whole(slices.Collect(s.snap.Parts("s", 1, frames.MaxFrame)))
		if got.Blocks[0].Text != s.text || got.Tools[0].Text != frames.Tail(s.text, frames.MaxProgress) {
			t.Errorf("the snapshot after %d bytes changed", len(s.text))
		}
	}
	var all []taken
	for i := range 300 {
		text := strings.Repeat(fmt.Sprintf("%d,", i), 300)
		apply(t, turn,
			frames.AssistantDelta{From: i, To: i + 1, Text: text},
			frames.ToolProgress{CallID: "c", From: i, To: i + 1, Text: text})
		want.WriteString(text)
		if i%20 == 0 {
			s := taken{turn.Snapshot(), want.String()}
			all = append(all, s)
			wg.Go(func() { check(s) })
		}
	}
	wg.Wait()
	for _, s := range all {
		check(s)
	}
}

// Neighbouring deltas of one stream become one; nothing else is joined.
func TestMergeDeltaJoinsNeighboursOnly(t *testing.T) {
	a := event(t, 0, frames.AssistantDelta{Block: 1, From: 2, To: 4, Text: "ab<"})
	next := event(t, 0, frames.AssistantDelta{Block: 1, From: 4, To: 5, Text: "c"})
	next.After = 7
	got, ok := frames.MergeDelta(a, next)
	want := event(t, 0, frames.AssistantDelta{Block: 1, From: 2, To: 5, Text: "ab<c"})
	want.After = 7
	if !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, ok, want)
	}
	otherTurn := next
	otherTurn.TurnID = "t2"
	for name, b := range map[string]frames.Event{
		"a hole":        event(t, 0, frames.AssistantDelta{Block: 1, From: 5, To: 6}),
		"an overlap":    event(t, 0, frames.AssistantDelta{Block: 1, From: 3, To: 6}),
		"another block": event(t, 0, frames.AssistantDelta{Block: 2, From: 4, To: 5}),
		"another type":  event(t, 0, frames.ReasoningDelta{Block: 1, From: 4, To: 5}),
		"another turn":  otherTurn,
		"too large":     event(t, 0, frames.AssistantDelta{Block: 1, From: 4, To: 5, Text: strings.Repeat("x", frames.MaxEvent-2000)}),
		"no delta":      event(t, 1, frames.SessionRenamed{}),
	} {
		if got, ok := frames.MergeDelta(a, b); ok {
			t.Errorf("%s: merged to %s, want none", name, got.Data)
		}
	}
	for _, p := range [][2]frames.Payload{
		{frames.ReasoningDelta{To: 1, Text: "a"}, frames.ReasoningDelta{From: 1, To: 2, Text: "b"}},
		{frames.ToolProgress{CallID: "c", To: 1, Text: "a"}, frames.ToolProgress{CallID: "c", From: 1, To: 2, Text: "b"}},
	} {
		if got, ok := frames.MergeDelta(event(t, 0, p[0]), event(t, 0, p[1])); !ok || !strings.Contains(string(got.Data), `"ab"`) {
			t.Errorf("%T: got %s, %v; want ab", p[0], got.Data, ok)
		}
	}
}
