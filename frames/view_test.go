package frames_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// log builds a session's events: durable ones get the next seq.
type log struct {
	t    testing.TB
	seq  frames.Seq
	turn frames.TurnID
	all  []frames.Event
}

func (l *log) add(ps ...frames.Payload) *log {
	l.t.Helper()
	for _, p := range ps {
		e := event(l.t, 0, p)
		e.TurnID = l.turn
		if frames.ClassOf(e.Type).Durable() {
			l.seq++
			e.Seq = l.seq
			e.Time = frames.At(noon.Add(time.Duration(l.seq) * time.Second))
		} else {
			e.After = l.seq
		}
		l.all = append(l.all, e)
	}
	return l
}

func (l *log) begin(id frames.TurnID) *log {
	l.turn = id
	return l.add(frames.TurnStart{Trigger: "prompt"})
}

func (l *log) end(reason frames.TurnEndReason) *log {
	l.add(frames.TurnEnd{Reason: reason})
	l.turn = ""
	return l
}

// folded applies the events to a new view.
func folded(t testing.TB, es []frames.Event) *frames.View {
	t.Helper()
	v := frames.NewView()
	for _, e := range es {
		if err := v.ApplyEvent(e); err != nil {
			t.Fatalf("ApplyEvent(%s %d): %v", e.Type, e.Seq, err)
		}
	}
	return v
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func text(s string) []frames.ContentBlock { return []frames.ContentBlock{frames.Text(s)} }

// story is a session with everything that folds in it.
func story(t testing.TB) []frames.Event {
	l := &log{t: t}
	l.add(
		frames.SessionCreated{Agent: "echo", Cwd: "/w", Title: "one", RootSessionID: "s", Origin: frames.OriginUser, Labels: map[string]string{"b": "2", "a": "1"}},
		frames.PromptQueued{PromptID: "p1", Mode: frames.ModeQueue, Content: text("hi")},
		frames.PromptQueued{PromptID: "p2", Mode: frames.ModeQueue, Content: text("then")},
		frames.SessionConfigured{Policy: &frames.Policy{Mode: "ask"}, Options: json.RawMessage(`{"model":"m1","x":1}`)},
		frames.PromptDequeued{PromptID: "p1", Reason: "started"},
	).begin("t1").add(
		frames.UserMessage{PromptID: "p1", Content: text("hi")},
		frames.ModelStart{Attempt: 1, Model: "m1"},
		frames.ReasoningDelta{Block: 0, To: 2, Text: "think"},
		frames.ReasoningMessage{Content: text("thinking"), Blocks: []int{0}},
		frames.AssistantDelta{Block: 1, To: 1, Text: "Hel"},
		frames.AssistantDelta{Block: 1, From: 1, To: 3, Text: "lo"},
		frames.ToolCall{CallID: "c1", Name: "sh", Kind: "execute", Title: "ls", Input: json.RawMessage(`{"a":[1,2]}`)},
		frames.ApprovalAsked{ID: "r1", CallID: "c1", Tool: frames.Tool{Name: "sh"}, Input: json.RawMessage(`{"a":[1,2]}`), InputHash: "h"},
		frames.AssistantDelta{Block: 2, To: 1, Text: "oops"},
		frames.ApprovalDecided{ID: "r1", Outcome: frames.AllowedOnce, Origin: frames.CauseReply, By: &frames.By{ClientID: "c"}},
		frames.AssistantRetracted{Blocks: []int{2}},
		frames.ToolProgress{CallID: "c1", To: 1, Text: "out"},
		frames.ToolCall{CallID: "c2", Name: "agent"},
		frames.AgentSpawned{ChildSessionID: "k1", CallID: "c2", Agent: "echo", Title: "kid"},
		frames.AssistantMessage{Content: text("Hello"), Blocks: []int{1}, Partial: true},
		frames.ToolProgress{CallID: "c1", From: 1, To: 2, Text: "put"},
		frames.AssistantDelta{Block: 3, To: 1, Text: "more"},
		frames.ToolResult{CallID: "c1", Content: text("output"), DurationMs: 5},
		frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text("Hello"), frames.Text("more text")}, Blocks: []int{1, 3}},
		frames.QuestionAsked{ID: "q1", Questions: []frames.Question{{ID: "1", Question: "which?"}}},
		frames.TodoWrite{Todos: []frames.Todo{{Content: "do", Status: "pending"}}},
		frames.SteeringMessage{PromptID: "p2", Content: text("then")},
		frames.QuestionDecided{ID: "q1", Outcome: frames.Answered, Origin: frames.CauseReply, Answers: []frames.Answer{{ID: "1", Text: "this"}}},
		frames.AgentCompleted{ChildSessionID: "k1", CallID: "c2", Status: "completed", Result: text("done")},
		frames.UsageUpdated{Usage: frames.Usage{InputTokens: 10, Cost: "0.01"}},
		frames.TaskStarted{TaskID: "k", Label: "watch"},
		frames.ErrorReported{Code: "x", Message: "bad", Retryable: true},
		frames.AssistantDelta{Block: 4, To: 1, Text: "never stored"},
	).end(frames.TurnCancelled).add(
		frames.SessionCompacted{UpTo: 20, Content: text("summary")},
		frames.SessionRenamed{Title: "two"},
		frames.CommandAvailable{Commands: []frames.Command{{Name: "plan"}}},
		frames.TaskCompleted{TaskID: "k", Status: "completed"},
	).begin("t2").add(
		frames.UserMessage{PromptID: "p3", Content: text("again")},
		frames.AssistantDelta{Block: 0, To: 2, Text: "open "},
		frames.ToolCall{CallID: "c3", Name: "sh"},
		frames.ToolProgress{CallID: "c3", To: 4, Text: "pro\ngress"},
		frames.AssistantDelta{Block: 0, From: 2, To: 3, Text: "text"},
	)
	return l.all
}

