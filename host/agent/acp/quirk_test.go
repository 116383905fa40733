package acp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// bubble runs f in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// reject is a person who rejects everything.
func reject(context.Context, *agenttest.Session, agent.Approval) agent.Decision {
	return agent.Decision{Outcome: frames.Rejected, Cause: frames.CauseReply}
}

// always is a person who allows everything for always.
func always(context.Context, *agenttest.Session, agent.Approval) agent.Decision {
	return agent.Decision{Outcome: frames.AllowedAlways, Cause: frames.CauseReply}
}

// wait is a person who never answers.
func wait(ctx context.Context, _ *agenttest.Session, _ agent.Approval) agent.Decision {
	<-ctx.Done()
	return agent.Decision{Outcome: frames.Cancelled, Cause: frames.CauseAbort}
}

// count returns how many events of type P there are.
func count[P frames.Payload](s *agenttest.Session) int {
	n := 0
	for _, e := range s.Events() {
		if _, ok := e.(P); ok {
			n++
		}
	}
	return n
}

// prompt runs a turn that must not fail.
func prompt(t *testing.T, s *agenttest.Session) agent.Result {
	t.Helper()
	res, err := s.Prompt(t.Context(), "go")
	if err != nil {
		t.Fatalf("Prompt = %v; want a turn that ends", err)
	}
	return res
}

// Quirk 1: no prompt is sent before the agent acknowledged the approval mode.
func TestNoPromptBeforeTheModeIsAcknowledged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var order []string
		s := open(t, agenttest.Script{}, driver(t, acp.Options{ApprovalMode: "ask"}, func(f *fake) {
			m, _ := f.until("initialize")
			f.result(m, `{"protocolVersion":1}`)
			m, _ = f.until("session/new")
			f.result(m, `{"sessionId":"s1",`+modes+`}`)
			m, _ = f.until("session/set_mode")
			order = append(order, m.Method+" "+field(m.Params, "modeId"))
			<-time.After(time.Minute)
			order = append(order, "acknowledged")
			f.result(m, `{}`)
			f.serve(func(m message) { order = append(order, m.Method); f.end(m, "end_turn") })
		}))
		prompt(t, s)
		if got := strings.Join(order, ", "); got != "session/set_mode ask, acknowledged, session/prompt" {
			t.Errorf("the order was %s", got)
		}
	})
}

// Quirk 1: an agent that refuses its approval mode, or has none of that name, is not
// used.
func TestAnAgentWithoutTheModeIsNotUsed(t *testing.T) {
	for name, c := range map[string]struct{ offered, answer string }{
		"refused":   {modes, `"error":{"code":-32602,"message":"no"}`},
		"unknown":   {`"modes":{"currentModeId":"auto","availableModes":[{"id":"auto"}]}`, ""},
		"no modes":  {`"x":1`, ""},
		"an option": {`"configOptions":[{"id":"m","category":"mode","type":"select","currentValue":"auto","options":[{"value":"ask"}]}]`, `"error":{"code":1,"message":"no"}`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				prompted := false
				d := driver(t, acp.Options{ApprovalMode: "ask"}, func(f *fake) {
					for {
						m, ok := f.recv()
						switch {
						case !ok:
							return
						case m.Method == "initialize":
							f.result(m, `{"protocolVersion":1}`)
						case m.Method == "session/new":
							f.result(m, `{"sessionId":"s1",`+c.offered+`}`)
						case m.Method == "session/prompt":
							prompted = true
						case m.ID != nil:
							f.line(`{"jsonrpc":"2.0","id":%s,%s}`, m.ID, c.answer)
						}
					}
				})
				h := agenttest.New(agenttest.Script{Cwd: "/src/demo"}, d)
				defer shut(t, d)
				defer h.Close()
				if _, err := h.Open(t.Context(), nil); err == nil || !strings.Contains(err.Error(), `"ask"`) {
					t.Errorf("Open = %v; want an error that names the mode", err)
				}
				if prompted {
					t.Error("it was prompted")
				}
			})
		})
	}
}

