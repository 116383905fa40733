package acp_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

const left = `{"sessionUpdate":"current_mode_update","currentModeId":"auto"}`

// serveModes answers as an agent does; set answers every call that sets something.
func (f *fake) serveModes(opened string, set, prompt func(message)) {
	for {
		m, ok := f.recv()
		if !ok {
			return
		}
		switch m.Method {
		case "initialize":
			f.result(m, `{"protocolVersion":1,"agentCapabilities":{"sessionCapabilities":{"resume":{}}}}`)
		case "session/new", "session/resume":
			f.result(m, `{"sessionId":"s1",`+opened+`}`)
		case "session/set_mode", "session/set_config_option":
			set(m)
		case "session/prompt":
			prompt(m)
		}
	}
}

func configure(t *testing.T, s *agenttest.Session, options string) error {
	t.Helper()
	c, ok := s.Agent.(agent.Configurable)
	if !ok {
		t.Fatal("the agent takes no options")
	}
	return c.Configure(t.Context(), json.RawMessage(options))
}

// An agent that leaves its mode in the same breath in which it acknowledged it is put
// back, too.
func TestAModeThatIsLeftAtOnceIsPutBack(t *testing.T) {
	for range 20 { // the answer and what follows it are taken by two goroutines
		bubble(t, func(t *testing.T) {
			mode := ""
			s := open(t, agenttest.Script{}, driver(t, acp.Options{ApprovalMode: "ask"}, func(f *fake) {
				sets := 0
				f.serveModes(modes, func(m message) {
					mode = field(m.Params, "modeId")
					if sets++; sets > 1 {
						f.result(m, `{}`)
						return
					}
					f.line(`{"jsonrpc":"2.0","id":%s,"result":{}}`+"\n"+`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":%s}}`, m.ID, left)
					mode = "auto"
				}, func(m message) { f.end(m, "end_turn") })
			}))
			synctest.Wait()
			prompt(t, s)
			synctest.Wait()
			if mode != "ask" {
				t.Fatalf("the agent is in mode %q; want ask", mode)
			}
		})
	}
}

// Nothing is prompted while the agent is being put back into its mode.
func TestNoPromptWhileTheModeIsPutBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var order []string
		s := open(t, agenttest.Script{}, driver(t, acp.Options{ApprovalMode: "ask"}, func(f *fake) {
			var wg sync.WaitGroup
			defer wg.Wait()
			f.serveModes(modes, func(m message) {
				order = append(order, "set")
				wg.Go(func() { <-time.After(5 * time.Second); order = append(order, "acknowledged"); f.result(m, `{}`) })
			}, func(m message) {
				order = append(order, "prompt")
				f.end(m, "end_turn")
				if len(order) < 4 {
					<-time.After(time.Second / 2) // its turn is over
					f.update(left)
				}
			})
		}))
		prompt(t, s)
		<-time.After(time.Second)
		prompt(t, s)
		if got := strings.Join(order, " "); got != "set acknowledged prompt set acknowledged prompt" {
			t.Errorf("the order was %s", got)
		}
	})
}

