package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// An agent that panics while it is steered or configured does not take the host
// with it: the steer waits for its own turn, the options are refused.
func TestPanicBesideTheTurnIsContained(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", func(ctx context.Context, _ agent.Turn, _ agent.Prompt) (agent.Result, error) {
			return agent.Result{}, pause(ctx, second)
		})
		r.agent.steer = func(context.Context, agent.Prompt) error { panic("steered") }
		r.agent.configure = func(context.Context, json.RawMessage) error { panic("configured") }
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		r.prompt(sid, "steer", mode(frames.ModeSteer))
		err := r.m.Configure(r.t.Context(), session.ConfigureArgs{Session: sid, Options: []byte(`{"model":"x"}`)}, nil)
		if _, ok := errors.AsType[*session.RefusedError](err); !ok {
			t.Errorf("configure: %v, want a RefusedError", err)
		}
		time.Sleep(2 * second)
		r.wait()
		if got := said(r, sid); !slices.Equal(got, []string{"go", "steer"}) {
			t.Errorf("turns for %v, want go and steer", got)
		}
	})
}

// What cannot be an event is refused alone: what is emitted at the same time is
// stored, and the log can be read.
func TestUnfitEmissionFailsAlone(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			for name, p := range map[string]frames.Payload{
				"invalid UTF-8 in input": frames.ToolCall{CallID: "c", Name: "sh", Input: json.RawMessage("{\"a\":\"\xff\"}")},
				"no object":              agent.Raw{Type: "x.y/z", Data: json.RawMessage(`[1]`)},
				"no JSON":                agent.Raw{Type: "x.y/z", Data: json.RawMessage(`{`)},
				"not the contract's":     agent.Raw{Type: frames.ToolCallEvent, Data: json.RawMessage(`{"callId":7}`)},
				"a child of its own":     frames.AgentSpawned{ChildSessionID: "x"},
				"a task of its own":      frames.TaskStarted{TaskID: "x"},
			} {
				var wg sync.WaitGroup
				for i, p := range []frames.Payload{frames.TodoWrite{}, p, frames.TodoWrite{}} { // the last two wait together
					wg.Go(func() {
						if err := t.Emit(ctx, p); (err == nil) != (i != 1) {
							r.t.Errorf("%s, number %d: %v", name, i, err)
						}
					})
					_ = pause(ctx, time.Millisecond)
				}
				wg.Wait()
			}
			return agent.Result{}, t.Emit(ctx, frames.SessionCompacted{UpTo: 1, Content: []frames.ContentBlock{frames.Text("so far")}},
				agent.Raw{Type: frames.ToolCallEvent, Data: json.RawMessage(`{"callId":"c9","name":"sh","more":1}`)})
		})
		sid := r.create(session.CreateArgs{})
		r.disk.set(func(d *disk) { d.before = func([]store.Event) { time.Sleep(second) } })
		r.prompt(sid, "go")
		time.Sleep(time.Minute)
		r.wait()
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCompleted {
			t.Errorf("end %+v, want completed", end)
		}
		if n := len(every[frames.TodoWrite](r, sid)); n != 12 {
			t.Errorf("%d todo lists, want 12", n)
		}
		if c := last[frames.SessionCompacted](r, sid); c.UpTo != 1 {
			t.Errorf("compacted %+v", c)
		}
		if res := last[frames.ToolResult](r, sid); res.CallID != "c9" {
			t.Errorf("the call that was left open ended as %+v", res)
		}
	})
}

// What a store says of its files is for the host's log: clients and agents are
// told that storing failed, and no more.
func TestClientsAreNotToldOfFiles(t *testing.T) {
	const path = "/home/ada/.state"
	bubble(t, func(r *rig) {
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			r.disk.fail(errors.New("write " + path + ": no space left"))
			return agent.Result{}, t.Emit(ctx, frames.TodoWrite{})
		})
		r.agent.on("wrap", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			r.pub.full(errors.New("open " + path + ": no space left"))
			d, err := t.Ask(ctx, ask("c", `{"a":"`+strings.Repeat("x", 200<<10)+`"}`))
			if err != nil || d.Allowed() || strings.Contains(d.Feedback, path) {
				r.t.Errorf("decision %+v, %v", d, err)
			}
			return agent.Result{}, t.Emit(ctx, frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text(strings.Repeat("x", 300<<10))}})
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		r.disk.fail(nil)
		time.Sleep(time.Minute)
		r.prompt(sid, "wrap")
		r.wait()
		for _, f := range framesOf[*frames.AgentError](r.pub, sid) {
			if strings.Contains(f.Message, path) {
				t.Errorf("clients were told %q", f.Message)
			}
		}
		for _, e := range r.log(sid) {
			if strings.Contains(string(e.Data), path) {
				t.Errorf("the log says %s", e.Data)
			}
		}
		if n := len(every[frames.TurnEnd](r, sid)); n != 2 {
			t.Errorf("%d turns ended, want 2", n)
		}
	})
}