// Quirk 2: the mode is set again after resume, and after load.
func TestTheModeIsSetAfterResumeAndLoad(t *testing.T) {
	for _, caps := range []string{`"sessionCapabilities":{"resume":{}}`, `"loadSession":true`} {
		bubble(t, func(t *testing.T) {
			var order []string
			d := withPast{driver(t, acp.Options{ApprovalMode: "ask"}, func(f *fake) {
				for {
					m, ok := f.recv()
					if !ok {
						return
					}
					order = append(order, m.Method)
					switch m.Method {
					case "initialize":
						f.result(m, `{"protocolVersion":1,"agentCapabilities":{`+caps+`}}`)
					case "session/prompt":
						f.end(m, "end_turn")
					default:
						f.result(m, `{`+modes+`}`)
					}
				}
			}), "s1"}
			prompt(t, open(t, agenttest.Script{}, d))
			if len(order) != 4 || order[2] != "session/set_mode" || order[3] != "session/prompt" {
				t.Errorf("the calls were %v; want set_mode before the prompt", order)
			}
		})
	}
}

// Quirk 1: an agent that leaves its approval mode by itself is put back.
func TestAModeThatDriftsIsPutBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		sets := 0
		s := open(t, agenttest.Script{}, driver(t, acp.Options{ApprovalMode: "ask"}, func(f *fake) {
			f.serve(func(m message) {
				f.update(`{"sessionUpdate":"current_mode_update","currentModeId":"auto"}`)
				set, _ := f.until("session/set_mode")
				if field(set.Params, "modeId") == "ask" {
					sets++
				}
				f.result(set, `{}`)
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
		if sets != 1 || len(rawOf(s, "current_mode_update")) != 1 {
			t.Errorf("put back %d times, told %v; want once each", sets, rawOf(s, "current_mode_update"))
		}
	})
}

// Quirk 1: an agent that cannot be put back is killed, and its turn fails.
func TestAModeThatCannotBePutBackEndsTheAgent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{ApprovalMode: "ask"}, func(f *fake) {
			f.serve(func(message) {
				f.update(`{"sessionUpdate":"current_mode_update","currentModeId":"auto"}`)
				set, _ := f.until("session/set_mode")
				f.line(`{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"never"}}`, set.ID)
				<-f.killed
			})
		}))
		began := time.Now()
		_, err := s.Prompt(t.Context(), "go")
		if err == nil || !strings.Contains(err.Error(), "mode") || len(s.Failures()) == 0 {
			t.Errorf("Prompt = %v, failures %v; want the mode in both", err, s.Failures())
		}
		if d := time.Since(began); d > 0 {
			t.Errorf("it was killed after %v; want at once", d)
		}
	})
}

// Quirks 3 and 9: requests are told apart by their ids as they are written: 0, text,
// negative, fractions; several at once.
func TestIdsAreKeptAsTheyAreWritten(t *testing.T) {
	ids := []string{"0", "1", `"0"`, `"a b"`, "-5", "1.5", "18446744073709551616"}
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				for i, id := range ids {
					f.ask(id, "s1", fmt.Sprint("c", i))
				}
				for _, id := range ids {
					if a, ok := f.answered(id); !ok || field(a.Result, "outcome", "optionId") != "once" {
						t.Errorf("the answer to %s is %s; want once", id, a.Result)
					}
				}
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
		if n := count[frames.ApprovalAsked](s); n != len(ids) {
			t.Errorf("%d approvals; want %d", n, len(ids))
		}
	})
}

// Quirk 4: a request that the agent withdraws is settled as cancelled, and answered.
func TestAWithdrawnRequestIsSettled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{Approve: wait}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.ask("0", "s1", "c1")
				synctest.Wait()
				f.line(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":0}}`)
				if a, _ := f.answered("0"); !cancelled(a) {
					t.Errorf("the answer is %s; want cancelled", a.Result)
				}
				f.end(m, "end_turn")
			})
		}))
		res := prompt(t, s)
		if d := agenttest.Last[frames.ApprovalDecided](s); d.Outcome != frames.Cancelled || res.Reason != frames.TurnCompleted {
			t.Errorf("decided %+v, turn %+v; want a cancelled request in a completed turn", d, res)
		}
	})
}

