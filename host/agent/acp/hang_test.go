package acp_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// An agent that does not end its cancelled turn is killed, and the next turn starts it
// again.
func TestAnAgentThatIgnoresCancelIsKilled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				if f.n > 0 {
					f.end(m, "end_turn")
					return
				}
				cancel()
				f.until("session/cancel")
				<-f.killed
			})
		}))
		began := time.Now()
		res, err := s.Prompt(ctx, "go")
		if d := time.Since(began); err != nil || res.Reason != frames.TurnCancelled || d != 8*time.Second {
			t.Errorf("Prompt = %+v, %v after %v; want cancelled after 8s", res, err, d)
		}
		prompt(t, s)
	})
}

// Quirk 19: a turn with a call in progress and no sign of life is reported, and in the
// end cancelled, whether the agent just says nothing or does not read any more either.
func TestAHangingCallIsCancelledAtLast(t *testing.T) {
	for name, reads := range map[string]bool{"it reads": true, "it does not read": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
					f.serve(func(m message) {
						f.update(`{"sessionUpdate":"tool_call","toolCallId":"c","title":"task","status":"in_progress"}`)
						if reads {
							f.until("session/cancel")
							f.end(m, "cancelled")
						} else {
							<-f.killed
						}
					})
				}))
				began := time.Now()
				_, err := s.Prompt(t.Context(), "go")
				if d := time.Since(began); err == nil || !strings.Contains(err.Error(), "said nothing for too long") || d < time.Hour || d > time.Hour+time.Minute {
					t.Errorf("Prompt = %v after %v; want an error after an hour", err, d)
				}
				if e := agenttest.Last[frames.ErrorReported](s); e.Code != "agent-silent" || !e.Retryable {
					t.Errorf("reported %+v; want its silence", e)
				}
				if r := agenttest.Last[frames.ToolResult](s); r.CallID != "c" || !r.IsError {
					t.Errorf("the call ended with %+v; want an error", r)
				}
			})
		})
	}
}

// An agent that stops reading is ended: nobody waits for it.
func TestAnAgentThatDoesNotReadIsEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(message) {
				for i := range 3000 {
					f.line(`{"jsonrpc":"2.0","id":%d,"method":"fs/x","params":{}}`, i)
				}
				<-f.killed
			})
		}))
		if _, err := s.Prompt(t.Context(), "go"); err == nil || !strings.Contains(err.Error(), "does not read") {
			t.Errorf("Prompt = %v; want that it does not read", err)
		}
	})
}

// Quirk 29: a slow start is waited for, up to its limit.
func TestStartTimeout(t *testing.T) {
	for _, c := range []struct {
		took time.Duration
		ok   bool
	}{{2 * time.Minute, true}, {4 * time.Minute, false}} {
		bubble(t, func(t *testing.T) {
			d := driver(t, acp.Options{}, func(f *fake) {
				select {
				case <-time.After(c.took):
				case <-f.killed:
				}
				f.serve(func(m message) { f.end(m, "end_turn") })
			})
			h := agenttest.New(agenttest.Script{Cwd: "/src/demo"}, d)
			defer shut(t, d)
			defer h.Close()
			if _, err := h.Open(t.Context(), nil); (err == nil) != c.ok {
				t.Errorf("Open = %v with a start of %v; want success %t", err, c.took, c.ok)
			}
		})
	}
}

// Quirk 28: the end comes in steps: the input ends, SIGTERM, SIGKILL.
func TestTheEndComesInSteps(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*fake)
		took time.Duration
	}{
		"exits by itself":     {func(*fake) { <-time.After(3 * time.Second) }, 3 * time.Second},
		"exits after SIGTERM": {func(f *fake) { <-f.term }, 5 * time.Second},
		"is killed":           {func(f *fake) { <-f.killed }, 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
					f.serve(func(m message) { f.end(m, "end_turn") })
					c.end(f)
				}))
				prompt(t, s)
				began := time.Now()
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if d := time.Since(began); d != c.took {
					t.Errorf("it took %v; want %v", d, c.took)
				}
			})
		})
	}
}

// Close is as quick as its context.
func TestCloseHurries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(nil)
			<-f.killed
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := s.Close(ctx); err != nil || time.Since(began) != time.Second {
			t.Errorf("Close = %v after %v; want nil after 1s", err, time.Since(began))
		}
	})
}
