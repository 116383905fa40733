package acp_test

import (
	"bytes"
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
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// Quirk 23: output that only `_meta` carries is streamed and stored, and a reference
// to a terminal asks for none.
func TestTerminalOutputInMeta(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.update(`{"sessionUpdate":"tool_call","toolCallId":"c","status":"in_progress","content":[{"type":"terminal","terminalId":"t"}]}`)
				f.update(`{"sessionUpdate":"tool_call_update","toolCallId":"c","_meta":{"terminal_output_delta":{"data":"a\n"}}}`)
				f.update(`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"failed","_meta":{"terminal_output_delta":{"data":"b\n"},"terminal_exit":{"exit_code":3}}}`)
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
		r := agenttest.Last[frames.ToolResult](s)
		if len(r.Content) != 1 || r.Content[0].Text != "a\nb\n" || !r.IsError || field(r.Details, "_meta", "terminal_exit", "exit_code") != "3" {
			t.Errorf("result %+v, details %s; want all output, and the exit code", r, r.Details)
		}
		if got := s.Progress("c"); got != "a\n" {
			t.Errorf("progress %q; want what came while it ran", got)
		}
	})
}

// Quirk 24: an empty chunk that carries only `_meta` says nothing, and is kept.
func TestAnEmptyChunkIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const raw = `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":""},"_meta":{"usage":{"in":1}}}`
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) { f.say("x"); f.update(raw); f.say("y"); f.end(m, "end_turn") })
		}))
		prompt(t, s)
		if got := rawOf(s, "agent_message_chunk"); len(got) != 1 || got[0] != raw {
			t.Errorf("kept %v; want the chunk as it was", got)
		}
		wantEvents(t, s, frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text("xy")}, Blocks: []int{0}})
	})
}

// What is unknown is passed on byte for byte, and never taken for something else.
func TestUnknownUpdatesAreKeptAsTheyAre(t *testing.T) {
	for _, c := range []struct{ kind, raw string }{
		{"future_chunk", `{"sessionUpdate":"future_chunk",  "content":{"type":"text","text":"t"},"n":1.50}`},
		{"notice", `{"sessionUpdate":"notice","severity":"warning","title":"T"}`},
		{"agent_message_chunk", `{"sessionUpdate":"agent_message_chunk","content":{"type":"hologram","x":[]}}`},
		{"plan", `{"sessionUpdate":"plan","entries":{}}`},
		{"update", `{"x":1}`},
	} {
		bubble(t, func(t *testing.T) {
			s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
				f.serve(func(m message) { f.update(c.raw); f.update(c.raw); f.end(m, "end_turn") })
			}))
			prompt(t, s)
			if got := rawOf(s, c.kind); len(got) != 2 || got[0] != c.raw || got[1] != c.raw {
				t.Errorf("kept %v as %s; want %s, as often as it came", got, c.kind, c.raw)
			}
			wantEvents(t, s)
		})
	}
}

// Quirk 26: what comes between session/cancel and the agent's answer is stored.
func TestTheBacklogAfterCancelIsStored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.say("0")
				cancel()
				f.until("session/cancel")
				for i := range 50 {
					<-time.After(70 * time.Millisecond)
					f.say(fmt.Sprint(" ", i+1))
				}
				f.end(m, "cancelled")
			})
		}))
		res, err := s.Prompt(ctx, "go")
		if err != nil || res.Reason != frames.TurnCancelled {
			t.Errorf("Prompt = %+v, %v; want cancelled", res, err)
		}
		if got := agenttest.Last[frames.AssistantMessage](s).Content[0].Text; !strings.HasSuffix(got, " 49 50") {
			t.Errorf("stored %q; want all 50", got)
		}
	})
}

// A crash ends the turn with how the agent ended and what it logged; what was asked
// is settled, open calls are closed, and the next turn begins a new agent.
func TestACrashEndsTheTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{Approve: wait}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				if f.n > 0 {
					f.end(m, "end_turn")
					return
				}
				f.say("half")
				f.ask("0", "s1", "c1")
				synctest.Wait()
				_, _ = f.log.Write([]byte("panic: oops\n"))
				panicked(f)
			})
		}))
		_, err := s.Prompt(t.Context(), "go")
		if err == nil || !strings.Contains(err.Error(), "panic: oops") || !strings.Contains(err.Error(), "ended by killed") {
			t.Errorf("Prompt = %v; want how it ended, and its log", err)
		}
		if d := agenttest.Last[frames.ApprovalDecided](s); d.Outcome != frames.Cancelled {
			t.Errorf("decided %+v; want cancelled", d)
		}
		if count[frames.ToolResult](s) != 1 || count[frames.AssistantMessage](s) != 1 {
			t.Errorf("events:\n%s\nwant the half message, and a result", show(s.Events()))
		}
		synctest.Wait()
		if f := s.Failures(); len(f) != 0 {
			t.Errorf("told %q beside the turn's own error", f)
		}
		prompt(t, s)
	})
}