// Quirk 5: at a cancellation every open request is answered before session/cancel.
func TestCancelAnswersRequestsFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var order []string
		s := open(t, agenttest.Script{Approve: wait}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(p message) {
				f.ask("0", "s1", "c1")
				f.line(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"sessionId":"s1","mode":"url","message":"m","url":"https://example.com"}}`)
				synctest.Wait()
				cancel()
				for range 3 {
					m, _ := f.recv()
					order = append(order, m.Method+string(m.ID))
				}
				f.end(p, "cancelled")
			})
		}))
		if res, err := s.Prompt(ctx, "go"); err != nil || res.Reason != frames.TurnCancelled {
			t.Errorf("Prompt = %+v, %v; want cancelled", res, err)
		}
		slices.Sort(order[:2])
		if got := strings.Join(order, " "); got != "0 1 session/cancel" {
			t.Errorf("the host sent %s; want both answers, then session/cancel", got)
		}
	})
}

// Quirks 7, 10 and 25: calls that the agent leaves open are closed at the turn's
// end; one that only a permission request names is announced by that.
func TestOpenCallsAreClosedAtTheTurnsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.update(`{"sessionUpdate":"tool_call","toolCallId":"c0","title":"x","status":"in_progress"}`)
				f.ask("0", "s1", "c1")
				f.answered("0")
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
		if n := count[frames.ToolCall](s); n != 2 || count[frames.ToolResult](s) != 2 {
			t.Fatalf("events:\n%s\nwant two calls with results", show(s.Events()))
		}
		for _, e := range s.Events() {
			if r, ok := e.(frames.ToolResult); ok && (!r.IsError || r.ErrorCode != "unknown") {
				t.Errorf("result %+v; want an unknown end", r)
			}
		}
	})
}

// Quirk 10: a rejected call that the agent never announced is closed at once.
func TestARejectedCallIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{Approve: reject}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.ask("0", "s1", "c1")
				if a, _ := f.answered("0"); field(a.Result, "outcome", "optionId") != "no" {
					t.Errorf("the answer is %s; want the reject option", a.Result)
				}
				synctest.Wait()
				f.say("on")
				f.end(m, "cancelled") // quirk 8: some call a rejection so
			})
		}))
		if res := prompt(t, s); res.Reason != frames.TurnCompleted {
			t.Errorf("the turn ended %+v; want completed: nobody cancelled it", res)
		}
		want := []frames.EventType{"tool/call", "acp.agentclientprotocol.com/permission", "approval/asked", "approval/decided", "tool/result", "assistant/message"}
		if got := s.Types()[1:]; !slices.Equal(got, want) {
			t.Errorf("events %v; want %v", got, want)
		}
		if r := agenttest.Last[frames.ToolResult](s); r.ErrorCode != "rejected" {
			t.Errorf("the result is %+v; want rejected", r)
		}
	})
}

// Quirk 31: an answer is mapped by kind. For always picks what allows once; where
// nothing of the kind is offered the answer is cancelled.
func TestAnswersAreMappedByKind(t *testing.T) {
	for name, c := range map[string]struct {
		options, want string
		who           func(context.Context, *agenttest.Session, agent.Approval) agent.Decision
	}{
		"always picks once":        {options, "once", always},
		"only always is offered":   {`[{"optionId":"a","kind":"allow_always"}]`, "", always},
		"reject":                   {options, "no", reject},
		"only reject for always":   {`[{"optionId":"r","kind":"reject_always"},{"optionId":"y","kind":"allow_once"}]`, "", reject},
		"a misleading id and name": {`[{"optionId":"reject","name":"No","kind":"allow_once"},{"optionId":"allow","name":"Yes","kind":"reject_once"}]`, "allow", reject},
		"no options":               {`[]`, "", always},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := open(t, agenttest.Script{Approve: c.who}, driver(t, acp.Options{}, func(f *fake) {
					f.serve(func(m message) {
						f.line(`{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s1","toolCall":{"toolCallId":"c"},"options":%s}}`, c.options)
						a, _ := f.answered("0")
						if got := field(a.Result, "outcome", "optionId"); got != c.want {
							t.Errorf("picked %q; want %q", got, c.want)
						}
						if c.want == "" && !cancelled(a) {
							t.Errorf("the answer is %s; want cancelled", a.Result)
						}
						f.end(m, "end_turn")
					})
				}))
				prompt(t, s)
			})
		})
	}
}

