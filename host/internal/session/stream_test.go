package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
)

// play runs one turn to its end and returns the session.
func (r *rig) play(f turnFunc) frames.SessionID {
	r.t.Helper()
	r.agent.on("go", f)
	sid := r.create(session.CreateArgs{})
	r.prompt(sid, "go")
	r.wait()
	return sid
}

// fold folds what was published of a session, as a client does.
func (r *rig) fold(sid frames.SessionID) *frames.View {
	r.t.Helper()
	v := frames.NewView()
	head := r.log(sid)[0]
	if err := v.ApplyEvent(head); err != nil {
		r.t.Fatal(err)
	}
	for _, enc := range r.pub.events(sid) {
		e, err := frames.DecodeEvent(enc.Data)
		if err != nil {
			r.t.Fatal(err)
		}
		if err := v.ApplyEvent(e); err != nil {
			r.t.Errorf("fold %s: %v", e.Type, err)
		}
	}
	return v
}

// Streamed chunks are numbered without gaps however they are merged, and who saw
// them live has the text that the message then says.
func TestDeltasAreContiguous(t *testing.T) {
	bubble(t, func(r *rig) {
		want := strings.Repeat("wörd ", 200)
		sid := r.play(func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			b := t.NewBlock()
			for i := range len(want) { // byte by byte: characters arrive in halves
				if err := errors.Join(t.Text(ctx, b, want[i:i+1]), pause(ctx, time.Duration(i%2)*time.Millisecond)); err != nil {
					return agent.Result{}, err
				}
			}
			return agent.Result{}, t.Emit(ctx, frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text(want)}, Blocks: []int{b}})
		})
		time.Sleep(time.Minute)
		r.wait()
		have, text := 0, ""
		for _, enc := range r.pub.events(sid) {
			if enc.Type != frames.AssistantDeltaEvent {
				continue
			}
			e, _ := frames.DecodeEvent(enc.Data)
			p, _ := e.Payload()
			d := p.(*frames.AssistantDelta)
			if d.From != have {
				t.Fatalf("a delta holds chunks %d to %d after %d", d.From, d.To, have)
			}
			have, text = d.To, text+d.Text
		}
		if text != want {
			t.Errorf("streamed %d bytes, want %d", len(text), len(want))
		}
		r.wantTypes(sid, "turn/start", "user/message", "assistant/message", "turn/end")
	})
}

// Open text is written as a partial message before it grows too large; the rest
// goes on in a new block, and the final message replaces both.
func TestLongTextIsWrittenAsPartials(t *testing.T) {
	bubble(t, func(r *rig) {
		piece := strings.Repeat("x", 10<<10)
		var b int
		sid := r.play(func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			b = t.NewBlock()
			for range 20 {
				if err := t.Text(ctx, b, piece); err != nil {
					return agent.Result{}, err
				}
			}
			return agent.Result{}, t.Emit(ctx, frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text("final")}, Blocks: []int{b}})
		})
		r.wantTypes(sid, "turn/start", "user/message", "assistant/message", "assistant/message", "turn/end")
		ms := every[frames.AssistantMessage](r, sid)
		if !ms[0].Partial || len(ms[0].Content[0].Text) > frames.MaxOpenText {
			t.Errorf("first message: partial=%v with %d bytes", ms[0].Partial, len(ms[0].Content[0].Text))
		}
		if !slices.Equal(ms[1].Blocks, []int{0, 1}) {
			t.Errorf("the message lists blocks %v, want both", ms[1].Blocks)
		}
		live, err := json.Marshal(r.fold(sid).Durable())
		if err != nil {
			t.Fatal(err)
		}
		view, _, err := r.m.View(r.t.Context(), sid)
		if err != nil || string(view) != string(live) {
			t.Errorf("view %v:\n got %.300s\nwant %.300s", err, view, live)
		}
	})
}