// panicked ends the agent's output without an answer.
func panicked(f *fake) {
	if c, ok := f.out.(interface{ Close() error }); ok {
		_ = c.Close()
	}
	<-f.killed
}

// Lines that are no messages are skipped and reported once; blank ones are nothing.
func TestJunkIsSkippedAndReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.line("npm notice\n\n[1,2]\n{\"x\":\n{}\n\"text\"\n{\"id\":77,\"result\":1}")
			f.serve(func(m message) { f.line("debug!"); f.say("hi"); f.end(m, "end_turn") })
		}))
		prompt(t, s)
		if f := s.Failures(); len(f) != 1 || !strings.Contains(f[0], "npm notice") {
			t.Errorf("reported %v; want the first line, once", f)
		}
	})
}

// Quirk 32: a line may have 32 MiB; one that is longer is skipped and the next read.
func TestLongLines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		if acprpc.MaxLine != 32<<20 {
			t.Errorf("a line may have %d bytes; want 32 MiB", acprpc.MaxLine)
		}
		const limit = 1 << 20
		s := open(t, agenttest.Script{}, driver(t, acp.WithMaxLine(acp.Options{}, limit), func(f *fake) {
			f.serve(func(m message) {
				f.update(`{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"n"}],"_meta":{"x":"` + strings.Repeat("m", 600<<10) + `"}}`)
				f.line("%s", bytes.Repeat([]byte("x"), limit))
				f.say("still here")
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
		got := rawOf(s, "available_commands_update")
		if len(got) != 1 || len(got[0]) > 200 || field([]byte(got[0]), "truncated", "blob") == "" {
			t.Errorf("kept %.300v; want a reference to a blob", got)
		}
		if text := agenttest.Last[frames.AssistantMessage](s).Content[0].Text; text != "still here" {
			t.Errorf("stored %q; want what came after the long line", text)
		}
	})
}

// Quirk 27: an agent may log as much as it likes.
func TestTheLogIsDrained(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				for range 1000 {
					_, _ = f.log.Write([]byte(strings.Repeat("noise ", 1000)))
				}
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
	})
}

// Quirk 33: a form becomes questions, in its order; a free-text sibling belongs to its
// question, and the answer has the form's own values.
func TestAFormBecomesQuestions(t *testing.T) {
	const schema = `{"type":"object","properties":{
		"q":{"type":"string","title":"Which?","oneOf":[{"const":"r","title":"Red","description":"warm"},{"const":"b","title":"Blue"}]},
		"q_note":{"type":"string","title":"Other"},
		"many":{"type":"array","title":"Some","items":{"type":"string","enum":["x","y"]}},
		"sure":{"type":"boolean","title":"Sure?"},"n":{"type":"integer","title":"How many?"},"free":{"type":"string"}},"required":["q"]}`
	answer := func(_ context.Context, _ *agenttest.Session, q []frames.Question) agent.Answers {
		var ids []string
		for _, one := range q {
			ids = append(ids, one.ID)
		}
		if got := strings.Join(ids, " "); got != "q many sure n free" || !q[0].AllowText || q[0].Options[0].Description != "warm" || !q[1].MultiSelect {
			t.Errorf("asked %+v", q)
		}
		return agent.Answers{Outcome: frames.Answered, Answers: []frames.Answer{
			{ID: "q", Labels: []string{"Blue"}, Text: "dark"},
			{ID: "many", Labels: []string{"x", "y"}},
			{ID: "sure", Labels: []string{"No"}},
			{ID: "n", Text: "3"},
			{ID: "free", Text: "w"},
		}}
	}
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{Answer: answer}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.line(`{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"sessionId":"s1","mode":"form","message":"M","requestedSchema":%s}}`,
					strings.ReplaceAll(schema, "\n", " "))
				a, _ := f.answered("0")
				want := `{"action":"accept","content":{"free":"w","many":["x","y"],"n":3,"q":"b","q_note":"dark","sure":false}}`
				if string(a.Result) != want {
					t.Errorf("the answer is %s; want %s", a.Result, want)
				}
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
		if got := rawOf(s, "elicitation"); len(got) != 1 || !strings.Contains(got[0], `"oneOf"`) {
			t.Errorf("kept %v; want the whole form", got)
		}
	})
}

