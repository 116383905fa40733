package acp_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

const born = `{"sessionUpdate":"subagent_update","sessionId":"k1","title":"Look","description":"look around","capabilities":{"cancel":{}},"state":{"state":"running"}}`

func chunk(text string) string {
	return `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + text + `"}}`
}

// kid returns the session of the first subagent.
func kid(t *testing.T, h *agenttest.Host) *agenttest.Session {
	t.Helper()
	all := h.Sessions()
	if len(all) < 2 {
		t.Fatalf("%d sessions; want one of a subagent", len(all))
	}
	return all[1]
}

func openHost(t *testing.T, sc agenttest.Script, d agent.Driver) (*agenttest.Host, *agenttest.Session) {
	t.Helper()
	sc.Cwd = "/src/demo"
	h := agenttest.New(sc, d)
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		shut(t, d)
	})
	s, err := h.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return h, s
}

// A subagent has a session of its own, with what it says, asks and does; the parent's
// turn lasts until it has ended, so that what it asks can be answered.
func TestASubagentIsASession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var asked []frames.SessionID
		h, s := openHost(t, agenttest.Script{
			Approve: func(_ context.Context, s *agenttest.Session, _ agent.Approval) agent.Decision {
				asked = append(asked, s.Info.ID)
				return agent.Decision{Outcome: frames.AllowedOnce}
			},
		}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.update(born)
				f.updateOf("k1", chunk("inner"))
				f.end(m, "end_turn") // quirk 17: the subagent goes on
				<-time.After(time.Minute)
				f.ask("0", "k1", "c1")
				f.answered("0")
				f.updateOf("k1", `{"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"completed"}`)
				f.update(`{"sessionUpdate":"subagent_update","sessionId":"k1","state":{"state":"idle","stopReason":"end_turn"}}`)
			})
		}))
		prompt(t, s)
		k := kid(t, h)
		if len(asked) != 1 || asked[0] != k.Info.ID {
			t.Errorf("asked %v; want the subagent's session %s", asked, k.Info.ID)
		}
		if got := agenttest.Last[frames.AssistantMessage](k); len(got.Content) != 1 || got.Content[0].Text != "inner" {
			t.Errorf("the subagent said %+v; want inner", got)
		}
		if r := agenttest.Last[frames.ToolResult](k); r.IsError || r.CallID != "c1" {
			t.Errorf("its call ended %+v; want completed", r)
		}
		if got := agenttest.Last[frames.AgentCompleted](s); got.Status != "completed" {
			t.Errorf("agent/completed = %+v; want completed", got)
		}
		if _, err := k.Prompt(t.Context(), "hi"); err == nil || !strings.Contains(err.Error(), "prompt its parent") {
			t.Errorf("a prompt for the subagent = %v; want where to go instead", err)
		}
	})
}

// Quirk 18: a cancelled turn cancels its subagents: what they ask is answered, and they
// are told, as far as they take that.
func TestCancelReachesSubagents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var told []string
		h, s := openHost(t, agenttest.Script{Approve: wait}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.update(born)
				f.ask("0", "k1", "c1")
				synctest.Wait()
				cancel()
				for len(told) < 3 {
					got, ok := f.recv()
					if !ok {
						return
					}
					if got.Method == "" {
						told = append(told, "answer "+field(got.Result, "outcome", "outcome"))
					} else {
						told = append(told, got.Method+" "+field(got.Params, "sessionId"))
					}
				}
				f.end(m, "cancelled")
			})
		}))
		if res, err := s.Prompt(ctx, "go"); err != nil || res.Reason != frames.TurnCancelled {
			t.Errorf("Prompt = %+v, %v; want cancelled", res, err)
		}
		all := strings.Join(told, ", ")
		for _, want := range []string{"answer cancelled", "session/cancel s1", "session/cancel k1"} {
			if !strings.Contains(all, want) {
				t.Errorf("the agent was told %s; want %s too", all, want)
			}
		}
		if d := agenttest.Last[frames.ApprovalDecided](kid(t, h)); d.Outcome != frames.Cancelled {
			t.Errorf("decided %+v; want cancelled", d)
		}
	})
}

// A subagent's session that is closed alone cancels the subagent alone: what it asks is
// answered, it is told, and its parent's turn goes on.
func TestASubagentIsCancelledAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told []string
		asked := make(chan struct{})
		h, s := openHost(t, agenttest.Script{Approve: wait}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.update(born)
				f.ask("0", "k1", "c1")
				f.ask("1", "s1", "c2")
				synctest.Wait()
				close(asked)
				for len(told) < 2 {
					got, _ := f.recv()
					told = append(told, got.Method+string(got.ID)+" "+field(got.Params, "sessionId")+field(got.Result, "outcome", "outcome"))
				}
				f.line(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`)
				f.answered("1")
				f.say("on")
				f.end(m, "end_turn")
			})
		}))
		var wg sync.WaitGroup
		wg.Go(func() {
			<-asked
			if err := kid(t, h).Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
		if res := prompt(t, s); res.Reason != frames.TurnCompleted {
			t.Errorf("the parent's turn ended %+v; want completed", res)
		}
		wg.Wait()
		if got := strings.Join(told, ", "); got != "0 cancelled, session/cancel k1" {
			t.Errorf("the agent was told %s; want the subagent's answer, then its cancellation", got)
		}
	})
}

// Where the connection is lost the subagent's outcome is not known: its turn fails.
func TestALostSubagentHasNoOutcome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, s := openHost(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(message) { f.update(born); synctest.Wait(); panicked(f) })
		}))
		if _, err := s.Prompt(t.Context(), "go"); err == nil {
			t.Error("the parent's turn ended well; want an error")
		}
		kid(t, h)
		if got := agenttest.Last[frames.AgentCompleted](s); got.Status != "error" && got.Status != "cancelled" {
			t.Errorf("agent/completed = %+v; want no good end", got)
		}
	})
}

// The older forms in which agents tell of subagents are understood too.
func TestOlderFormsOfSubagents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, s := openHost(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.update(`{"sessionUpdate":"subagent_spawned","subagentSessionId":"k1","name":"Look","task":"look"}`)
				f.updateOf("k1", chunk("inner"))
				f.update(`{"sessionUpdate":"subagent_state_update","subagentSessionId":"k1","state":"failed"}`)
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
		if k := kid(t, h); k.Title != "Look" || len(rawOf(s, "subagent_spawned")) != 1 {
			t.Errorf("title %q, kept %v", k.Title, rawOf(s, "subagent_spawned"))
		}
		if got := agenttest.Last[frames.AgentCompleted](s); got.Status != "error" {
			t.Errorf("agent/completed = %+v; want error", got)
		}
	})
}

// A subagent of a subagent is its child.
func TestSubagentsNest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, s := openHost(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.update(born)
				f.updateOf("k1", strings.ReplaceAll(born, "k1", "k2"))
				f.updateOf("k2", chunk("deep"))
				f.updateOf("k1", `{"sessionUpdate":"subagent_update","sessionId":"k2","state":{"state":"idle"}}`)
				f.update(`{"sessionUpdate":"subagent_update","sessionId":"k1","state":{"state":"idle"}}`)
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
		all := h.Sessions()
		if len(all) != 3 || all[2].Parent != all[1] || agenttest.Last[frames.AssistantMessage](all[2]).Content[0].Text != "deep" {
			t.Errorf("%d sessions; want a chain of three", len(all))
		}
	})
}
