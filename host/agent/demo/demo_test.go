package demo_test

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/demo"
)

// open opens a session on a fake host that is closed when the test ends.
func open(t *testing.T, speed float64, config string, script agenttest.Script) (*agenttest.Host, *agenttest.Session) {
	t.Helper()
	script.Cwd = "/src/project"
	h := agenttest.New(script, demo.New(demo.Options{Speed: speed}))
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	s, err := h.Open(t.Context(), json.RawMessage(config))
	if err != nil {
		t.Fatal(err)
	}
	return h, s
}

func play(t *testing.T, s *agenttest.Session, prompt string) {
	t.Helper()
	if res, err := s.Prompt(t.Context(), prompt); err != nil || res.Reason != "" {
		t.Fatalf("Prompt(%q) = %+v, %v; want a completed turn", prompt, res, err)
	}
}

func said(s *agenttest.Session) string {
	m := agenttest.Last[frames.AssistantMessage](s)
	if len(m.Content) == 0 {
		return ""
	}
	return m.Content[0].Text
}

// The demonstration passes the suite that every driver passes.
func TestDriverSuite(t *testing.T) {
	agenttest.Run(t, agenttest.Suite{
		Driver: demo.New(demo.Options{Speed: 1}),
		Short:  "hi",
		Long:   "show me",
		Gated:  "show me",
		Bubble: true,

		Background: "background",
		Ran: func(h *agenttest.Host) bool {
			for _, s := range h.Sessions() {
				gated := map[frames.CallID]bool{}
				for _, e := range s.Events() {
					switch e := e.(type) {
					case frames.ApprovalAsked:
						gated[e.CallID] = true
					case frames.ToolResult:
						if gated[e.CallID] && !e.IsError {
							return true
						}
					}
				}
			}
			return false
		},
	})
}

// "show me" shows every kind of thing once, at the depth it promises, and sums
// up what people decided.
func TestShowMeShowsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked agent.Approval
		var depth int
		h, s := open(t, 1, "", agenttest.Script{
			Approve: func(_ context.Context, s *agenttest.Session, a agent.Approval) agent.Decision {
				asked, depth = a, s.Info.Depth
				return agent.Decision{Outcome: frames.Rejected, Cause: frames.CauseReply, Feedback: "too risky"}
			},
			Answer: func(_ context.Context, _ *agenttest.Session, q []frames.Question) agent.Answers {
				return agent.Answers{Outcome: frames.Answered, Answers: []frames.Answer{
					{ID: q[0].ID, Labels: []string{q[0].Options[1].Label}},
				}}
			},
		})
		began := time.Now()
		play(t, s, "show me")
		if d := time.Since(began); d < 5*time.Second || d > time.Minute {
			t.Errorf("it took %v; want a pace that a person can follow", d)
		}
		if n := len(h.Sessions()); n != 4 {
			t.Errorf("%d sessions; want root, two children, a grandchild", n)
		}
		if depth != 2 || asked.Tool.Name != "sh" || string(asked.Input) != `{"command":"rm -rf build && make","cwd":"/src/project"}` {
			t.Errorf("asked at depth %d for %s %s; want sh at depth 2 for the clean build", depth, asked.Tool.Name, asked.Input)
		}
		want := map[frames.EventType]int{
			"reasoning/message": 1, "assistant/message": 2, "todo/write": 3, "tool/call": 1, "tool/result": 1,
			"agent/spawned": 2, "agent/completed": 2, "question/asked": 1, "question/decided": 1,
			"model/start": 1, "model/end": 1, "usage/updated": 1,
		}
		got := map[frames.EventType]int{}
		for _, e := range s.Types() {
			got[e]++
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the root's events = %v; want %v", got, want)
		}
		if n := s.Deltas(); n < 60 || n > 130 {
			t.Errorf("%d pieces were streamed; want about 40 for each long text", n)
		}
		if end := said(s); !strings.Contains(end, "Postgres") || !strings.Contains(end, "was not run: rejected (too risky)") {
			t.Errorf("the last message = %q; want the answer and the rejection in it", end)
		}
	})
}

