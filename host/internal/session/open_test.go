package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
)

// starting is how long the agents of these tests take to start.
const starting = 90 * time.Second

// slowly has every agent of a driver take its time to start; where deaf, it does not
// listen to the end of the attempt. It returns the causes of attempts that were ended.
func slowly(d *driver, deaf bool) <-chan error {
	ended := make(chan error, 8)
	d.opening = func(ctx context.Context) error {
		if deaf {
			time.Sleep(starting)
			return nil
		}
		err := pause(ctx, starting)
		if err != nil {
			ended <- err
		}
		return err
	}
	return ended
}

// A cancel while the agent starts ends the attempt and the turn at once; the next
// prompt tries again.
func TestCancelEndsAStart(t *testing.T) {
	bubble(t, func(r *rig) {
		ended := slowly(r.agent, false)
		sid := r.create(session.CreateArgs{})
		turn := r.prompt(sid, "go").Turn
		r.wait()
		if st := r.pub.status(sid); st.State != frames.StateRunning || st.TurnID != turn {
			t.Errorf("status %+v while the agent starts, want the turn running", st)
		}
		time.Sleep(second)
		start := time.Now()
		if !r.cancel(sid, turn, true) {
			t.Error("there was nothing to cancel")
		}
		r.wait()
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCancelled || len(ended) != 1 || time.Since(start) != 0 {
			t.Errorf("the turn ended %+v after %v, %d attempts ended; want cancelled at once", end, time.Since(start), len(ended))
		}
		if told := framesOf[*frames.AgentError](r.pub, sid); len(told) != 0 {
			t.Errorf("told of %+v, want nothing: a person did it", told)
		}
		r.prompt(sid, "go")
		time.Sleep(starting)
		r.wait()
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCompleted {
			t.Errorf("the next turn ended %+v", end)
		}
	})
}

// Closing and deleting a session whose agent starts, and a shutdown, end the attempt
// and do not wait for it.
func TestNothingWaitsForAStart(t *testing.T) {
	for name, end := range map[string]func(r *rig, sid frames.SessionID) error{
		"close":    func(r *rig, sid frames.SessionID) error { r.close(sid); return nil },
		"delete":   func(r *rig, sid frames.SessionID) error { return r.m.Delete(r.t.Context(), nil, sid, true, nil, nil) },
		"shutdown": func(r *rig, _ frames.SessionID) error { r.stop(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				ended := slowly(r.agent, false)
				sid := r.create(session.CreateArgs{})
				r.prompt(sid, "go")
				r.wait()
				start := time.Now()
				if err := end(r, sid); err != nil || time.Since(start) != 0 || len(ended) != 1 {
					t.Errorf("%v after %v, %d attempts ended; want it done at once", err, time.Since(start), len(ended))
				}
				if name == "shutdown" {
					r.start()
					if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnInterrupted {
						t.Errorf("the turn ended %+v", end)
					}
				}
			})
		})
	}
}

// An attempt to start that does not listen is given up after its time, and what comes
// of it later is closed; a shutdown does not wait for more than that.
func TestStartThatDoesNotListenIsGivenUp(t *testing.T) {
	bubble(t, func(r *rig) {
		slowly(r.agent, true)
		sid := r.create(session.CreateArgs{})
		turn := r.prompt(sid, "go").Turn
		r.wait()
		start := time.Now()
		r.cancel(sid, turn, true)
		r.prompt(sid, "queued")
		time.Sleep(agent.CloseTimeout)
		r.wait()
		if ends := every[frames.TurnEnd](r, sid); len(ends) != 1 || ends[0].Reason != frames.TurnCancelled {
			t.Errorf("after %v the turns ended %+v, want one, cancelled", time.Since(start), ends)
		}
		time.Sleep(2 * starting)
		r.wait()
		opened, closed := r.agent.count()
		if opened != 2 || closed != 1 || last[frames.TurnEnd](r, sid).Reason != frames.TurnCompleted {
			t.Errorf("opened %d, closed %d agents; want the late one closed and the next in use", opened, closed)
		}
		r.close(sid)
		r.prompt(sid, "go")
		r.wait()
		start = time.Now()
		ctx, cancel := context.WithTimeout(r.t.Context(), second)
		defer cancel()
		err := r.m.Shutdown(ctx)
		if d := time.Since(start); err == nil || d > second+4*agent.CloseTimeout {
			t.Errorf("Shutdown = %v after %v; want it to tell of the agent, in time", err, d)
		}
		time.Sleep(starting)
		r.start()
	})
}

