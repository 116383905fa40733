package demo_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// Role wide emits a vendor's event, asks for a call with a large input, and says as
// much; a size beyond its bound fails the turn.
func TestWideMakesWhatNoFrameHolds(t *testing.T) {
	var asked agent.Approval
	_, s := open(t, 0, `{"role":"wide","count":300,"size":1000}`, agenttest.Script{
		Approve: func(_ context.Context, _ *agenttest.Session, a agent.Approval) agent.Decision {
			asked = a
			return agent.Decision{Outcome: frames.Rejected, Cause: frames.CauseReply}
		},
	})
	play(t, s, "go")
	if n := len(said(s)); n != 300_000 {
		t.Errorf("it said %d bytes; want 300000", n)
	}
	var input map[string]string
	if err := json.Unmarshal(asked.Input, &input); err != nil || input["text"] != said(s) {
		t.Errorf("it asked for %.80s (%v); want what it says", asked.Input, err)
	}
	if e, ok := s.Events()[0].(agent.Raw); !ok || e.Type != "conform.example/note" || !json.Valid(e.Data) {
		t.Errorf("the first event is %v; want one of a vendor's type", s.Events()[0])
	}
	_, s = open(t, 0, `{"role":"wide","count":100000,"size":65536}`, agenttest.Script{})
	if _, err := s.Prompt(t.Context(), "go"); err == nil {
		t.Error("6 GB were made; want an error")
	}
}