// What a person is shown is the agent's raw input, or all that the request shows
// where there is none, or where it shows a change beside it.
func TestTheWholeRequestIsShown(t *testing.T) {
	for call, want := range map[string]string{
		`{"toolCallId":"c","title":"ls","rawInput":{"command":"ls"}}`:                       `{"command":"ls"}`,
		`{"toolCallId":"c","title":"ls","kind":"execute","rawInput":{}}`:                    `{"kind":"execute","rawInput":{},"title":"ls"}`,
		`{"toolCallId":"c","rawInput":{"f":"x"},"content":[{"type":"diff","newText":"n"}]}`: `{"content":[{"type":"diff","newText":"n"}],"rawInput":{"f":"x"}}`,
	} {
		bubble(t, func(t *testing.T) {
			s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
				f.serve(func(m message) {
					f.line(`{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s1","toolCall":%s,"options":[{"optionId":"y","name":"Yes","kind":"allow_once"}]}}`, call)
					f.answered("0")
					f.end(m, "end_turn")
				})
			}))
			prompt(t, s)
			if got := string(agenttest.Last[frames.ApprovalAsked](s).Input); got != want {
				t.Errorf("shown %s; want %s", got, want)
			}
		})
	}
}

// Quirks 12 and 13: what is not offered is refused, never left open; unknown
// notifications are kept.
func TestUnknownMessagesAreRefusedOrKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.line(`{"jsonrpc":"2.0","method":"_auth/status_update","params":{"kind":"key"}}`) // before anything else
			f.serve(func(m message) {
				for id, method := range []string{"fs/write_text_file", "terminal/create", "craft/x", "_vendor/y"} {
					f.line(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{}}`, id, method)
					if a, _ := f.answered(fmt.Sprint(id)); field(a.Error, "code") != "-32601" {
						t.Errorf("%s was answered %s%s; want -32601", method, a.Result, a.Error)
					}
				}
				f.line(`{"jsonrpc":"2.0","id":9,"method":"session/request_permission","params":[]}`)
				if a, _ := f.answered("9"); field(a.Error, "code") != "-32602" {
					t.Errorf("bad params were answered %s; want -32602", a.Error)
				}
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
		if got := rawOf(s, "notification"); len(got) == 0 || got[0] != `{"method":"_auth/status_update","params":{"kind":"key"}}` {
			t.Errorf("kept %v; want the notification", got)
		}
	})
}

// Quirk 14: updates that come before the answer that names the session are its own,
// and what is repeated is stored once.
func TestEarlyAndRepeatedUpdates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const list = `{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"plan","description":"d","input":null}]}`
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			m, _ := f.until("initialize")
			f.result(m, `{"protocolVersion":1}`)
			m, _ = f.until("session/new")
			f.update(list)
			f.result(m, `{"sessionId":"s1"}`)
			f.serve(func(m message) { f.update(list); f.update(list); f.end(m, "end_turn") })
		}))
		prompt(t, s)
		if n := count[frames.CommandAvailable](s); n != 1 || len(rawOf(s, "available_commands_update")) != 1 {
			t.Errorf("events:\n%s\nwant the commands once, and once as they were", show(s.Events()))
		}
	})
}

// Quirks 15 and 16: what a load replays is dropped, also what comes after its answer;
// what comes later counts, and so does what says how things are now.
func TestReplayIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := withPast{driver(t, acp.Options{}, func(f *fake) {
			m, _ := f.until("initialize")
			f.result(m, `{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}`)
			m, _ = f.until("session/load")
			f.say("old 1")
			f.update(`{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"plan"}]}`)
			f.update(`{"sessionUpdate":"usage_update","used":3,"size":9}`)
			f.update(`{"sessionUpdate":"plan","entries":[]}`)
			f.result(m, `{}`)
			for range 5 {
				<-time.After(900 * time.Millisecond)
				f.update(`{"sessionUpdate":"tool_call","toolCallId":"c","status":"completed"}`)
				f.say("old 2")
			}
			f.serve(func(m message) { f.say("new"); f.end(m, "end_turn") })
		}), "s1"}
		s := open(t, agenttest.Script{}, d)
		prompt(t, s)
		wantEvents(t, s,
			frames.CommandAvailable{Commands: []frames.Command{{Name: "plan"}}},
			frames.UsageUpdated{Usage: frames.Usage{ContextTokens: 3, ContextWindow: 9}},
			frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text("new")}, Blocks: []int{0}})
	})
}

// Quirk 19: a silent agent is reported, and cancelled at last; time in which a
// person is asked does not count.
func TestASilentAgentIsCancelledAtLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		late := func(context.Context, *agenttest.Session, agent.Approval) agent.Decision {
			<-time.After(3 * time.Hour)
			return agent.Decision{Outcome: frames.AllowedOnce}
		}
		s := open(t, agenttest.Script{Approve: late}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.ask("0", "s1", "c1")
				f.answered("0")
				f.until("session/cancel")
				f.end(m, "cancelled")
			})
		}))
		began := time.Now()
		_, err := s.Prompt(t.Context(), "go")
		if d := time.Since(began); err == nil || d < 4*time.Hour || d > 4*time.Hour+10*time.Minute {
			t.Errorf("Prompt = %v after %v; want an error an hour after the answer", err, d)
		}
		if n := count[frames.ErrorReported](s); n != 1 {
			t.Errorf("%d reports of silence; want 1", n)
		}
	})
}

// Quirk 21: an error of any form ends the turn with its text.
func TestErrorsOfAnyForm(t *testing.T) {
	for _, fault := range []string{
		`{"code":400,"message":"bad thing"}`, `"bad thing"`, `{"code":"E1","message":"bad thing"}`,
		`{"message":"bad thing"}`, `{"code":-32603.0,"message":"bad thing","data":{"x":[1]}}`, `{"error":"bad thing"}`,
	} {
		bubble(t, func(t *testing.T) {
			s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
				f.serve(func(m message) { f.line(`{"id":"%s","error":%s}`, m.ID, fault) })
			}))
			if _, err := s.Prompt(t.Context(), "go"); err == nil || !strings.Contains(err.Error(), "bad thing") {
				t.Errorf("Prompt = %v with the error %s; want its text", err, fault)
			}
		})
	}
}

// Quirk 22: a session that the agent does not have any more is replaced by a new one,
// which is told what was said.
func TestALostSessionIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told string
		d := withLog{withPast{driver(t, acp.Options{}, func(f *fake) {
			m, _ := f.until("initialize")
			f.result(m, `{"protocolVersion":1,"agentCapabilities":{"sessionCapabilities":{"resume":{}}}}`)
			m, _ = f.until("session/resume")
			f.line(`{"id":%s,"error":{"code":-32603,"message":"gone"}}`, m.ID)
			f.serve(func(m message) { told += string(m.Params); f.end(m, "end_turn") })
		}), "old"}, []frames.Event{
			{Seq: 2, Type: "user/message", Data: json.RawMessage(`{"content":[{"type":"text","text":"my name is Ada"}]}`)},
		}}
		s := open(t, agenttest.Script{}, d)
		prompt(t, s)
		if !strings.Contains(told, "my name is Ada") || !strings.Contains(told, `"text":"go"`) {
			t.Errorf("the new session was told %s; want what was said, and the prompt", told)
		}
		if got := rawOf(s, "session"); len(got) != 1 || field([]byte(got[0]), "sessionId") != "s1" {
			t.Errorf("noted %v; want the new session", got)
		}
	})
}

// withLog adds events to the log that a session begins with.
type withLog struct {
	agent.Driver
	more []frames.Event
}

func (d withLog) Open(ctx context.Context, s agent.Session) (agent.Agent, error) {
	past, ok := d.Driver.(withPast)
	if !ok {
		return nil, errors.New("want a driver with a past")
	}
	return past.openWith(ctx, s, d.more)
}

// An agent cannot pass a call of its own off as a tool of the host's, and what it calls
// the kind of a call is not taken for the name of a tool; nor is one of several names.
func TestAnAgentNamesNoToolOfTheHosts(t *testing.T) {
	for call, want := range map[string]string{
		`"name":"muxhost.spawn_subagent"`:                           "agent:muxhost.spawn_subagent false",
		`"kind":"muxhost.spawn_subagent"`:                           "agent:muxhost.spawn_subagent true",
		`"_meta":{"x":{"toolName":"muxhost.spawn_subagent"}}`:       "agent:muxhost.spawn_subagent false",
		`"_meta":{"x":{"toolName":"Read"}},"kind":"execute"`:        "Read false",
		`"_meta":{"x":{"toolName":"Read"},"y":{"toolName":"Bash"}}`: "tool true",
		`"name":"Bash","_meta":{"x":{"toolName":"Bash"}}`:           "Bash false",
		`"kind":"execute"`: "execute true",
		`"title":"ls"`:     "tool true",
	} {
		bubble(t, func(t *testing.T) {
			var got string
			script := agenttest.Script{Approve: func(_ context.Context, _ *agenttest.Session, a agent.Approval) agent.Decision {
				got = fmt.Sprintf("%s %t", a.Tool.Name, a.KindOnly)
				return agent.Decision{Outcome: frames.Rejected, Cause: frames.CauseReply}
			}}
			s := open(t, script, driver(t, acp.Options{}, func(f *fake) {
				f.serve(func(m message) {
					f.line(`{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s1","toolCall":{"toolCallId":"c",%s},`+
						`"options":[{"optionId":"y","name":"Yes","kind":"allow_once"}]}}`, call)
					f.answered("0")
					f.end(m, "end_turn")
				})
			}))
			prompt(t, s)
			if got != want {
				t.Errorf("%s is asked for as %s; want %s", call, got, want)
			}
		})
	}
}