// Output too large for an event becomes a preview with the whole as a blob.
func TestLargeResultIsCut(t *testing.T) {
	bubble(t, func(r *rig) {
		whole := strings.Repeat("é\x01\"", 1<<20)
		sid := r.play(func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			return agent.Result{}, t.Emit(ctx, frames.ToolCall{CallID: "c1", Name: "sh"},
				frames.ToolResult{CallID: "c1", Content: []frames.ContentBlock{frames.Text(whole), frames.Text("short")}})
		})
		c := last[frames.ToolResult](r, sid).Content
		if c[0].Truncated == nil || string(r.pub.blobs[c[0].Truncated.Blob]) != whole || !strings.HasPrefix(whole, c[0].Text) || len(c[0].Text) < 1000 {
			t.Errorf("content %d bytes with %+v, want a preview of the whole", len(c[0].Text), c[0].Truncated)
		}
		if c[1].Text != "short" || c[1].Truncated != nil {
			t.Errorf("the short block is %+v", c[1])
		}
	})
}

// An agent may not say what only the host says, nor name types without a vendor.
func TestAgentsSayTheirOwnEventsOnly(t *testing.T) {
	bubble(t, func(r *rig) {
		raw := func(typ frames.EventType) agent.Raw {
			return agent.Raw{Type: typ, Data: json.RawMessage(`{ "x" : 1 }`)}
		}
		sid := r.play(func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			for _, p := range []frames.Payload{
				frames.TurnEnd{},
				frames.UserMessage{},
				frames.ApprovalDecided{},
				frames.PromptQueued{},
				frames.SessionClosed{},
				frames.QuestionAsked{},
				frames.SteeringMessage{},
				frames.AssistantDelta{},
				raw("made/up"), raw("nothing"), raw("/x"), raw("./x"),
				agent.Raw{Type: "acme.x/y", Data: json.RawMessage(`[1]`)},
				agent.Raw{Type: "acme.x/y", Data: json.RawMessage(`{`)},
				nil,
			} {
				if err := t.Emit(ctx, frames.TodoWrite{}, p); err == nil {
					r.t.Errorf("%#v was taken", p)
				}
			}
			return agent.Result{}, t.Emit(ctx, raw("acme.tools/made"))
		})
		r.wantTypes(sid, "turn/start", "user/message", "acme.tools/made", "turn/end")
		if e := r.log(sid)[3]; string(e.Data) != `{ "x" : 1 }` {
			t.Errorf("data %s, want it untouched", e.Data)
		}
	})
}

// Several events of one Emit are stored together or not at all.
func TestEmitIsAllOrNothing(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.play(func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			many := make([]frames.Payload, 257)
			for i := range many {
				many[i] = frames.TodoWrite{}
			}
			if err := t.Emit(ctx, many...); err == nil {
				r.t.Error("257 events were taken at once")
			}
			return agent.Result{}, t.Emit(ctx, many[:256]...)
		})
		if n := len(every[frames.TodoWrite](r, sid)); n != 256 {
			t.Errorf("%d stored, want 256", n)
		}
	})
}

// A turn's methods fail once it is over.
func TestTurnMethodsFailAfterwards(t *testing.T) {
	bubble(t, func(r *rig) {
		var kept agent.Turn
		r.play(func(_ context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			kept = t
			return agent.Result{}, nil
		})
		ctx := r.t.Context()
		_, askErr := kept.Ask(ctx, ask("c", `{}`))
		_, qErr := kept.Question(ctx, frames.Question{Question: "?"})
		_, spawnErr := kept.Spawn(ctx, agent.Spawn{Prompt: []frames.ContentBlock{frames.Text("x")}})
		_, taskErr := kept.Task(ctx, "k", "l")
		_, _, blobErr := kept.Blob(ctx, strings.NewReader("x"))
		for i, err := range []error{kept.Emit(ctx, frames.TodoWrite{}), kept.Text(ctx, 0, "x"), kept.Reasoning(ctx, 0, "x"), kept.Progress(ctx, "c", "x"), askErr, qErr, spawnErr, taskErr, blobErr} {
			if !errors.Is(err, agent.ErrTurnOver) {
				t.Errorf("method %d: %v, want ErrTurnOver", i, err)
			}
		}
	})
}

// More open tools than fit one append are closed all the same.
func TestManyOpenToolsAreClosed(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.play(func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			for i := range 300 {
				if err := t.Emit(ctx, frames.ToolCall{CallID: frames.CallID(strings.Repeat("c", i+1)), Name: "sh"}); err != nil {
					return agent.Result{}, err
				}
			}
			return agent.Result{}, nil
		})
		if n := len(every[frames.ToolResult](r, sid)); n != 300 {
			t.Errorf("%d results, want 300", n)
		}
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCompleted {
			t.Errorf("end %+v", end)
		}
	})
}
