package acp_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

const (
	canResume = `"loadSession":true,"sessionCapabilities":{"resume":{}}`
	canClose  = `"loadSession":true,"sessionCapabilities":{"resume":{},"close":{}}`
)

// crowd is an agent that holds several sessions, s1, s2 and so on.
type crowd struct {
	*fake
	mu     sync.Mutex
	n      int
	heard  []string           // methods and the sessions that they name
	opened map[string]string  // directories by session
	turns  map[string]message // the prompt that runs in each session
}

// serveCrowd plays a crowd whose prompts are ended by the test, or by prompt.
func serveCrowd(caps string, each func(*crowd), prompt func(c *crowd, id string, m message)) func(*fake) {
	return func(f *fake) {
		c := &crowd{fake: f, opened: map[string]string{}, turns: map[string]message{}}
		each(c)
		for {
			m, ok := f.recv()
			if !ok {
				return
			}
			id := field(m.Params, "sessionId")
			c.mu.Lock()
			c.heard = append(c.heard, strings.TrimSpace(m.Method+" "+id))
			c.mu.Unlock()
			switch m.Method {
			case "initialize":
				f.result(m, `{"protocolVersion":1,"agentCapabilities":{`+caps+`}}`)
			case "session/new":
				c.mu.Lock()
				c.n++
				id := fmt.Sprintf("s%d", c.n)
				c.opened[id] = field(m.Params, "cwd")
				c.mu.Unlock()
				f.result(m, fmt.Sprintf(`{"sessionId":%q}`, id))
			case "session/resume", "session/close":
				f.result(m, `{}`)
			case "session/prompt":
				c.mu.Lock()
				c.turns[id] = m
				c.mu.Unlock()
				prompt(c, id, m)
			}
		}
	}
}

// did reports whether the host sent a method for a session.
func (c *crowd) did(what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.heard, what)
}

// finish ends the turn of a session.
func (c *crowd) finish(id, reason string) {
	c.mu.Lock()
	m := c.turns[id]
	c.mu.Unlock()
	c.end(m, reason)
}

// sharing opens n sessions of one host on a driver. It returns what the driver's agents
// are, in the order in which they were started.
func sharing(t *testing.T, n int, o acp.Options, sc agenttest.Script, caps string, prompt func(c *crowd, id string, m message)) ([]*agenttest.Session, func() []*crowd, agent.Driver) {
	t.Helper()
	var mu sync.Mutex
	var crowds []*crowd
	d := driver(t, o, serveCrowd(caps, func(c *crowd) {
		mu.Lock()
		defer mu.Unlock()
		crowds = append(crowds, c)
	}, prompt))
	h, first := openHost(t, sc, d)
	all := []*agenttest.Session{first}
	for len(all) < n {
		s, err := h.Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all, func() []*crowd { mu.Lock(); defer mu.Unlock(); return slices.Clone(crowds) }, d
}

func ends(c *crowd, id string, _ message) { c.finish(id, "end_turn") }

func never(*crowd, string, message) {}

// background runs a turn, and returns how it ends.
func background(wg *sync.WaitGroup, ctx context.Context, s *agenttest.Session) func() (agent.Result, error) {
	var res agent.Result
	var err error
	done := make(chan struct{})
	wg.Go(func() { res, err = s.Prompt(ctx, "go"); close(done) })
	return func() (agent.Result, error) { <-done; return res, err }
}

// Sessions of an agent that can open them again share its process: each has its own
// directory, and hears only what is said in it.
func TestSessionsShareAProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asked := map[frames.SessionID]frames.CallID{}
		sc := agenttest.Script{Approve: func(_ context.Context, s *agenttest.Session, a agent.Approval) agent.Decision {
			asked[s.Info.ID] = a.Call
			return agent.Decision{Outcome: frames.AllowedOnce}
		}}
		all, agents, _ := sharing(t, 2, acp.Options{}, sc, canResume, func(c *crowd, id string, _ message) {
			if id == "s2" {
				return
			}
			c.updateOf("s1", chunk("one"))
			c.updateOf("s2", chunk("two"))
			c.ask("0", "s2", "c2")
			c.answered("0")
			c.ask("1", "s1", "c1")
			c.answered("1")
			c.finish("s1", "end_turn")
			c.finish("s2", "end_turn")
		})
		var wg sync.WaitGroup
		second := background(&wg, t.Context(), all[1])
		synctest.Wait()
		prompt(t, all[0])
		if _, err := second(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if n := len(agents()); n != 1 {
			t.Errorf("%d processes were started; want 1", n)
		}
		for i, want := range []string{"one", "two"} {
			if got := agenttest.Last[frames.AssistantMessage](all[i]).Content[0].Text; got != want {
				t.Errorf("session %d was told %q; want %q", i, got, want)
			}
			if got, want := asked[all[i].Info.ID], frames.CallID(fmt.Sprint("c", i+1)); got != want {
				t.Errorf("session %d was asked for %q; want %q", i, got, want)
			}
		}
	})
}