// While the agent of one session starts, all others go on, and so do calls for the
// session itself.
func TestStartDelaysNobody(t *testing.T) {
	other := newDriver("other")
	bubble(t, func(r *rig) {
		slowly(r.agent, false)
		sid, quick := r.create(session.CreateArgs{}), r.create(session.CreateArgs{Agent: "other"})
		r.prompt(sid, "go")
		r.wait()
		start := time.Now()
		r.prompt(quick, "go")
		queued := r.prompt(sid, "second")
		r.prompt(sid, "steer", mode(frames.ModeSteer))
		r.configure(session.ConfigureArgs{Session: sid, Title: new("starting")})
		r.wait()
		if end := last[frames.TurnEnd](r, quick); end.Reason != frames.TurnCompleted || !queued.Queued || time.Since(start) != 0 {
			t.Errorf("the other turn ended %+v, queued %+v, after %v; want both at once", end, queued, time.Since(start))
		}
		r.cancel(sid, queued.Turn, true)
		time.Sleep(starting)
		r.wait()
		if got := r.agent.prompts(); len(got) != 2 || got[0].Text() != "go" || got[1].Text() != "steer" {
			t.Errorf("prompts %+v, want go and steer", got)
		}
	}, func(c *session.Config) { c.Drivers["other"] = other })
}

// An agent that cannot start says why to whoever prompts and to all who look on.
func TestFailedStartSaysWhy(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.opening = func(context.Context) error { return errors.New("npx: not found; install node 20") }
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		end, told := last[frames.TurnEnd](r, sid), framesOf[*frames.AgentError](r.pub, sid)
		if end.Reason != frames.TurnError || !strings.Contains(end.Message, "install node 20") {
			t.Errorf("the turn ended %+v, want the driver's words", end)
		}
		if len(told) != 1 || !strings.Contains(told[0].Message, "install node 20") {
			t.Errorf("told %+v, want the driver's words once", told)
		}
	})
}

// What is configured while the agent starts reaches it before the prompt does; what
// it refuses is told.
func TestOptionsOfAStartReachTheAgent(t *testing.T) {
	bubble(t, func(r *rig) {
		slowly(r.agent, false)
		var said []string
		r.agent.configure = func(_ context.Context, o json.RawMessage) error {
			said = append(said, string(o))
			return nil
		}
		r.agent.on("go", func(context.Context, agent.Turn, agent.Prompt) (agent.Result, error) {
			said = append(said, "prompt")
			return agent.Result{}, nil
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		r.configure(session.ConfigureArgs{Session: sid, Options: []byte(`{"model":"m1"}`)})
		r.configure(session.ConfigureArgs{Session: sid, Options: []byte(`{"mode":"plan"}`)})
		time.Sleep(starting)
		r.wait()
		if want := []string{`{"mode":"plan","model":"m1"}`, "prompt"}; !slices.Equal(said, want) {
			t.Errorf("the agent heard %q, want %q", said, want)
		}
		r.agent.configure = func(context.Context, json.RawMessage) error { return errors.New("no such model") }
		r.close(sid)
		r.prompt(sid, "go")
		r.wait()
		r.configure(session.ConfigureArgs{Session: sid, Options: []byte(`{"model":"m2"}`)})
		time.Sleep(starting)
		r.wait()
		if told := framesOf[*frames.AgentError](r.pub, sid); len(told) != 1 || !strings.Contains(told[0].Message, "no such model") {
			t.Errorf("told %+v, want the agent's refusal", told)
		}
	})
}

// A prompt that waits for the last agent to be closed can be cancelled at once.
func TestCancelWhileTheLastAgentCloses(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("crash", func(context.Context, agent.Turn, agent.Prompt) (agent.Result, error) { panic("boom") })
		r.agent.closing = func() { time.Sleep(8 * second) }
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "crash")
		turn := r.prompt(sid, "go").Turn
		r.wait()
		start := time.Now()
		r.cancel(sid, turn, true)
		r.wait()
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCancelled || time.Since(start) != 0 {
			t.Errorf("the turn ended %+v after %v, want cancelled at once", end, time.Since(start))
		}
	})
}
