package conform_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// widened is a driver with the role wide beside its own.
type widened struct{ agent.Driver }

// Open returns the agent that the config asks for.
func (d widened) Open(ctx context.Context, s agent.Session) (agent.Agent, error) {
	var c struct {
		Role        string
		Count, Size int
	}
	if json.Unmarshal(s.Config, &c) == nil && c.Role == "wide" {
		return wide{c.Count * c.Size}, nil
	}
	return d.Driver.Open(ctx, s)
}

// wide makes events that are too large, and one of a vendor's.
type wide struct{ size int }

const note = `{"text":"é \"x\"","n":1.50,"deep":{"a":[1,null,true,"\u2028"]},"seq":7,"type":"turn/end"}`

// Prompt plays one turn.
func (w wide) Prompt(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
	whole := strings.Repeat("0123456789abcde\n", w.size/16+1)[:w.size]
	input, err := json.Marshal(map[string]string{"text": whole})
	if err != nil {
		return agent.Result{}, err
	}
	call := frames.CallID(fmt.Sprintf("%s-1", t.ID()))
	tool := frames.Tool{Name: "wide", Kind: "other", Title: "Something large"}
	err = t.Emit(ctx,
		agent.Raw{Type: "conform.example/note", Data: json.RawMessage(note)},
		frames.ToolCall{CallID: call, Name: tool.Name, Kind: tool.Kind, Title: tool.Title, Input: input})
	if err != nil {
		return agent.Result{}, err
	}
	d, err := t.Ask(ctx, agent.Approval{Call: call, Tool: tool, Input: input})
	if err != nil {
		return agent.Result{}, err
	}
	return agent.Result{}, t.Emit(ctx,
		frames.ToolResult{CallID: call, IsError: !d.Allowed(), Content: []frames.ContentBlock{frames.Text(whole)}},
		frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text(whole)}, Blocks: []int{t.NewBlock()}})
}

// Steer takes nothing.
func (wide) Steer(context.Context, agent.Prompt) error { return agent.ErrNotTaken }

// Close has nothing to end.
func (wide) Close(context.Context) error { return nil }