// Whatever wakes a cold session, what was queued in it runs.
func TestWhateverWakesASessionStartsItsQueue(t *testing.T) {
	for name, wake := range map[string]func(r *rig, sid frames.SessionID){
		"configure": func(r *rig, sid frames.SessionID) {
			r.configure(session.ConfigureArgs{Session: sid, Title: new("x")})
		},
		"inject": func(r *rig, sid frames.SessionID) { r.prompt(sid, "context", mode(frames.ModeInject)) },
		"cancel": func(r *rig, sid frames.SessionID) { r.cancel(sid, "no such turn", true) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.agent.on("go", hang)
				sid := r.create(session.CreateArgs{})
				r.prompt(sid, "go")
				r.prompt(sid, "queued")
				r.wait()
				r.restart()
				r.wait()
				if got := said(r, sid); len(got) != 1 {
					t.Fatalf("turns for %v, want go only: nothing has woken the session", got)
				}
				wake(r, sid)
				r.wait()
				if got := said(r, sid); !slices.Equal(got, []string{"go", "queued"}) {
					t.Errorf("turns for %v, want go and queued", got)
				}
			})
		})
	}
}

// A queued prompt of a cold session is cancelled without having run.
func TestCancelOfAColdQueuedPromptRunsNothing(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", hang)
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		q := r.prompt(sid, "queued")
		r.wait()
		r.restart()
		if !r.cancel(sid, q.Turn, true) {
			t.Error("cancelled = false, want true")
		}
		r.wait()
		if got := said(r, sid); !slices.Equal(got, []string{"go"}) {
			t.Errorf("turns for %v, want go only", got)
		}
	})
}

// Outside of turns an agent speaks for its session, live or cold: what it says is
// stored without a turn, and its failures are told.
func TestAgentSpeaksOutsideOfTurns(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "hello")
		r.wait()
		bg := r.agent.last.Background
		if err := bg.Emit(r.t.Context(), frames.TodoWrite{}); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Minute) // it is cold now
		if err := bg.Emit(r.t.Context(), frames.TodoWrite{}); err != nil {
			t.Error(err)
		}
		bg.Failed("the line is dead")
		if err := bg.Emit(r.t.Context(), frames.TurnEnd{}); err == nil {
			t.Error("it ended a turn")
		}
		r.wait()
		var turns []frames.TurnID
		for _, e := range r.log(sid) {
			if e.Type == frames.TodoWriteEvent {
				turns = append(turns, e.TurnID)
			}
		}
		if !slices.Equal(turns, []frames.TurnID{"", ""}) {
			t.Errorf("stored for turns %q, want twice for none", turns)
		}
		if fs := framesOf[*frames.AgentError](r.pub, sid); len(fs) != 1 || fs[0].Message != "the line is dead" {
			t.Errorf("told %+v", fs)
		}
		if err := r.m.Delete(r.t.Context(), nil, sid, false, nil, nil); err != nil {
			t.Fatal(err)
		}
		if err := bg.Emit(r.t.Context(), frames.TodoWrite{}); !errors.Is(err, session.ErrNoSession) {
			t.Errorf("emit for a deleted session: %v, want ErrNoSession", err)
		}
	})
}

// An agent without a memory of its own reads the session's past, page by page.
func TestAgentReadsThePast(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "one")
		r.prompt(sid, "two")
		r.wait()
		var types []string
		for after := frames.Seq(0); ; {
			evs, err := r.agent.last.History(r.t.Context(), after, 2)
			if err != nil {
				t.Fatal(err)
			}
			if len(evs) == 0 {
				break
			}
			if len(evs) > 2 {
				t.Errorf("%d events, want at most 2", len(evs))
			}
			for _, e := range evs {
				types = append(types, string(e.Type))
				after = e.Seq
			}
		}
		if want := r.types(sid); !slices.Equal(types, want) {
			t.Errorf("read %v, want %v", types, want)
		}
		if err := r.m.Delete(r.t.Context(), nil, sid, false, nil, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := r.agent.last.History(r.t.Context(), 0, 2); !errors.Is(err, session.ErrNoSession) {
			t.Errorf("of a deleted session: %v, want ErrNoSession", err)
		}
	})
}
