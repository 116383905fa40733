package frames_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/muxhost/muxhost/frames"
)

// joined is a view that came in the middle of turn t1, while tool c1 ran.
func joined(t *testing.T) *frames.View {
	t.Helper()
	v := frames.NewView()
	for _, f := range []frames.Frame{
		frames.SessionSubscribed{Since: 50, Head: 50, Epoch: "e", State: frames.StateRunning},
		frames.SessionLive{Seq: 50, Turn: &frames.LiveTurn{TurnID: "t1", Tools: []frames.LiveTool{{CallID: "c1", Text: "a", To: 1}}}},
	} {
		if err := v.ApplyFrame(f); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// A client that joined in the middle of a turn shows that it runs.
func TestJoinedTurnIsRunning(t *testing.T) {
	v := joined(t)
	if v.Status != frames.StateRunning {
		t.Errorf("status %q, want running", v.Status)
	}
	if got := v.Durable().Status; got != frames.StateIdle {
		t.Errorf("the durable view is %q, want idle: the log alone shows no turn", got)
	}
	feed(t, v, (&log{t: t, seq: 50, turn: "t1"}).end(frames.TurnCompleted).all, 0)
	if v.Status != frames.StateIdle || v.Live() != nil {
		t.Errorf("after the turn's end: status %q, live %s; want idle and none", v.Status, toJSON(t, v.Live()))
	}
}

// A turn whose start fell into a hole is over with its end.
func TestTurnOfAHoleEnds(t *testing.T) {
	v := folded(t, (&log{t: t}).begin("t0").end(frames.TurnCompleted).all)
	if err := v.ApplyFrame(frames.SessionLive{Seq: 50, Turn: &frames.LiveTurn{TurnID: "t1"}}); err != nil || v.Live() == nil {
		t.Fatalf("live %s, %v; want t1", toJSON(t, v.Live()), err)
	}
	for _, e := range (&log{t: t, seq: 50, turn: "t1"}).end(frames.TurnCompleted).all {
		if err := v.ApplyEvent(e); !errors.Is(err, frames.ErrGap) {
			t.Errorf("turn/end after a hole: %v, want ErrGap", err)
		}
	}
	if v.Live() != nil || v.Status != frames.StateIdle {
		t.Errorf("live %s, status %q; want none, idle", toJSON(t, v.Live()), v.Status)
	}
}

// Where another turn is open when it ends, that one is live again.
func TestTurnOfAHoleLeavesTheOpenTurnLive(t *testing.T) {
	l := (&log{t: t}).begin("t0").add(frames.ToolCall{CallID: "c1", Name: "sh"})
	v := folded(t, l.all)
	if err := v.ApplyFrame(frames.SessionLive{Seq: 2, Turn: &frames.LiveTurn{TurnID: "t1"}}); err != nil {
		t.Fatal(err)
	}
	feed(t, v, (&log{t: t, seq: 2, turn: "t1"}).end(frames.TurnCompleted).all, 0)
	if live := v.Live(); live == nil || live.TurnID != "t0" || len(live.Tools) != 1 || v.Status != frames.StateRunning {
		t.Errorf("live %s, status %q; want t0 with its tool, running", toJSON(t, live), v.Status)
	}
}

// The tools of the open turn keep their order through the view's JSON, also one
// whose call was not seen.
func TestLiveToolsKeepTheirOrder(t *testing.T) {
	v := joined(t)
	feed(t, v, (&log{t: t, seq: 50, turn: "t1"}).add(frames.ToolCall{CallID: "c2", Name: "sh"}).all, 0)
	want := toJSON(t, v)
	back := frames.NewView()
	if err := json.Unmarshal([]byte(want), back); err != nil {
		t.Fatal(err)
	}
	if got := toJSON(t, back); got != want {
		t.Errorf("read back:\ngot  %s\nwant %s", got, want)
	}
	more := (&log{t: t, seq: 51, turn: "t1"}).add(frames.ToolCall{CallID: "c3", Name: "sh"}).all
	feed(t, v, more, 0)
	feed(t, back, more, 0)
	if got, want := toJSON(t, back.Live()), toJSON(t, v.Live()); got != want {
		t.Errorf("one call later: %s, want %s", got, want)
	}
}

// The baseline of the host voids cards as a session's does.
func TestHostBaselineVoidsCards(t *testing.T) {
	v := frames.NewView()
	card := frames.QuestionRequested{ID: "q", AskedAt: noon}
	for _, f := range []frames.Frame{frames.SessionSubscribed{Epoch: "e", State: frames.StateIdle}, card, frames.HostSubscribed{}} {
		if err := v.ApplyFrame(f); err != nil {
			t.Fatal(err)
		}
	}
	if len(v.Pending()) != 0 || v.Status != frames.StateIdle {
		t.Errorf("pending %v, status %q; want none, idle", v.Pending(), v.Status)
	}
	if err := v.ApplyFrame(card); err != nil || len(v.Pending()) != 1 || v.Status != frames.StateRequiresAction {
		t.Errorf("pending %v, status %q, %v; want the card that was repeated", v.Pending(), v.Status, err)
	}
}