// A form that asks for a secret is declined: answers are stored.
func TestASecretIsDeclined(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.line(`{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"sessionId":"s1","mode":"form","message":"M","requestedSchema":{"properties":{"k":{"type":"string","_meta":{"codex":{"isSecret":true}}}}}}}`)
				if a, _ := f.answered("0"); field(a.Result, "action") != "decline" {
					t.Errorf("the answer is %s; want decline", a.Result)
				}
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
		if count[frames.QuestionAsked](s) != 0 || len(s.Failures()) != 1 {
			t.Errorf("asked %d questions, told %v; want none, and why", count[frames.QuestionAsked](s), s.Failures())
		}
	})
}

// Quirk 34: a plan is the whole plan; other ways to plan are tool calls.
func TestAPlanIsTheWholePlan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.update(`{"sessionUpdate":"plan","entries":[{"content":"a","status":"in_progress","priority":"high"},{"content":"b"}]}`)
				f.update(`{"sessionUpdate":"plan","entries":[]}`)
				f.update(`{"sessionUpdate":"usage_update","used":10,"size":100,"cost":{"amount":0.0088,"currency":"USD"}}`)
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
		wantEvents(t, s,
			frames.TodoWrite{Todos: []frames.Todo{{Content: "a", Status: "in_progress", Priority: "high"}, {Content: "b", Status: "pending"}}},
			frames.TodoWrite{Todos: []frames.Todo{}},
			frames.UsageUpdated{Usage: frames.Usage{ContextTokens: 10, ContextWindow: 100, Cost: "0.0088", Currency: "USD"}})
	})
}

// What an agent streams of a pending call's input is announced once, when it is whole.
func TestACallIsAnnouncedWithItsWholeInput(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.update(`{"sessionUpdate":"tool_call","toolCallId":"c","name":"Bash","kind":"execute","title":"","status":"pending","rawInput":{}}`)
				f.update(`{"sessionUpdate":"tool_call_update","toolCallId":"c","rawInput":{"command":"l"}}`)
				f.update(`{"sessionUpdate":"tool_call_update","toolCallId":"c","title":"ls","rawInput":{"command":"ls"}}`)
				f.update(`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed","content":[{"type":"content","content":{"type":"text","text":"x"}},{"type":"diff","path":"/a","newText":"n"}]}`)
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
		if c := agenttest.Last[frames.ToolCall](s); count[frames.ToolCall](s) != 1 || string(c.Input) != `{"command":"ls"}` || c.Name != "Bash" || c.Title != "ls" {
			t.Errorf("announced %+v; want the whole input, once", c)
		}
		if r := agenttest.Last[frames.ToolResult](s); len(r.Content) != 2 || r.Content[1].URI != "file:///a" || !strings.Contains(string(r.Details), `"newText":"n"`) {
			t.Errorf("result %+v %s; want text, the file, and the change in its details", r, r.Details)
		}
	})
}

// Options are checked against what the agent offers; the mode is set last, and only
// to what is allowed.
func TestConfigure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var set []string
		s := open(t, agenttest.Script{}, driver(t, acp.Options{ApprovalMode: "ask", Modes: []string{"plan"}}, func(f *fake) {
			for {
				m, ok := f.recv()
				if !ok {
					return
				}
				switch m.Method {
				case "initialize":
					f.result(m, `{"protocolVersion":1}`)
				case "session/new":
					f.result(m, `{"sessionId":"s1",`+modes+`,"configOptions":[{"id":"m","category":"model","type":"select","currentValue":"a","options":[{"group":"g","options":[{"value":"a"},{"value":"b"}]}]}]}`)
				default:
					set = append(set, field(m.Params, "modeId")+field(m.Params, "value"))
					f.result(m, `{}`)
				}
			}
		}))
		c, ok := s.Agent.(agent.Configurable)
		if !ok {
			t.Fatal("the agent takes no options")
		}
		for options, fine := range map[string]bool{
			`{"model":"b","mode":"plan"}`: true, `{"model":"c"}`: false, `{"mode":"auto"}`: false, `{"x":1}`: false, `[]`: false,
		} {
			if err := c.Configure(t.Context(), json.RawMessage(options)); (err == nil) != fine {
				t.Errorf("Configure(%s) = %v; want success %t", options, err, fine)
			}
		}
		for _, want := range []string{"ask", "b", "plan"} {
			if !slices.Contains(set, want) {
				t.Errorf("set %v; want %s too", set, want)
			}
		}
		if slices.Contains(set, "auto") {
			t.Error("a mode that is not allowed was set")
		}
	})
}

// A prompt that the agent cannot take is refused before it is sent.
func TestPromptsThatTheAgentCannotTake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) { t.Errorf("prompted with %s", m.Params) })
		}))
		turn := s.LastTurn()
		_, err := s.Agent.Prompt(t.Context(), turn, agent.Prompt{Content: []frames.ContentBlock{{Type: "image", Data: "AA=="}}})
		if err == nil || !strings.Contains(err.Error(), "image") || errors.Is(err, context.Canceled) {
			t.Errorf("Prompt = %v; want that it takes no image", err)
		}
	})
}

