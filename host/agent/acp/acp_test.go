package acp_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// suiteAgent does what the prompt says: "long" streams until it is cancelled,
// "gated" asks and then acts, anything else is answered.
func suiteAgent(ran *bool) func(*fake) {
	return func(f *fake) {
		f.serve(func(m message) {
			f.say("hello")
			switch {
			case strings.Contains(string(m.Params), "long"):
				f.until("session/cancel")
				f.end(m, "cancelled")
			case strings.Contains(string(m.Params), "gated"):
				f.ask("0", "s1", "c1")
				if a, _ := f.answered("0"); strings.Contains(string(a.Result), `"once"`) {
					*ran = true
				}
				f.end(m, "end_turn")
			default:
				f.end(m, "end_turn")
			}
		})
	}
}

// The driver keeps what every driver promises its host.
func TestDriverKeepsTheSeam(t *testing.T) {
	var ran bool
	agenttest.Run(t, agenttest.Suite{
		Driver: driver(t, acp.Options{ApprovalMode: "ask"}, suiteAgent(&ran)),
		Script: agenttest.Script{Cwd: "/src/demo"},
		Short:  "short", Long: "long", Gated: "gated", Bubble: true,
		Ran: func(*agenttest.Host) bool { return ran },
	})
}

// A turn goes from the prompt to the stored message, and Close ends the agent.
func TestTurnBecomesEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.update(`{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm"}}`)
				f.say("Hel")
				f.say("lo")
				f.result(m, `{"stopReason":"end_turn","usage":{"inputTokens":7,"outputTokens":2}}`)
			})
		}))
		res, err := s.Prompt(t.Context(), "hi")
		if err != nil || res.Reason != frames.TurnCompleted || res.Usage == nil || res.Usage.InputTokens != 7 {
			t.Fatalf("Prompt = %+v, %v; want completed, 7 tokens in", res, err)
		}
		want := []frames.Payload{
			frames.ReasoningMessage{Content: []frames.ContentBlock{frames.Text("hm")}, Blocks: []int{0}},
			frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text("Hello")}, Blocks: []int{1}},
		}
		wantEvents(t, s, want...)
		if s.Text(1) != "Hello" {
			t.Errorf("streamed %q; want Hello", s.Text(1))
		}
	})
}

// An agent that cannot start says why, with the end of its log.
func TestStartFailureShowsTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := agenttest.New(agenttest.Script{Cwd: "/src/demo"}, driver(t, acp.Options{}, func(f *fake) {
			_, _ = f.log.Write([]byte("\x1b[31mno key\x1b[0m\n"))
		}))
		_, err := h.Open(context.Background(), nil)
		if err == nil || !strings.Contains(err.Error(), "no key") || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("Open = %v; want the end of the log in plain text", err)
		}
	})
}

// wantEvents compares the events that are not vendor types.
func wantEvents(t *testing.T, s *agenttest.Session, want ...frames.Payload) {
	t.Helper()
	var got []frames.Payload
	for _, e := range s.Events() {
		if _, raw := e.(agent.Raw); !raw {
			got = append(got, e)
		}
	}
	if g, w := show(got), show(want); g != w {
		t.Errorf("events:\n%s\nwant:\n%s", g, w)
	}
}