// Nobody is asked about what could not be allowed for this one call.
func TestWhatCannotBeAllowedOnceIsRefusedUnasked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.line(`{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s1","toolCall":{"toolCallId":"c","title":"ls"},` +
					`"options":[{"optionId":"a","name":"Always","kind":"allow_always"},{"optionId":"n","name":"No","kind":"reject_once"}]}}`)
				if a, _ := f.answered("0"); field(a.Result, "outcome", "optionId") != "n" {
					t.Errorf("answered %s; want the rejection", a.Result)
				}
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
		if slices.Contains(s.Types(), frames.ApprovalAskedEvent) {
			t.Error("somebody was asked")
		}
		if r := agenttest.Last[frames.ToolResult](s); !strings.Contains(fmt.Sprint(r), "no way to allow it once") {
			t.Errorf("the call ended as %+v; want why it was not run", r)
		}
	})
}

// What an agent says is kept as it is only where every client can read it: integers that
// a double does not hold, and lone surrogates, are kept as text.
func TestWhatIsNoIJSONIsKeptAsText(t *testing.T) {
	for input, want := range map[string]string{
		`{"n":9007199254740991}`:    `{"n":9007199254740991}`,
		`{"n":1152921504606846976}`: `{"text":"{\"n\":1152921504606846976}"}`,
		`{"s":"\ud800"}`:            `{"text":"{\"s\":\"\\ud800\"}"}`,
	} {
		bubble(t, func(t *testing.T) {
			s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
				f.serve(func(m message) {
					f.update(`{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","kind":"read","status":"completed","rawInput":` + input + `}`)
					f.update(`{"sessionUpdate":"odd_update","value":` + input + `}`)
					f.end(m, "end_turn")
				})
			}))
			prompt(t, s)
			if got := string(agenttest.Last[frames.ToolCall](s).Input); got != want {
				t.Errorf("%s is kept as %s; want %s", input, got, want)
			}
			odd := agenttest.Last[agent.Raw](s)
			if ok := frames.CheckJSON(odd.Data, frames.JSONLimits{IJSON: true}); ok != nil {
				t.Errorf("the update is kept as %s: %v", odd.Data, ok)
			}
		})
	}
}

// People are sent to web addresses only.
func TestOnlyWebAddressesAreOpened(t *testing.T) {
	for url, want := range map[string]string{"https://example.com/login": "accept", "javascript:alert(1)": "decline", "file:///etc/passwd": "decline", "": "decline"} {
		bubble(t, func(t *testing.T) {
			s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
				f.serve(func(m message) {
					f.line(`{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"sessionId":"s1","mode":"url","message":"Log in","url":%q}}`, url)
					if a, _ := f.answered("0"); field(a.Result, "action") != want {
						t.Errorf("%q was answered %s; want %s", url, a.Result, want)
					}
					f.end(m, "end_turn")
				})
			}))
			prompt(t, s)
		})
	}
}