// The fold of the story is the picture that a person should see.
func TestViewFoldsTheStory(t *testing.T) {
	v := folded(t, story(t))
	var kinds []string
	for _, it := range v.Items {
		kind := string(it.Kind)
		if it.Void {
			kind += "(void)"
		}
		kinds = append(kinds, kind)
	}
	if got, want := strings.Join(kinds, " "), "user reasoning tool tool agent assistant question steering error compaction user tool"; got != want {
		t.Errorf("items = %s\nwant    %s", got, want)
	}
	if v.Title != "two" || v.Status != frames.StateRunning || v.TurnID != "t2" || v.Model != "m1" || v.Gaps {
		t.Errorf("title %q, status %q, turn %q, model %q, gaps %v", v.Title, v.Status, v.TurnID, v.Model, v.Gaps)
	}
	if got := toJSON(t, v.Options); got != `{"model":"m1","x":1}` {
		t.Errorf("options = %s", got)
	}
	card := v.Items[2].Tool
	if card.Running || card.Content[0].Text != "output" || len(card.Decisions) != 1 || card.Decisions[0].Outcome != frames.AllowedOnce {
		t.Errorf("card of c1 = %s", toJSON(t, card))
	}
	if c2 := v.Items[3].Tool; c2.Running || c2.ResultSeq != 0 {
		t.Errorf("the turn's end left c2 running: %s", toJSON(t, c2))
	}
	if m := v.Items[5]; m.Partial || len(m.Content) != 2 || !reflect.DeepEqual(m.Blocks, []int{1, 3}) {
		t.Errorf("the message did not replace the partial one in its place: %s", toJSON(t, m))
	}
	if q := v.Items[6].Decision; q.Outcome != frames.Answered || q.Answers[0].Text != "this" {
		t.Errorf("question = %s", toJSON(t, q))
	}
	want := &frames.LiveTurn{
		TurnID: "t2", Blocks: []frames.LiveBlock{{Kind: "assistant", Text: "open text", To: 3}},
		Tools: []frames.LiveTool{{CallID: "c3", Text: "pro\ngress", To: 4}},
	}
	if got := v.Live(); !reflect.DeepEqual(got, want) {
		t.Errorf("live = %s, want %s", toJSON(t, got), toJSON(t, want))
	}
	if len(v.Queue()) != 0 || len(v.Pending()) != 0 || len(v.Children()) != 1 || v.Children()[0].Status != "completed" || v.Tasks()[0].Status != "completed" {
		t.Errorf("queue %v, pending %v, children %v, tasks %v", v.Queue(), v.Pending(), v.Children(), v.Tasks())
	}
	if len(v.Turns) != 2 || v.Turns[0].Reason != frames.TurnCancelled || v.Turns[0].EndSeq == 0 || v.Turns[1].Reason != "" {
		t.Errorf("turns = %s", toJSON(t, v.Turns))
	}
	// The child that completed after the compaction, what was said, the new prompt.
	if got, want := toJSON(t, v.Surface()), `{"upTo":20,"summary":[{"type":"text","text":"summary"}],"seqs":[15,21,33]}`; got != want {
		t.Errorf("surface = %s, want %s", got, want)
	}
}

