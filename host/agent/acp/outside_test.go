package acp_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// afterTurn is an agent that ends its turn at once and goes on with f.
func afterTurn(f func(*fake)) func(*fake) {
	return func(k *fake) {
		k.serve(func(m message) {
			k.end(m, "end_turn")
			synctest.Wait()
			f(k)
		})
	}
}

// Quirk 17: what comes while no turn runs is kept, text as a message; a permission request
// is asked for in the session, with what the agent said of the call before.
func TestUpdatesOutsideTurnsAreKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		answer := make(chan message, 1)
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, afterTurn(func(f *fake) {
			f.say("more ")
			f.say("text")
			f.update(`{"sessionUpdate":"tool_call","toolCallId":"c1","title":"ls","kind":"execute","rawInput":{"command":"ls"}}`)
			f.line(`{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s1","toolCall":{"toolCallId":"c1"},"options":%s}}`, options)
			a, _ := f.answered("0")
			f.update(`{"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"completed"}`)
			answer <- a
		})))
		prompt(t, s)
		a := <-answer
		<-time.After(2 * time.Second)
		if field(a.Result, "outcome", "optionId") != "once" || len(s.Failures()) != 0 {
			t.Errorf("answered %s, told %v; want the person's answer", a.Result, s.Failures())
		}
		if got := agenttest.Last[frames.ApprovalAsked](s); string(got.Input) != `{"command":"ls"}` || got.CallID != "c1" || got.Tool.Title != "ls" {
			t.Errorf("asked %+v; want the call as it was told of", got)
		}
		if m := agenttest.Last[frames.AssistantMessage](s); len(m.Content) != 1 || m.Content[0].Text != "more text" {
			t.Errorf("events:\n%s\nwant the text as a message", show(s.Events()))
		}
		if len(rawOf(s, "tool_call"))+len(rawOf(s, "tool_call_update")) != 2 {
			t.Error("what was said of the call is not kept")
		}
	})
}

// Quirk 17: a question outside of turns is asked too.
func TestAQuestionOutsideTurnsIsAsked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		answer := make(chan message, 1)
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, afterTurn(func(f *fake) {
			f.line(`{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"sessionId":"s1","mode":"form","message":"M","requestedSchema":{"properties":{"x":{"type":"string"}}}}}`)
			a, _ := f.answered("0")
			answer <- a
		})))
		prompt(t, s)
		if a := <-answer; string(a.Result) != `{"action":"accept","content":{"x":"yes"}}` || count[frames.QuestionDecided](s) != 1 {
			t.Errorf("answered %s; want the person's words", a.Result)
		}
	})
}

// What is asked outside of turns is settled when the agent takes it back, crashes, or is
// closed; the agent hears that it was cancelled, as long as it can.
func TestRequestsOutsideTurnsAreSettled(t *testing.T) {
	for name, c := range map[string]struct {
		end     func(*fake, *agenttest.Session)
		answers bool
	}{
		"withdrawn": {func(f *fake, _ *agenttest.Session) {
			f.line(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":0}}`)
		}, true},
		"crashed": {func(f *fake, _ *agenttest.Session) { panicked(f) }, false},
		"closed": {func(_ *fake, s *agenttest.Session) {
			if err := s.Close(context.Background()); err != nil {
				panic(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				asked, answer := make(chan *fake, 1), make(chan message, 1)
				s := open(t, agenttest.Script{Approve: wait}, driver(t, acp.Options{}, afterTurn(func(f *fake) {
					f.ask("0", "s1", "c1")
					asked <- f
					if name == "crashed" {
						synctest.Wait()
						c.end(f, nil)
						return
					}
					a, _ := f.answered("0")
					answer <- a
				})))
				prompt(t, s)
				f := <-asked
				if name != "crashed" {
					synctest.Wait()
					c.end(f, s)
				}
				<-time.After(time.Minute)
				if d := agenttest.Last[frames.ApprovalDecided](s); d.Outcome != frames.Cancelled {
					t.Errorf("decided %+v; want cancelled", d)
				}
				if c.answers && !cancelled(<-answer) {
					t.Error("the agent did not hear that it was cancelled")
				}
			})
		})
	}
}

// Where nobody can be asked outside of turns the request is rejected, and that is told.
func TestWhatCannotBeAskedIsRejected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		answer := make(chan message, 1)
		sc := agenttest.Script{Event: func(_ *agenttest.Session, p frames.Payload) error {
			if _, ok := p.(frames.ApprovalAsked); ok {
				return errors.New("the disk is full")
			}
			return nil
		}}
		s := open(t, sc, driver(t, acp.Options{}, afterTurn(func(f *fake) {
			f.ask("0", "s1", "c1")
			a, _ := f.answered("0")
			answer <- a
		})))
		prompt(t, s)
		a := <-answer
		synctest.Wait()
		if field(a.Result, "outcome", "optionId") != "no" || len(s.Failures()) != 1 || !strings.Contains(s.Failures()[0], "the disk is full") {
			t.Errorf("answered %s, told %v; want a rejection that is told of", a.Result, s.Failures())
		}
	})
}