// An agent that cannot open a session again, one that is configured so, and one that
// might mix up the tools of its sessions, has one process for each session.
func TestOneProcessForEachSession(t *testing.T) {
	for name, c := range map[string]struct {
		caps string
		o    acp.Options
	}{
		"cannot reopen": {``, acp.Options{}},
		"configured":    {canResume, acp.Options{OneSession: true}},
		"with tools":    {`"mcpCapabilities":{"http":true},` + canResume, acp.Options{Tools: &doors{state: map[string]string{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				all, agents, _ := sharing(t, 3, c.o, agenttest.Script{}, c.caps, ends)
				for _, s := range all {
					prompt(t, s)
				}
				if n := len(agents()); n != 3 {
					t.Errorf("%d processes; want 3", n)
				}
				if err := all[1].Close(t.Context()); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				select {
				case <-agents()[1].killed:
				default:
					t.Error("the process outlives its session")
				}
				prompt(t, all[2])
			})
		})
	}
}

// An agent that is known to keep tools apart shares its process with them, too.
func TestToolsInASharedProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tools := &doors{state: map[string]string{}}
		all, agents, _ := sharing(t, 2, acp.Options{Shared: true, Tools: tools}, agenttest.Script{}, `"mcpCapabilities":{"http":true},`+canResume, ends)
		for _, s := range all {
			prompt(t, s)
		}
		if len(agents()) != 1 || tools.n != 2 {
			t.Errorf("%d processes, %d offers; want one process, and an offer for each session", len(agents()), tools.n)
		}
	})
}

// A shared process is kept for a while after its last session left, and then ended in
// order; who comes in between joins it, who comes later starts another.
func TestASharedProcessIsKeptForAWhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		all, agents, d := sharing(t, 2, acp.Options{IdleStop: 30 * time.Second}, agenttest.Script{}, canClose, ends)
		h := agenttest.New(agenttest.Script{Cwd: "/src/other"}, d)
		for _, s := range all {
			prompt(t, s)
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if c := agents()[0]; !c.did("session/close s1") || !c.did("session/close s2") {
			t.Errorf("the agent heard %v; want that its sessions are closed", c.heard)
		}
		for range 3 {
			<-time.After(29 * time.Second)
			s, err := h.Open(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if n, cwd := len(agents()), agents()[0].opened["s5"]; n != 1 || cwd != "/src/other" {
			t.Errorf("%d processes, directory %q; want 1, and the session's directory", n, cwd)
		}
		<-time.After(31 * time.Second)
		select {
		case <-agents()[0].killed:
		default:
			t.Error("the process runs 31s after its last session left")
		}
		if _, err := h.Open(t.Context(), nil); err != nil || len(agents()) != 2 {
			t.Errorf("Open = %v with %d processes; want a second one", err, len(agents()))
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
}

// What an agent asks in a session that nobody has open is refused, and nobody is asked:
// another session's answer must not count for it. The same holds for a session that was
// closed.
func TestARequestOfAnUnknownSessionIsRefused(t *testing.T) {
	for _, id := range []string{"nobody's", "s3"} {
		bubble(t, func(t *testing.T) {
			all, _, _ := sharing(t, 3, acp.Options{}, agenttest.Script{Approve: always}, canResume, func(c *crowd, _ string, _ message) {
				c.updateOf(id, chunk("stray"))
				c.ask("0", id, "c1")
				if a, _ := c.answered("0"); !cancelled(a) {
					t.Errorf("the answer is %s; want cancelled", a.Result)
				}
				c.finish("s1", "end_turn")
			})
			if err := all[2].Close(t.Context()); err != nil {
				t.Error(err)
			}
			prompt(t, all[0])
			for _, s := range all {
				if n := count[frames.ApprovalAsked](s) + count[frames.AssistantMessage](s); n != 0 {
					t.Errorf("%s has %d events of a foreign session; want 0", s.Info.ID, n)
				}
			}
			if told := len(all[1].Failures()); told != map[bool]int{true: 1, false: 0}[id == "nobody's"] {
				t.Errorf("told %d times", told)
			}
		})
	}
}

// A session that was left alone in a process does not inherit what the agent says of
// sessions that it never told of.
func TestTheLastSessionInheritsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		all, _, _ := sharing(t, 2, acp.Options{}, agenttest.Script{Approve: always}, canResume, func(c *crowd, _ string, _ message) {
			for i, id := range []string{"s2", "never told"} {
				c.updateOf(id, chunk("stray"))
				c.ask(fmt.Sprint(i), id, "c1")
				if a, _ := c.answered(fmt.Sprint(i)); !cancelled(a) {
					t.Errorf("the answer for %q is %s; want cancelled", id, a.Result)
				}
			}
			c.finish("s1", "end_turn")
		})
		if err := all[1].Close(t.Context()); err != nil {
			t.Error(err)
		}
		prompt(t, all[0])
		if n := count[frames.ApprovalAsked](all[0]) + count[frames.AssistantMessage](all[0]); n != 0 {
			t.Errorf("%d events of foreign sessions; want 0", n)
		}
	})
}