// hostOf plays the host for the first n events: what it holds open.
func hostOf(t testing.TB, es []frames.Event) (*frames.TurnSnapshot, frames.Seq) {
	t.Helper()
	var turn *frames.OpenTurn
	var seq frames.Seq
	for _, e := range es {
		seq = max(seq, e.Seq)
		switch e.Type {
		case frames.TurnStartEvent:
			turn = frames.NewOpenTurn(e.TurnID)
		case frames.TurnEndEvent:
			turn = nil
		default:
			if turn != nil {
				if err := turn.Apply(e); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if turn == nil {
		return nil, seq
	}
	return turn.Snapshot(), seq
}

// pendingAt lists the frames of what waits after the events.
func pendingAt(t testing.TB, es []frames.Event) []frames.Frame {
	t.Helper()
	open := map[frames.RequestID]frames.Frame{}
	for _, e := range es {
		switch p, _ := e.Payload(); p := p.(type) {
		case *frames.ApprovalAsked:
			open[p.ID] = &frames.ApprovalRequested{SessionID: "s", ID: p.ID, TurnID: e.TurnID, Tool: p.Tool, AskedAt: e.Time}
		case *frames.QuestionAsked:
			open[p.ID] = &frames.QuestionRequested{SessionID: "s", ID: p.ID, TurnID: e.TurnID, Questions: p.Questions, AskedAt: e.Time}
		case *frames.ApprovalDecided:
			delete(open, p.ID)
		case *frames.QuestionDecided:
			delete(open, p.ID)
		}
	}
	var out []frames.Frame
	for _, f := range open {
		out = append(out, f)
	}
	return out
}

// join lets v subscribe after the first n events, with what it has as cursor.
func join(t testing.TB, v *frames.View, es []frames.Event, n int) {
	t.Helper()
	do := func(f frames.Frame) {
		t.Helper()
		if err := v.ApplyFrame(f); err != nil {
			t.Fatalf("ApplyFrame(%+v): %v", f, err)
		}
	}
	snap, head := hostOf(t, es[:n])
	since := v.Seq
	do(&frames.SessionSubscribed{SessionID: "s", Since: since, Head: head, Epoch: "e", State: frames.StateIdle})
	for _, f := range pendingAt(t, es[:n]) {
		do(f)
	}
	for _, e := range es[:n] {
		if e.Seq > since {
			do(frames.SessionEvent{SessionID: "s", Event: encode(t, e)})
		}
	}
	for part := range snap.Parts("s", head, 700) {
		do(part)
	}
}

// feed applies events n.. as a live client gets them: requests come as frames
// beside their audit events.
func feed(t testing.TB, v *frames.View, es []frames.Event, from int) {
	t.Helper()
	for i := from; i < len(es); i++ {
		for _, f := range pendingAt(t, es[i:i+1]) {
			if err := v.ApplyFrame(f); err != nil {
				t.Fatal(err)
			}
		}
		if err := v.ApplyFrame(&frames.SessionEvent{SessionID: "s", Event: encode(t, es[i])}); err != nil {
			t.Fatalf("event %d (%s): %v", i, es[i].Type, err)
		}
	}
}

// Who joins anywhere, by replay and snapshot, sees the same bytes from then on
// as who was there from the start.
func TestLateIsEqual(t *testing.T) {
	es := story(t)
	for n := range len(es) + 1 {
		late, early := frames.NewView(), frames.NewView()
		join(t, late, es, n)
		join(t, early, es, 0)
		feed(t, early, es[:n], 0)
		if got, want := toJSON(t, late), toJSON(t, early); got != want {
			t.Fatalf("joined after %d events:\ngot  %s\nwant %s", n, got, want)
		}
		feed(t, late, es, n)
		feed(t, early, es, n)
		if got, want := toJSON(t, late), toJSON(t, early); got != want {
			t.Fatalf("joined after %d events, at the end:\ngot  %s\nwant %s", n, got, want)
		}
	}
}

// Who was cut anywhere and resumes anywhere later sees the same bytes too.
func TestResumedIsEqual(t *testing.T) {
	es := story(t)
	whole := frames.NewView()
	join(t, whole, es, 0)
	feed(t, whole, es, 0)
	want := toJSON(t, whole)
	for cut := 0; cut < len(es); cut += 2 {
		for back := cut; back <= len(es); back += 5 {
			v := frames.NewView()
			join(t, v, es, 0)
			feed(t, v, es[:cut], 0)
			join(t, v, es, back)
			feed(t, v, es, back)
			if got := toJSON(t, v); got != want {
				t.Fatalf("cut after %d, back after %d:\ngot  %s\nwant %s", cut, back, got, want)
			}
		}
	}
}

// The durable view holds nothing that only live-only events and frames gave: it
// is what the log alone folds to, at every point.
func TestDurableIsTheLogAlone(t *testing.T) {
	es := story(t)
	logOnly, client := frames.NewView(), frames.NewView()
	join(t, client, es, 0)
	for i, e := range es {
		feed(t, client, es[:i+1], i)
		if e.Seq > 0 {
			if err := logOnly.ApplyEvent(e); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := toJSON(t, client.Durable()), toJSON(t, logOnly); got != want {
			t.Fatalf("after event %d (%s):\ngot  %s\nwant %s", i, e.Type, got, want)
		}
	}
}

// A view goes on from its own JSON, and from a base, as if nothing happened.
func TestViewGoesOnFromItsJSON(t *testing.T) {
	es := story(t)
	want := toJSON(t, folded(t, es))
	for n := range len(es) {
		v := frames.NewView()
		if err := json.Unmarshal([]byte(toJSON(t, folded(t, es[:n]))), v); err != nil {
			t.Fatal(err)
		}
		for _, e := range es[n:] {
			if err := v.ApplyEvent(e); err != nil {
				t.Fatal(err)
			}
		}
		if got := toJSON(t, v); got != want {
			t.Fatalf("from the JSON after %d events:\ngot  %s\nwant %s", n, got, want)
		}
	}
}

// A subscription with a base starts from it and drops what the view had.
func TestBaseReplacesTheView(t *testing.T) {
	es := story(t)
	base := folded(t, es[:1]).Durable()
	v := folded(t, es)
	err := v.ApplyFrame(frames.SessionSubscribed{Base: json.RawMessage(toJSON(t, base)), Epoch: "e2"})
	if err != nil || v.Seq != 1 || len(v.Items) != 0 || v.Title != "one" {
		t.Errorf("seq %d, %d items, title %q, err %v; want 1, none, one", v.Seq, len(v.Items), v.Title, err)
	}
	before := toJSON(t, v)
	for _, bad := range []string{`{"seq":"x"}`, `[]`, `{"items":[null]}`, `{"items":[{"kind":"tool"}]}`, `{"turnId":"t"}`} {
		if err := v.ApplyFrame(frames.SessionSubscribed{Base: json.RawMessage(bad), Epoch: "e3"}); err == nil || toJSON(t, v) != before {
			t.Errorf("base %s: err %v; want an error and the view unchanged", bad, err)
		}
	}
}

// A log of another epoch replaces the view when it comes from its start.
func TestAnotherEpochStartsAnew(t *testing.T) {
	v := frames.NewView()
	join(t, v, story(t), 10)
	if err := v.ApplyFrame(frames.SessionSubscribed{Epoch: "other"}); err != nil || v.Seq != 0 || len(v.Items) != 0 {
		t.Errorf("seq %d, %d items, err %v; want a new view", v.Seq, len(v.Items), err)
	}
}

// A durable event comes twice and counts once; a hole is reported, and what came
// after it is applied.
func TestDurableEventsCountOnce(t *testing.T) {
	es := story(t)
	v := folded(t, es[:5])
	before := toJSON(t, v)
	for _, e := range es[:5] {
		if err := v.ApplyEvent(e); err != nil {
			t.Fatal(err)
		}
	}
	if got := toJSON(t, v); got != before {
		t.Errorf("applied twice:\ngot  %s\nwant %s", got, before)
	}
	far := event(t, 90, frames.SessionRenamed{Title: "far"})
	if err := v.ApplyEvent(far); !errors.Is(err, frames.ErrGap) || v.Title != "far" || v.Seq != 90 {
		t.Errorf("after a hole: %v, title %q, seq %d; want ErrGap, far, 90", err, v.Title, v.Seq)
	}
}

// An unknown type, and a payload that does not decode, only advance the seq.
func TestUnknownEventsOnlyAdvance(t *testing.T) {
	v := folded(t, story(t)[:3])
	want := toJSON(t, v)
	if err := v.ApplyEvent(frames.Event{Type: "v/x", Seq: 4, Data: json.RawMessage(`{}`)}); err != nil {
		t.Error(err)
	}
	if err := v.ApplyEvent(frames.Event{Type: frames.UserMessageEvent, Seq: 5, Data: json.RawMessage(`{"content":1}`)}); err == nil {
		t.Error("a payload that does not decode: want an error")
	}
	if got := strings.Replace(toJSON(t, v), `"seq":5`, `"seq":3`, 1); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A missed delta is told, adds nothing, and the next snapshot mends it.
func TestGapsUntilTheNextSnapshot(t *testing.T) {
	l := (&log{t: t}).begin("t1").add(frames.AssistantDelta{To: 1, Text: "a"})
	v := folded(t, l.all)
	lost := event(t, 0, frames.AssistantDelta{From: 2, To: 3, Text: "c"})
	if err := v.ApplyEvent(lost); err != nil || !v.Gaps || v.Live().Blocks[0].Text != "a" {
		t.Fatalf("err %v, gaps %v, live %s; want gaps and a", err, v.Gaps, toJSON(t, v.Live()))
	}
	if v.Durable().Gaps {
		t.Error("the durable view has gaps")
	}
	if err := v.ApplyFrame(frames.SessionLagging{}); err != nil || !v.Lagging {
		t.Errorf("lagging = %v, %v", v.Lagging, err)
	}
	err := v.ApplyFrame(frames.SessionLive{Seq: 1, Turn: &frames.LiveTurn{
		TurnID: "t1", Blocks: []frames.LiveBlock{{Kind: "assistant", Text: "abc", To: 3}},
	}})
	if err != nil || v.Gaps || v.Lagging || v.Live().Blocks[0].Text != "abc" {
		t.Errorf("err %v, gaps %v, lagging %v, live %s; want abc", err, v.Gaps, v.Lagging, toJSON(t, v.Live()))
	}
}

// A snapshot that is older than a message does not bring its block back, nor a
// turn that ended.
func TestSnapshotsDoNotReviveWhatIsOver(t *testing.T) {
	l := (&log{t: t}).begin("t1").add(frames.ToolCall{CallID: "c"})
	old := frames.SessionLive{Seq: 2, Turn: &frames.LiveTurn{
		TurnID: "t1", Blocks: []frames.LiveBlock{{Kind: "assistant", Text: "a", To: 1}}, Tools: []frames.LiveTool{{CallID: "c", Text: "p", To: 1}},
	}}
	l.add(frames.AssistantMessage{Content: text("a"), Blocks: []int{0}}, frames.ToolResult{CallID: "c"})
	v := folded(t, l.all)
	if err := v.ApplyFrame(old); err != nil || len(v.Live().Blocks) != 0 || len(v.Live().Tools) != 0 {
		t.Errorf("live = %s, %v; want nothing open", toJSON(t, v.Live()), err)
	}
	v = folded(t, l.end(frames.TurnCompleted).all)
	if err := v.ApplyFrame(old); err != nil || v.Live() != nil {
		t.Errorf("live = %s, %v; want none after the turn's end", toJSON(t, v.Live()), err)
	}
}

// A client that joins at the head, in the middle of a turn, sees the open text
// and the turn's end.
func TestViewJoinsInTheMiddle(t *testing.T) {
	v := frames.NewView()
	for _, f := range []frames.Frame{
		frames.SessionSubscribed{Since: 50, Head: 50, Epoch: "e", State: frames.StateRunning},
		frames.SessionLive{Seq: 50, Turn: &frames.LiveTurn{TurnID: "t1", Blocks: []frames.LiveBlock{{Block: 3, Kind: "assistant", Text: "a", To: 1}}}},
	} {
		if err := v.ApplyFrame(f); err != nil {
			t.Fatal(err)
		}
	}
	l := &log{t: t, seq: 50, turn: "t1"}
	l.add(frames.AssistantDelta{Block: 3, From: 1, To: 2, Text: "b"})
	feed(t, v, l.all, 0)
	if got := v.Live().Blocks[0].Text; got != "ab" || v.Gaps {
		t.Errorf("open text %q, gaps %v; want ab", got, v.Gaps)
	}
	l.add(frames.AssistantMessage{Content: text("ab"), Blocks: []int{3}, Partial: true}, frames.AssistantMessage{Content: text("ab."), Blocks: []int{3}})
	feed(t, v, l.all, 1)
	if len(v.Items) != 1 || v.Items[0].Content[0].Text != "ab." || len(v.Live().Blocks) != 0 || v.TurnID != "t1" {
		t.Errorf("view = %s; want one message ab.", toJSON(t, v))
	}
	l.end(frames.TurnCompleted)
	feed(t, v, l.all, 3)
	if v.Live() != nil || v.TurnID != "" || v.Status != frames.StateIdle {
		t.Errorf("after the end: %s", toJSON(t, v))
	}
}

// A retraction voids messages, whole or by block; a message whose lists differ
// in length goes as a whole.
func TestBlocksAreReplacedOneByOne(t *testing.T) {
	two := []frames.ContentBlock{frames.Text("a"), frames.Text("b")}
	for name, c := range map[string]struct {
		next frames.Payload
		want string
	}{
		"one retracted":    {frames.AssistantRetracted{Blocks: []int{1}}, "0:b "},
		"both retracted":   {frames.AssistantRetracted{Blocks: []int{1, 2}}, "0:void "},
		"one replaced":     {frames.AssistantMessage{Blocks: []int{1}, Content: text("c")}, "0:b 1:c "},
		"both replaced":    {frames.AssistantMessage{Blocks: []int{2, 1}, Content: text("c")}, "0:c "},
		"others":           {frames.AssistantMessage{Blocks: []int{7, -1}, Content: text("c")}, "0:a,b 1:c "},
		"of another turn":  {nil, "0:a,b 1:c "},
		"no blocks at all": {frames.AssistantMessage{Content: text("c")}, "0:a,b 1:c "},
	} {
		l := (&log{t: t}).begin("t1").add(frames.AssistantMessage{Blocks: []int{1, 2}, Content: two})
		if c.next == nil {
			l.turn = "t0"
			c.next = frames.AssistantMessage{Blocks: []int{1}, Content: text("c")}
		}
		if got := texts(folded(t, l.add(c.next).all)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	l := (&log{t: t}).begin("t1").add(
		frames.AssistantMessage{Blocks: []int{1, 2}, Content: text("both")},
		frames.AssistantMessage{Blocks: []int{2}, Content: text("c")})
	if got := texts(folded(t, l.all)); got != "0:c " {
		t.Errorf("lists of different length: %q, want the whole message replaced", got)
	}
}

func texts(v *frames.View) string {
	var out strings.Builder
	for i, it := range v.Items {
		var parts []string
		for _, c := range it.Content {
			parts = append(parts, c.Text)
		}
		if it.Void {
			parts = append(parts, "void")
		}
		fmt.Fprintf(&out, "%d:%s ", i, strings.Join(parts, ","))
	}
	return out.String()
}

// Cards come and go by frames; a baseline voids those it does not repeat, and the
// audit events alone give the same for who has only the log.
func TestPendingFollowsFramesAndAudit(t *testing.T) {
	asked := frames.ApprovalAsked{ID: "r1", Tool: frames.Tool{Name: "sh"}}
	card := frames.ApprovalRequested{ID: "r1", Tool: frames.Tool{Name: "sh"}, AskedAt: noon}
	state := func(v *frames.View) string {
		var out strings.Builder
		for _, p := range v.Pending() {
			fmt.Fprintf(&out, "%s/%d/%v ", p.ID, p.Seq, p.Card)
		}
		return out.String() + string(v.Status)
	}
	v := folded(t, (&log{t: t}).begin("t1").add(asked).all)
	if got := state(v); got != "r1/2/false requires-action" {
		t.Errorf("from the log: %s", got)
	}
	for _, step := range []struct {
		f    frames.Frame
		want string
	}{
		{frames.SessionSubscribed{Since: 2, Epoch: "e", State: frames.StateRunning}, "r1/2/false running"},
		{card, "r1/2/true requires-action"},
		{&frames.QuestionRequested{ID: "q1", AskedAt: noon}, "q1/0/true r1/2/true requires-action"},
		{frames.SessionSubscribed{Since: 2, Epoch: "e", State: frames.StateRunning}, "r1/2/false running"},
		{card, "r1/2/true requires-action"},
		{frames.ApprovalResolved{ID: "r1", Outcome: frames.Rejected}, "r1/2/false running"},
		{frames.QuestionResolved{ID: "unknown"}, "r1/2/false running"},
		{frames.SessionEvent{Event: encode(t, event(t, 3, frames.ApprovalDecided{ID: "r1", Outcome: frames.Rejected}))}, "running"},
		{frames.SessionStatus{State: frames.StateIdle}, "idle"},
		{frames.Heartbeat{}, "idle"},
		{&frames.Unknown{Type: "x/y"}, "idle"},
	} {
		if err := v.ApplyFrame(step.f); err != nil {
			t.Fatal(err)
		}
		if got := state(v); got != step.want {
			t.Errorf("after %T: %s, want %s", step.f, got, step.want)
		}
	}
}

// Reasoning that delivery withheld is an item that says so.
func TestWithheldReasoningSaysSo(t *testing.T) {
	b, err := frames.Withhold(encode(t, event(t, 1, frames.ReasoningMessage{Content: text("x"), Blocks: []int{0}})))
	if err != nil {
		t.Fatal(err)
	}
	v := frames.NewView()
	if err := v.ApplyFrame(frames.SessionEvent{Event: b}); err != nil || len(v.Items) != 1 || !v.Items[0].Withheld {
		t.Errorf("view = %s, %v; want one withheld item", toJSON(t, v), err)
	}
}