// A subagent that begins while no turn runs has no session of its own: what it asks is
// asked in its parent's. One whose turn is over asks in its own, as long as that is open.
func TestSubagentsAskOutsideTurns(t *testing.T) {
	for name, c := range map[string]struct {
		within, closed bool // it began in a turn; its session is closed
		want           int  // in which session is asked
	}{"began outside": {false, false, 0}, "its turn is over": {true, false, 1}, "its session is closed": {true, true, 0}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				answer, ready := make(chan message, 1), make(chan struct{})
				var asked []frames.SessionID
				sc := agenttest.Script{Approve: func(_ context.Context, s *agenttest.Session, _ agent.Approval) agent.Decision {
					asked = append(asked, s.Info.ID)
					return agent.Decision{Outcome: frames.AllowedOnce}
				}}
				h, s := openHost(t, sc, driver(t, acp.Options{}, func(f *fake) {
					f.serve(func(m message) {
						if c.within {
							f.update(born)
							f.update(`{"sessionUpdate":"subagent_update","sessionId":"k1","state":{"state":"idle"}}`)
						}
						f.end(m, "end_turn")
						synctest.Wait()
						if !c.within {
							f.update(born)
						}
						<-ready
						f.ask("0", "k1", "c1")
						a, _ := f.answered("0")
						answer <- a
					})
				}))
				prompt(t, s)
				if c.closed {
					if err := kid(t, h).Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
				close(ready)
				if a := <-answer; field(a.Result, "outcome", "optionId") != "once" {
					t.Errorf("answered %s; want the person's answer", a.Result)
				}
				if all := h.Sessions(); len(asked) != 1 || (len(all) == 2) != c.within || asked[0] != all[c.want].Info.ID {
					t.Errorf("asked in %v of %d sessions; want number %d", asked, len(all), c.want)
				}
			})
		})
	}
}

// The agent's name for the session reaches the host, also one that came in a replay.
func TestTitlesReachTheHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.update(`{"sessionUpdate":"session_info_update","title":" Fix the roof ","updatedAt":"x"}`)
				f.update(`{"sessionUpdate":"session_info_update","title":null}`)
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
		if s.Named() != "Fix the roof" || len(rawOf(s, "session_info_update")) != 2 {
			t.Errorf("named %q, kept %v; want the title, and both updates", s.Named(), rawOf(s, "session_info_update"))
		}
		again := open(t, agenttest.Script{}, withPast{driver(t, acp.Options{}, func(f *fake) {
			m, _ := f.until("initialize")
			f.result(m, `{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}`)
			m, _ = f.until("session/load")
			f.update(`{"sessionUpdate":"session_info_update","title":"Old roof"}`)
			f.result(m, `{}`)
			f.serve(nil)
		}), "s1"})
		if again.Named() != "Old roof" {
			t.Errorf("named %q after a load; want its title", again.Named())
		}
	})
}