// A mode that the agent refuses to be configured to leaves it in the one before, and
// guarded.
func TestARefusedModeLeavesTheOneBefore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mode := ""
		s := open(t, agenttest.Script{}, driver(t, acp.Options{ApprovalMode: "ask", Modes: []string{"plan"}}, func(f *fake) {
			f.serveModes(modes, func(m message) {
				if field(m.Params, "modeId") == "plan" {
					f.line(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"not now"}}`, m.ID)
					return
				}
				mode = field(m.Params, "modeId")
				f.result(m, `{}`)
			}, func(m message) {
				mode = "auto"
				f.update(left)
				if set, _ := f.until("session/set_mode"); set.ID != nil {
					mode = field(set.Params, "modeId")
					f.result(set, `{}`)
				}
				f.end(m, "end_turn")
			})
		}))
		if err := configure(t, s, `{"mode":"plan"}`); err == nil || !strings.Contains(err.Error(), "not now") {
			t.Errorf("Configure = %v; want the agent's refusal", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.Prompt(ctx, "go"); err != nil || mode != "ask" {
			t.Errorf("Prompt = %v, the agent is in mode %q; want ask", err, mode)
		}
	})
}

const modeOption = `{"id":"m","category":"mode","type":"select","currentValue":"auto","options":[{"value":"auto"},{"value":"ask"}]}`

// An answer that says the agent is in another mode is no acknowledgement.
func TestAnAnswerThatNamesAnotherModeIsNoAcknowledgement(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := driver(t, acp.Options{ApprovalMode: "ask"}, func(f *fake) {
			f.serveModes(`"configOptions":[`+modeOption+`]`, func(m message) {
				f.result(m, `{"configOptions":[`+modeOption+`]}`)
			}, func(m message) { t.Error("it was prompted"); f.end(m, "end_turn") })
		})
		h := agenttest.New(agenttest.Script{Cwd: "/src/demo"}, d)
		defer shut(t, d)
		defer h.Close()
		s, err := h.Open(t.Context(), nil)
		if err == nil {
			_, err = s.Prompt(t.Context(), "go")
		}
		if err == nil || !strings.Contains(err.Error(), `"ask"`) {
			t.Errorf("Open = %v; want an error that names the mode", err)
		}
	})
}

// Options of which one cannot be set leave the agent in its mode, whatever the others
// did to that.
func TestOptionsThatFailLeaveTheMode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mode := ""
		s := open(t, agenttest.Script{}, driver(t, acp.Options{ApprovalMode: "ask"}, func(f *fake) {
			f.serveModes(modes+`,"configOptions":[{"id":"a"},{"id":"b"}]`, func(m message) {
				switch field(m.Params, "configId") {
				case "a": // it changes the mode, and does not tell
					mode = "auto"
				case "b":
					f.line(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no"}}`, m.ID)
					return
				default:
					mode = field(m.Params, "modeId")
				}
				f.result(m, `{}`)
			}, func(m message) { f.end(m, "end_turn") })
		}))
		if err := configure(t, s, `{"a":"1","b":"1"}`); err == nil {
			t.Error("Configure succeeded; want the agent's refusal")
		}
		if mode != "ask" {
			t.Errorf("the agent is in mode %q; want ask", mode)
		}
	})
}

// What is configured while no agent runs is checked as far as that can be.
func TestAModeThatIsNotAllowedIsRefusedWhileNoAgentRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{ApprovalMode: "ask"}, func(f *fake) {
			f.serveModes(modes, func(m message) { f.result(m, `{}`) }, func(m message) {
				f.end(m, "end_turn")
				if f.n == 0 {
					panicked(f)
				}
			})
		}))
		prompt(t, s)
		<-time.After(time.Minute)
		if err := configure(t, s, `{"mode":"auto"}`); err == nil || !strings.Contains(err.Error(), "allowed are: ask") {
			t.Errorf("Configure = %v; want which modes are allowed", err)
		}
		prompt(t, s)
	})
}

// What is configured while the agent is being started again holds for it.
func TestWhatIsConfiguredDuringAStartHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mode := ""
		s := open(t, agenttest.Script{}, driver(t, acp.Options{ApprovalMode: "ask", Modes: []string{"plan"}}, func(f *fake) {
			f.serveModes(modes, func(m message) {
				if f.n > 0 {
					<-time.After(5 * time.Second)
				}
				mode = field(m.Params, "modeId")
				f.result(m, `{}`)
			}, func(m message) {
				f.end(m, "end_turn")
				if f.n == 0 {
					panicked(f)
				}
			})
		}))
		prompt(t, s)
		<-time.After(time.Minute)
		var wg sync.WaitGroup
		defer wg.Wait()
		end := background(&wg, t.Context(), s)
		<-time.After(time.Second)
		if err := configure(t, s, `{"mode":"plan"}`); err != nil {
			t.Error(err)
		}
		if _, err := end(); err != nil || mode != "plan" {
			t.Errorf("Prompt = %v, in mode %q; want plan", err, mode)
		}
	})
}

// A session that is configured to no mode is in the approval mode.
func TestNoModeIsTheApprovalMode(t *testing.T) {
	for _, config := range []string{`{"mode":""}`, `{"mode":null}`} {
		bubble(t, func(t *testing.T) {
			mode := ""
			d := driver(t, acp.Options{ApprovalMode: "ask"}, func(f *fake) {
				f.serveModes(modes, func(m message) { mode = field(m.Params, "modeId"); f.result(m, `{}`) },
					func(m message) { f.end(m, "end_turn") })
			})
			h := agenttest.New(agenttest.Script{Cwd: "/src/demo"}, d)
			defer shut(t, d)
			defer h.Close()
			s, err := h.Open(t.Context(), json.RawMessage(config))
			if err != nil {
				t.Fatal(err)
			}
			prompt(t, s)
			if mode != "ask" {
				t.Errorf("with %s it is in mode %q; want ask", config, mode)
			}
		})
	}
}