// A session whose cancelled turn does not end is closed at the agent, and the others go
// on; its own next turn opens it again.
func TestAStuckTurnDoesNotHarmOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		all, agents, _ := sharing(t, 2, acp.Options{}, agenttest.Script{}, canClose, never)
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		stuck, other := background(&wg, ctx, all[0]), background(&wg, t.Context(), all[1])
		synctest.Wait()
		began := time.Now()
		cancel()
		if res, err := stuck(); err != nil || res.Reason != frames.TurnCancelled || time.Since(began) > 8*time.Second {
			t.Errorf("the stuck turn = %+v, %v after %v; want cancelled within 8s", res, err, time.Since(began))
		}
		c := agents()[0]
		c.finish("s2", "end_turn")
		if res, err := other(); err != nil || res.Reason != frames.TurnCompleted {
			t.Errorf("the other turn = %+v, %v; want completed", res, err)
		}
		again := background(&wg, t.Context(), all[0])
		synctest.Wait()
		c.finish("s1", "end_turn")
		if _, err := again(); err != nil || !c.did("session/close s1") || !c.did("session/resume s1") || len(agents()) != 1 {
			t.Errorf("the next turn: %v; the agent heard %v; want the session closed and opened again", err, c.heard)
		}
		wg.Wait()
	})
}

// Where the agent cannot close a session its process is killed. Turns of other sessions
// end with an error that says why, what was asked there is settled, and the next prompt
// resumes.
func TestAKilledProcessIsToldOfAndResumed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		all, agents, _ := sharing(t, 2, acp.Options{}, agenttest.Script{Approve: wait}, canResume, func(c *crowd, id string, _ message) {
			if c.fake.n > 0 {
				c.finish(id, "end_turn")
			} else if id == "s2" {
				c.ask("0", "s2", "c1")
			}
		})
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		stuck, other := background(&wg, ctx, all[0]), background(&wg, t.Context(), all[1])
		synctest.Wait()
		cancel()
		if res, err := stuck(); err != nil || res.Reason != frames.TurnCancelled {
			t.Errorf("the stuck turn = %+v, %v; want cancelled", res, err)
		}
		if _, err := other(); err == nil || !strings.Contains(err.Error(), "which other sessions used too") {
			t.Errorf("the other turn = %v; want that its process was killed for another's sake", err)
		}
		if d := agenttest.Last[frames.ApprovalDecided](all[1]); d.Outcome != frames.Cancelled {
			t.Errorf("decided %+v; want cancelled", d)
		}
		prompt(t, all[1])
		prompt(t, all[0])
		if a := agents(); len(a) != 2 || !a[1].did("session/resume s1") || !a[1].did("session/resume s2") {
			t.Errorf("%d processes; want a second one, which resumes both", len(a))
		}
		wg.Wait()
	})
}