// What was streamed into a block is what the message for it says.
func TestMessagesEqualWhatWasStreamed(t *testing.T) {
	h, s := open(t, 0, "", agenttest.Script{})
	play(t, s, "show me")
	for _, s := range h.Sessions() {
		for _, e := range s.Events() {
			var blocks []int
			var content []frames.ContentBlock
			switch e := e.(type) {
			case frames.AssistantMessage:
				blocks, content = e.Blocks, e.Content
			case frames.ReasoningMessage:
				blocks, content = e.Blocks, e.Content
			default:
				continue
			}
			if got := s.Text(blocks[0]); got != content[0].Text {
				t.Errorf("block %d was streamed as %q and stored as %q", blocks[0], got, content[0].Text)
			}
		}
	}
}

// Speed 0 waits for nothing, and the config overrides the driver's speed.
func TestConfigSetsThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := func(speed float64, config string) time.Duration {
			_, s := open(t, speed, config, agenttest.Script{})
			began := time.Now()
			play(t, s, "show me")
			return time.Since(began)
		}
		slow := took(1, "")
		if d := took(1, `{"speed":0}`); d != 0 {
			t.Errorf("at speed 0 it took %v; want no time", d)
		}
		if d := took(0, `{"speed":2}`); d < slow*4/10 || d > slow*6/10 {
			t.Errorf("at speed 2 it took %v; want half of %v", d, slow)
		}
	})
}

// The same prompts and answers give the same events.
func TestTheScriptIsDeterministic(t *testing.T) {
	record := func() []frames.Payload {
		_, s := open(t, 0, "", agenttest.Script{})
		play(t, s, "hello there")
		return s.Events()
	}
	a, b := record(), record()
	if !reflect.DeepEqual(a, b) {
		t.Errorf("two runs differ:\n%v\n%v", a, b)
	}
	if !strings.Contains(a[len(a)-2].(frames.AssistantMessage).Content[0].Text, "You said: hello there") {
		t.Errorf("the answer is no echo: %v", a)
	}
}

// Call ids do not repeat over the turns of a session.
func TestCallIDsAreUniqueInASession(t *testing.T) {
	_, s := open(t, 0, `{"role":"asks","count":50,"parallel":7}`, agenttest.Script{})
	play(t, s, "go")
	play(t, s, "go")
	var ids []frames.CallID
	for _, e := range s.Events() {
		if c, ok := e.(frames.ToolCall); ok {
			ids = append(ids, c.CallID)
		}
	}
	slices.Sort(ids)
	if n := len(slices.Compact(ids)); n != 100 {
		t.Errorf("%d different call ids; want 100", n)
	}
	if said(s) != "50 of 50 allowed" {
		t.Errorf("it said %q; want that all were allowed", said(s))
	}
}

// Role stream sends exactly its chunks at exactly its pace, and stores a message
// every so often.
func TestStreamKeepsItsCountAndPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := open(t, 0, `{"role":"stream","chunks":100,"size":50,"everyMs":10,"durableEvery":30}`, agenttest.Script{})
		began := time.Now()
		play(t, s, "go")
		if d := time.Since(began); d != time.Second {
			t.Errorf("it took %v; want 1s", d)
		}
		if s.Deltas() != 100 || len(s.Events()) != 4 {
			t.Errorf("%d chunks, %d messages; want 100 and 4", s.Deltas(), len(s.Events()))
		}
		if got := s.Text(0); len(got) != 30*50 || !strings.HasPrefix(got, "0 ...") {
			t.Errorf("block 0 = %d bytes %.20q; want 30 chunks of 50 bytes", len(got), got)
		}
	})
}