// An agent that ends while no turn runs is told of, and the next turn starts it again.
func TestAnAgentThatEndsByItselfIsToldOf(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.end(m, "end_turn")
				if f.n == 0 {
					synctest.Wait()
					_, _ = f.log.Write([]byte("bye"))
					panicked(f)
				}
			})
		}))
		prompt(t, s)
		<-time.After(time.Minute)
		if got := s.Failures(); len(got) != 1 || !strings.Contains(got[0], "bye") {
			t.Errorf("told %v; want its end", got)
		}
		prompt(t, s)
	})
}

// An agent that wants a login says how.
func TestALoginIsHintedAt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := agenttest.New(agenttest.Script{Cwd: "/src/demo"}, driver(t, acp.Options{AuthMethod: "key"}, func(f *fake) {
			m, _ := f.until("initialize")
			f.result(m, `{"protocolVersion":1,"authMethods":[{"id":"key","name":"API key"}]}`)
			if m, _ = f.until("authenticate"); field(m.Params, "methodId") != "key" {
				t.Errorf("logged in with %s; want key", m.Params)
			}
			f.result(m, `{}`)
			m, _ = f.until("session/new")
			f.line(`{"id":%s,"error":{"code":-32000,"message":"Authentication required"}}`, m.ID)
			f.recv()
		}))
		defer h.Close()
		if _, err := h.Open(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "key (API key)") {
			t.Errorf("Open = %v; want how to log in", err)
		}
	})
}

// A fork of the host's session goes on in a fork of the agent's, where that is offered
// and the source has gone no further; what that replays is dropped.
func TestAForkIsAForkOfTheAgents(t *testing.T) {
	newest := func(s *agenttest.Session) frames.TurnID { return s.LastTurn().ID() }
	older := func(*agenttest.Session) frames.TurnID { return "older" }
	for name, c := range map[string]struct {
		caps, want string
		at         func(*agenttest.Session) frames.TurnID
	}{
		"offered":            {`"fork":{}`, "session/fork", newest},
		"not offered":        {``, "session/new", newest},
		"the source went on": {`"fork":{}`, "session/new", older},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var opened []string
				inner := driver(t, acp.Options{}, func(f *fake) {
					for {
						m, ok := f.recv()
						if !ok {
							return
						}
						switch m.Method {
						case "initialize":
							f.result(m, `{"protocolVersion":1,"agentCapabilities":{"sessionCapabilities":{`+c.caps+`}}}`)
						case "session/new", "session/fork":
							opened = append(opened, m.Method)
							f.updateOf(fmt.Sprint("s", f.n), chunk("old"))
							f.result(m, fmt.Sprintf(`{"sessionId":"s%d"}`, f.n))
						case "session/prompt":
							f.end(m, "end_turn")
						}
					}
				})
				source := open(t, agenttest.Script{}, inner)
				prompt(t, source)
				fork := open(t, agenttest.Script{}, withForeign{inner, "s0", c.at(source)})
				prompt(t, fork)
				if len(opened) != 2 || opened[1] != c.want {
					t.Errorf("opened with %v; want %s", opened, c.want)
				}
				if got := rawOf(fork, "session"); len(got) != 1 || field([]byte(got[0]), "sessionId") != "s1" {
					t.Errorf("noted %v; want the fork's own session", got)
				}
				if n := count[frames.AssistantMessage](fork); c.want == "session/fork" && n != 0 {
					t.Errorf("%d messages; want the replay dropped", n)
				}
			})
		})
	}
}

// withForeign is a driver whose sessions have a log that names another session's.
type withForeign struct {
	agent.Driver
	id string
	at frames.TurnID // that the log ends with
}

func (d withForeign) Open(ctx context.Context, s agent.Session) (agent.Agent, error) {
	s.History = func(_ context.Context, after frames.Seq, _ int) ([]frames.Event, error) {
		if after > 0 {
			return nil, nil
		}
		data := json.RawMessage(fmt.Sprintf(`{"sessionId":%q,"for":"another"}`, d.id))
		return []frames.Event{
			{Seq: 1, Type: "acp.agentclientprotocol.com/session", Data: data},
			{Seq: 2, Type: frames.TurnEndEvent, TurnID: d.at, Data: json.RawMessage(`{}`)},
		}, nil
	}
	s.State = json.RawMessage(fmt.Sprintf(`{"sessionId":%q,"for":"another"}`, d.id))
	return d.Driver.Open(ctx, s)
}
