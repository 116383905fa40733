package acp_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// A request about a call that has ended is asked with what it says itself, not with what
// was said of that call.
func TestARequestForAnEndedCallIsItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.update(`{"sessionUpdate":"tool_call","toolCallId":"c1","title":"ls","kind":"read","status":"completed","rawInput":{"command":"ls"}}`)
				f.ask("0", "s1", "c1")
				f.answered("0")
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
		if a := agenttest.Last[frames.ApprovalAsked](s); string(a.Input) != `{"command":"rm x"}` || a.Tool.Title != "rm x" || a.Tool.Kind != "execute" {
			t.Errorf("asked for %s, %+v; want what the request says", a.Input, a.Tool)
		}
	})
}

// What a subagent asks whose session never opens is asked where its parent does.
func TestASubagentWithoutASessionAsksAtItsParent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var asked []frames.SessionID
		d := noChildren{driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.update(born)
				f.ask("0", "k1", "c1")
				f.answered("0")
				f.update(`{"sessionUpdate":"subagent_update","sessionId":"k1","state":{"state":"idle","stopReason":"end_turn"}}`)
				f.end(m, "end_turn")
			})
		})}
		_, s := openHost(t, agenttest.Script{
			Approve: func(_ context.Context, s *agenttest.Session, _ agent.Approval) agent.Decision {
				asked = append(asked, s.Info.ID)
				return agent.Decision{Outcome: frames.AllowedOnce}
			},
		}, d)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if res, err := s.Prompt(ctx, "go"); err != nil || res.Reason == frames.TurnCancelled || len(asked) != 1 || asked[0] != s.Info.ID {
			t.Errorf("Prompt = %+v, %v, asked in %v; want the parent's session", res, err, asked)
		}
	})
}

// noChildren is a driver whose subagents' sessions open and are over at once.
type noChildren struct{ agent.Driver }

func (d noChildren) Open(ctx context.Context, s agent.Session) (agent.Agent, error) {
	if s.Parent != "" {
		return goneAgent{}, nil
	}
	return d.Driver.Open(ctx, s)
}

type goneAgent struct{}

func (goneAgent) Prompt(context.Context, agent.Turn, agent.Prompt) (agent.Result, error) {
	return agent.Result{}, errors.New("it could not be opened")
}
func (goneAgent) Steer(context.Context, agent.Prompt) error { return agent.ErrNotTaken }
func (goneAgent) Close(context.Context) error               { return nil }

// A request that belongs to a call of the host, and to no session, is answered at once
// also while a session is being opened.
func TestARequestWhileASessionOpensIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		began := time.Now()
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			m, _ := f.until("initialize")
			f.result(m, `{"protocolVersion":1}`)
			m, _ = f.until("session/new")
			f.line(`{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"requestId":%s,"mode":"url","message":"log in","url":"https://example.com"}}`, m.ID)
			if a, ok := f.answered("0"); ok && field(a.Result, "action") != "cancel" {
				t.Errorf("answered %s; want cancel", a.Result)
			}
			f.result(m, `{"sessionId":"s1"}`)
			f.serve(func(m message) { f.end(m, "end_turn") })
		}))
		prompt(t, s)
		if d := time.Since(began); d > time.Second {
			t.Errorf("it opened after %v; want at once", d)
		}
	})
}

// A session that an agent announces as a subagent of another one stays what it is: its
// requests are not settled with the other's.
func TestASessionIsNoSubagentOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		all, agents, _ := sharing(t, 2, acp.Options{}, agenttest.Script{Approve: wait}, canResume, func(c *crowd, id string, _ message) {
			if id == "s1" {
				c.updateOf("s1", strings.Replace(born, `"k1"`, `"s2"`, 1))
				c.finish("s1", "end_turn")
				return
			}
			c.ask("0", "s2", "c2")
		})
		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		other := background(&wg, ctx, all[1])
		<-time.After(time.Second)
		short, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := all[0].Prompt(short, "go"); err != nil {
			t.Errorf("Prompt = %v", err)
		}
		if agenttest.Last[frames.ApprovalDecided](all[1]).Outcome != "" || agents()[0].did("session/cancel s2") {
			t.Error("the end of one session settled what another asks")
		}
		cancel()
		agents()[0].finish("s2", "cancelled")
		if _, err := other(); err != nil {
			t.Errorf("Prompt = %v", err)
		}
	})
}

// stuckInput is a pipe that nobody reads: a write ends when it is closed.
type stuckInput struct {
	io.WriteCloser
	after int
	shut  chan struct{}
}

func (p *stuckInput) Write(b []byte) (int, error) {
	if p.after--; p.after >= 0 {
		return p.WriteCloser.Write(b)
	}
	<-p.shut
	return 0, io.ErrClosedPipe
}

func (p *stuckInput) Close() error {
	select {
	case <-p.shut:
	default:
		close(p.shut)
	}
	return p.WriteCloser.Close()
}

// An agent whose input somebody keeps open without reading it can be ended all the same.
func TestAStuckInputDoesNotOutliveTheAgent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := acp.NewTest(acp.Options{Name: "fake", Command: "/fake", CancelGrace: time.Second}, func(agent.Session) (acp.TestPeer, error) {
			p := startFake(t, 0, func(f *fake) {
				f.serve(func(message) { <-f.killed })
			})
			p.In = &stuckInput{p.In, 3, make(chan struct{})} // initialize, session/new, session/prompt
			return p, nil
		})
		_, s := openHost(t, agenttest.Script{}, d)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.Prompt(ctx, "go"); err != nil {
			t.Errorf("Prompt = %v; want a turn that is cancelled", err)
		}
	})
}

// An id that the agent gives to two sessions does not bring what one asks into the other:
// the second is not opened.
func TestAnIdOfAnotherSessionIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asked, closed := map[frames.SessionID]int{}, false
		h, first := openHost(t, agenttest.Script{Approve: func(_ context.Context, s *agenttest.Session, _ agent.Approval) agent.Decision {
			asked[s.Info.ID]++
			return agent.Decision{Outcome: frames.AllowedOnce}
		}}, driver(t, acp.Options{}, func(f *fake) {
			for {
				m, ok := f.recv()
				switch {
				case !ok:
					return
				case m.Method == "initialize":
					f.result(m, `{"protocolVersion":1,"agentCapabilities":{`+canClose+`}}`)
				case m.Method == "session/close":
					closed = true
					f.result(m, `{}`)
				case m.Method == "session/prompt":
					f.ask("0", "s1", "c1")
					f.answered("0")
					f.end(m, "end_turn")
				case m.ID != nil:
					f.result(m, `{"sessionId":"s1"}`)
				}
			}
		}))
		second, err := h.Open(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), `"s1"`) {
			t.Errorf("Open = %v; want an error that names the id", err)
		}
		prompt(t, first)
		if len(asked) != 1 || asked[first.Info.ID] != 1 || second != nil || closed {
			t.Errorf("asked in %v, closed %t; want the session that was prompted, still open", asked, closed)
		}
	})
}