// A pause of any length ends with its turn.
func TestPausesEndWithTheTurn(t *testing.T) {
	for _, config := range []string{`{"speed":0.00001}`, `{"role":"stream","chunks":2,"everyMs":3600000}`} {
		synctest.Test(t, func(t *testing.T) {
			_, s := open(t, 1, config, agenttest.Script{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if _, err := s.Prompt(ctx, "show me"); err != nil {
				t.Errorf("%s: Prompt = %v", config, err)
			}
			if d := time.Since(began); d != time.Second {
				t.Errorf("%s: the turn ended after %v; want 1s, when it was cancelled", config, d)
			}
		})
	}
}

// Open text stays below what the host would cut by itself.
func TestStreamNeverLeavesTooMuchOpen(t *testing.T) {
	_, s := open(t, 0, `{"role":"stream","chunks":40,"size":65536}`, agenttest.Script{})
	play(t, s, "go")
	for _, e := range s.Events() {
		if n := len(e.(frames.AssistantMessage).Content[0].Text); n > frames.MaxOpenText {
			t.Errorf("a message of %d bytes; want at most %d", n, frames.MaxOpenText)
		}
	}
}

// Role spawns builds the whole tree and waits for it.
func TestSpawnsBuildsTheTree(t *testing.T) {
	h, s := open(t, 0, `{"role":"spawns","count":3,"depth":2}`, agenttest.Script{})
	play(t, s, "go")
	if n := len(h.Sessions()); n != 1+3+9 {
		t.Errorf("%d sessions; want 13", n)
	}
	if said(s) != "3 of 3 children completed" {
		t.Errorf("it said %q", said(s))
	}
}

// A config that says something unknown, or too much, opens nothing.
func TestOddConfigIsRefused(t *testing.T) {
	h := agenttest.New(agenttest.Script{}, demo.New(demo.Options{}))
	for _, c := range []string{
		`{"sped":1}`, `{"speed":-1}`, `{"role":"boss"}`, `{"chunks":-1}`, `{"size":1000000}`, `{"depth":17}`, `[]`, `"x"`,
	} {
		if _, err := h.Open(t.Context(), json.RawMessage(c)); err == nil {
			t.Errorf("config %s was taken; want an error", c)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// "background" begins a task that outlives the turn, prints at the script's pace
// and ends by itself.
func TestBackgroundBeginsATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := open(t, 1, "", agenttest.Script{})
		play(t, s, "background")
		k := s.Tasks()[0]
		began := time.Now()
		status, detail := k.Wait()
		if d := time.Since(began); status != "completed" || detail != "8 steps" || d < time.Second || !strings.HasSuffix(k.Printed(), "linking\ndone\n") {
			t.Errorf("the task ended %s (%s) %v after the turn and printed %q", status, detail, d, k.Printed())
		}
		if !strings.Contains(said(s), string(k.ID())) {
			t.Errorf("it said %q, want the task's id", said(s))
		}
	})
}

// Role tasks begins its tasks, which print exactly their chunks, or go on until
// they are cancelled.
func TestRoleTasksKeepsItsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := open(t, 0, `{"role":"tasks","count":3,"chunks":4,"size":9,"everyMs":250}`, agenttest.Script{})
		began := time.Now()
		play(t, s, "go")
		for _, k := range s.Tasks() {
			if status, _ := k.Wait(); status != "completed" || len(k.Printed()) != 40 {
				t.Errorf("%s: %s, printed %q", k.Label, status, k.Printed())
			}
		}
		if d := time.Since(began); d != time.Second || len(s.Tasks()) != 3 {
			t.Errorf("%d tasks took %v, want 3 and 1s", len(s.Tasks()), d)
		}
		_, s = open(t, 0, `{"role":"tasks","everyMs":1000}`, agenttest.Script{})
		play(t, s, "go")
		wait := time.NewTimer(time.Hour)
		<-wait.C
		k := s.Tasks()[0]
		k.Cancel()
		if status, _ := k.Wait(); status != "cancelled" || strings.Count(k.Printed(), "\n") < 3600 {
			t.Errorf("it ended %s after %d lines, want cancelled after an hour", status, strings.Count(k.Printed(), "\n"))
		}
	})
}