// One session's words do not hide another's silence.
func TestSilenceIsJudgedForEachSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		all, agents, _ := sharing(t, 2, acp.Options{StallNotice: time.Minute, StallTimeout: 5 * time.Minute, CancelGrace: time.Second},
			agenttest.Script{}, canClose, never)
		var wg sync.WaitGroup
		loud, silent := background(&wg, t.Context(), all[0]), background(&wg, t.Context(), all[1])
		synctest.Wait()
		for range 12 {
			<-time.After(30 * time.Second)
			agents()[0].updateOf("s1", chunk("x"))
		}
		if _, err := silent(); err == nil || !strings.Contains(err.Error(), "said nothing for too long") {
			t.Errorf("the silent turn = %v; want that it was cancelled", err)
		}
		agents()[0].finish("s1", "end_turn")
		if _, err := loud(); err != nil || count[frames.ErrorReported](all[0]) != 0 || count[frames.ErrorReported](all[1]) != 1 {
			t.Errorf("the loud turn = %v; reported %d and %d times; want the silent one, once", err,
				count[frames.ErrorReported](all[0]), count[frames.ErrorReported](all[1]))
		}
		wg.Wait()
	})
}

// A start that one session gives up goes on for those that wait for it too; where none
// waits any more it is given up.
func TestAStartIsSharedToo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		starts := 0
		d := driver(t, acp.Options{}, func(f *fake) {
			starts++
			select {
			case <-time.After(20 * time.Second):
			case <-f.killed:
				return
			}
			serveCrowd(canResume, func(*crowd) {}, ends)(f)
		})
		h := agenttest.New(agenttest.Script{Cwd: "/src/demo"}, d)
		defer shut(t, d)
		defer h.Close()
		hasty, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := h.Open(hasty, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Open = %v; want that it was given up", err)
			}
		})
		if _, err := h.Open(t.Context(), nil); err != nil || starts != 1 {
			t.Errorf("Open = %v after %d starts; want one", err, starts)
		}
		wg.Wait()
	})
	bubble(t, func(t *testing.T) {
		var killed time.Duration
		began := time.Now()
		d := driver(t, acp.Options{}, func(f *fake) { <-f.killed; killed = time.Since(began) })
		h := agenttest.New(agenttest.Script{Cwd: "/src/demo"}, d)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := h.Open(ctx, nil); err == nil {
			t.Error("Open succeeded; want that it was given up")
		}
		<-time.After(time.Minute)
		shut(t, d)
		if killed != 10*time.Second {
			t.Errorf("the process was killed after %v; want 10s", killed)
		}
	})
}

// A process whose first session could not be opened is ended at once: what is mended in
// the agent's configuration counts for the next try.
func TestAProcessThatOpensNoSessionIsEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		starts, ended := 0, false
		d := driver(t, acp.Options{ApprovalMode: "ask"}, func(f *fake) {
			starts++
			serveCrowd(canResume, func(*crowd) {}, ends)(f)
			ended = true
		})
		h := agenttest.New(agenttest.Script{Cwd: "/src/demo"}, d)
		defer shut(t, d)
		began := time.Now()
		if _, err := h.Open(t.Context(), nil); err == nil || !ended || time.Since(began) > time.Second {
			t.Errorf("Open = %v after %v, ended: %t; want an error, and no process", err, time.Since(began), ended)
		}
		if _, err := h.Open(t.Context(), nil); err == nil || starts != 2 {
			t.Errorf("Open = %v with %d starts; want another start", err, starts)
		}
	})
}

// Close ends processes that nobody uses, and those that are still being started, waits
// for them, and starts no more.
func TestTheDriverIsClosed(t *testing.T) {
	for name, hello := range map[string]bool{"idle": true, "starting": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				exited := false
				d := driver(t, acp.Options{}, func(f *fake) {
					if hello {
						serveCrowd(canResume, func(*crowd) {}, ends)(f)
					} else {
						<-f.killed
					}
					exited = true
				})
				h := agenttest.New(agenttest.Script{Cwd: "/src/demo"}, d)
				var wg sync.WaitGroup
				wg.Go(func() {
					if _, err := h.Open(t.Context(), nil); (err == nil) != hello {
						t.Errorf("Open = %v", err)
					}
					if err := h.Close(); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				shut(t, d)
				if !exited {
					t.Error("Close returned before the process had ended")
				}
				wg.Wait()
				if _, err := h.Open(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "going down") {
					t.Errorf("Open = %v; want that the host is going down", err)
				}
			})
		})
	}
}
