package acp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// Quirk 2: the approval mode is set on every recorded agent that is loaded or resumed,
// before it is prompted, whatever mode it says it is in.
func TestTheModeIsSetOnRecordedAgents(t *testing.T) {
	for name, mode := range map[string]string{
		"claude-resume": "default", "claude-load-after": "default", "codex-resume": "read-only", "codex-load-after": "read-only",
		"codex-subagent-load-after-native": "read-only", "claude-subagent-load-after-native": "default",
	} {
		t.Run(name, func(t *testing.T) {
			rec := readRecording(t, "testdata/replay/"+name+".jsonl")
			rec.setsMode(mode)
			synctest.Test(t, rec.play)
		})
	}
}

// setsMode makes the recorded host set a mode once the session is opened.
func (rec *recording) setsMode(mode string) {
	var out []recorded
	opened := ""
	for _, r := range rec.lines {
		if opened == "done" && r.host() && r.Msg.Method != "" && r.Msg.ID != nil || opened == "done" && !r.host() && r.Msg.Method == "" {
			r.Msg.ID = fmt.Append(nil, string(r.Msg.ID[0]+1)) // ids below 10
		}
		out = append(out, r)
		switch {
		case r.Msg.Method == "session/load" || r.Msg.Method == "session/resume":
			opened = string(r.Msg.ID)
			rec.main = field(r.Msg.Params, "sessionId")
		case !r.host() && r.Msg.Method == "" && string(r.Msg.ID) == opened:
			params := fmt.Sprintf(`{"sessionId":%q,"modeId":%q}`, rec.main, mode)
			out = append(out,
				recorded{"host>agent", message{ID: []byte("3"), Method: "session/set_mode", Params: []byte(params)}},
				recorded{"agent>host", message{ID: []byte("3"), Result: []byte("{}")}})
			opened = "done"
		}
	}
	rec.lines = out
}

// Quirk 6: whatever is answered once the turn is cancelled, the agent hears that it was
// cancelled, and nothing else.
func TestALateAllowanceIsNotSent(t *testing.T) {
	late := func(ctx context.Context, _ *agenttest.Session, _ agent.Approval) agent.Decision {
		<-ctx.Done()
		return agent.Decision{Outcome: frames.AllowedOnce, Cause: frames.CauseReply, Input: json.RawMessage(`{}`)}
	}
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var answers []string
		s := open(t, agenttest.Script{Approve: late}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.ask("0", "s1", "c1")
				synctest.Wait()
				cancel()
				for {
					got, ok := f.recv()
					if !ok || got.Method == "session/cancel" {
						break
					}
					answers = append(answers, string(got.Result))
				}
				f.update(`{"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"completed","content":[{"type":"content","content":{"type":"text","text":"Command cancelled by user."}}]}`)
				f.end(m, "cancelled")
			})
		}))
		if _, err := s.Prompt(ctx, "go"); err != nil {
			t.Error(err)
		}
		if len(answers) != 1 || !strings.Contains(answers[0], `"cancelled"`) {
			t.Errorf("answered %v; want cancelled, once", answers)
		}
		if d := agenttest.Last[frames.ApprovalDecided](s); d.Outcome != frames.Cancelled || count[frames.ToolResult](s) != 1 {
			t.Errorf("decided %+v with %d results; want a cancelled request, and one result", d, count[frames.ToolResult](s))
		}
	})
}

// Quirk 7: an agent that fails one call because another was rejected, and still asks for
// it, gets an answer; each call has one end, and one that says nothing more is closed.
func TestARejectionHasOneEndForEachCall(t *testing.T) {
	choose := func(_ context.Context, _ *agenttest.Session, a agent.Approval) agent.Decision {
		if a.Call == "c1" {
			return agent.Decision{Outcome: frames.Rejected, Cause: frames.CauseReply}
		}
		return agent.Decision{Outcome: frames.AllowedOnce, Cause: frames.CauseReply}
	}
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{Approve: choose}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				for _, id := range []string{"c1", "c2", "c3"} {
					f.update(`{"sessionUpdate":"tool_call","toolCallId":"` + id + `","title":"x","status":"in_progress"}`)
				}
				f.ask("0", "s1", "c1")
				f.ask("1", "s1", "c3")
				f.answered("0")
				f.answered("1")
				f.update(`{"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"failed"}`)
				f.update(`{"sessionUpdate":"tool_call_update","toolCallId":"c2","status":"failed"}`)
				f.ask("2", "s1", "c2")
				if a, _ := f.answered("2"); field(a.Result, "outcome", "optionId") != "once" {
					t.Errorf("answered %s; want the person's answer", a.Result)
				}
				f.end(m, "cancelled")
			})
		}))
		if res := prompt(t, s); res.Reason != frames.TurnCompleted {
			t.Errorf("the turn ended %+v; want completed", res)
		}
		ends := map[frames.CallID]string{}
		for _, e := range s.Events() {
			if r, ok := e.(frames.ToolResult); ok {
				ends[r.CallID] += r.ErrorCode + ";"
			}
		}
		if fmt.Sprint(ends) != "map[c1:failed; c2:failed; c3:unknown;]" || count[frames.ToolCall](s) != 3 {
			t.Errorf("%d calls ended %v; want each once", count[frames.ToolCall](s), ends)
		}
	})
}
