package session_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
)

// What is too large for an event is stored as a preview, cut at a character, and
// the whole is kept as a blob: a call's input, the assistant's words and thoughts.
func TestLargePartsBecomePreviews(t *testing.T) {
	text := strings.Repeat("é\n\"", 200<<10)
	input, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		t.Fatal(err)
	}
	bubble(t, func(r *rig) {
		words := []frames.ContentBlock{frames.Text("short"), frames.Text(text)}
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			return agent.Result{}, t.Emit(ctx,
				frames.ToolCall{CallID: "c1", Name: "sh", Input: input},
				frames.AssistantMessage{Content: words, Blocks: []int{t.NewBlock()}},
				frames.ReasoningMessage{Content: words, Blocks: []int{t.NewBlock()}},
			)
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		for _, e := range r.log(sid) {
			if len(e.Data) > frames.MaxEvent {
				t.Errorf("%s has %d bytes", e.Type, len(e.Data))
			}
		}
		call := last[frames.ToolCall](r, sid)
		var shown string
		if err := json.Unmarshal(call.Input, &shown); err != nil || !strings.HasPrefix(string(input), shown) || shown == "" {
			t.Errorf("the input is shown as %.40s, %v; want the beginning of it", call.Input, err)
		}
		r.wantWhole("the call's input", call.Truncated, string(input))
		for what, blocks := range map[string][]frames.ContentBlock{
			"assistant": last[frames.AssistantMessage](r, sid).Content, "reasoning": last[frames.ReasoningMessage](r, sid).Content,
		} {
			if len(blocks) != 2 || blocks[0].Text != "short" || blocks[0].Truncated != nil {
				t.Errorf("%s: blocks %.100v, want the short one as it was", what, blocks)
				continue
			}
			if b := blocks[1]; !strings.HasPrefix(text, b.Text) || !utf8.ValidString(b.Text) || len(b.Text) < 1000 {
				t.Errorf("%s: preview of %d bytes, want the beginning", what, len(b.Text))
			}
			r.wantWhole(what, blocks[1].Truncated, text)
		}
	})
}

// wantWhole checks that tr names a blob that holds whole.
func (r *rig) wantWhole(what string, tr *frames.Truncated, whole string) {
	r.t.Helper()
	if tr == nil || tr.Bytes != int64(len(whole)) || string(r.pub.blobs[tr.Blob]) != whole {
		r.t.Errorf("%s: truncated %+v, want a blob of all %d bytes", what, tr, len(whole))
	}
}

// What is too large and has no part that could be cut is refused, and says so.
func TestLargeEventWithoutPartsIsRefused(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			err := t.Emit(ctx, agent.Raw{Type: "x.y/z", Data: json.RawMessage(`{"a":"` + strings.Repeat("x", 300<<10) + `"}`)})
			if err == nil || !strings.Contains(err.Error(), "blob") {
				r.t.Errorf("emit: %v, want it refused with what to do", err)
			}
			return agent.Result{}, nil
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		r.wantTypes(sid, "turn/start", "user/message", "turn/end")
	})
}

// A call whose input or words grow when they are written as JSON can be asked for
// all the same.
func TestAnyInputThatFitsCanBeAskedFor(t *testing.T) {
	for name, part := range map[string]string{"markup": "<&>", "control characters": `\u0001`, "quotes": `\"`, "plain": "x", "separators": "\u2028"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				input := `{"a":"` + strings.Repeat(part, 120<<10/len(part)) + `"}`
				long := strings.Repeat("\x01", 20<<10)
				got := make(chan agent.Decision, 1)
				r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
					d, err := t.Ask(ctx, agent.Approval{
						Call: "c", Tool: frames.Tool{Name: long, Kind: long, Title: long}, Input: json.RawMessage(input), Reason: long,
					})
					got <- d
					return agent.Result{}, err
				})
				sid := r.create(session.CreateArgs{})
				r.prompt(sid, "go")
				r.wait()
				as := r.approvals(sid)
				if len(as) != 1 || string(as[0].Input) != input {
					t.Fatalf("%d requests wait, the agent got %d decisions; want one request with the whole input", len(as), len(got))
				}
				if b, err := frames.EncodeFrame(as[0]); err != nil {
					t.Errorf("its card has %d bytes: %v", len(b), err)
				}
				if err := r.answer(sid, as[0].ID, frames.AllowedOnce); err != nil {
					t.Error(err)
				}
				if d := <-got; string(d.Input) != input {
					t.Errorf("what is to run has %d bytes, want the %d that were asked for", len(d.Input), len(input))
				}
			})
		})
	}
}
