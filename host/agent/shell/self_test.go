package shell_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/shell"
)

// said is the text of the assistant's last message.
func said(s *agenttest.Session) string {
	var all []string
	for _, b := range agenttest.Last[frames.AssistantMessage](s).Content {
		all = append(all, b.Text)
	}
	return strings.Join(all, "\n")
}

// Several lines of @spawn run at the same time: each waits for the other one.
func TestSpawnRunsChildrenAtOnce(t *testing.T) {
	h, s := open(t, shell.Options{}, agenttest.Script{})
	if _, err := s.Prompt(t.Context(), "mkfifo a b"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prompt(t.Context(), "@spawn echo 1 > a; cat b\n@spawn cat a; echo 2 > b\n"); err != nil {
		t.Fatal(err)
	}
	want := "1. `echo 1 > a; cat b`: completed\n2. `cat a; echo 2 > b`: completed\n"
	if got := said(s); got != want {
		t.Errorf("summary = %q; want %q", got, want)
	}
	if n := len(h.Sessions()); n != 3 {
		t.Errorf("%d sessions; want the root and two children", n)
	}
}

// A child may spawn, and its commands are asked for in its own session.
func TestSpawnNests(t *testing.T) {
	h, s := open(t, shell.Options{}, agenttest.Script{})
	if _, err := s.Prompt(t.Context(), "@spawn @spawn echo deep"); err != nil {
		t.Fatal(err)
	}
	all := h.Sessions()
	if len(all) != 3 || all[2].Info.Depth != 2 {
		t.Fatalf("%d sessions; want three, the last at depth 2", len(all))
	}
	if got := text(agenttest.Last[frames.ToolResult](all[2])); got != "deep\n" {
		t.Errorf("the grandchild's result = %q; want deep", got)
	}
	if got := said(s); !strings.Contains(got, "completed: 1. `echo deep`: completed") {
		t.Errorf("summary = %q; want the child's own in it", got)
	}
}

// @ask offers what it is given, and without that takes free text.
func TestAskSaysTheAnswer(t *testing.T) {
	var asked []frames.Question
	_, s := open(t, shell.Options{}, agenttest.Script{Answer: func(_ context.Context, _ *agenttest.Session, q []frames.Question) agent.Answers {
		asked = append(asked, q...)
		a := frames.Answer{ID: q[0].ID, Text: "as you like"}
		if len(q[0].Options) > 0 {
			a = frames.Answer{ID: q[0].ID, Labels: []string{q[0].Options[1].Label}}
		}
		return agent.Answers{Outcome: frames.Answered, Answers: []frames.Answer{a}}
	}})
	for prompt, want := range map[string]string{
		"@ask Which one? | red | dark blue": "dark blue",
		"@ask How?":                         "as you like",
		"@ask":                              "There is no question. Write `@ask QUESTION` or `@ask QUESTION | A | B`.",
	} {
		if _, err := s.Prompt(t.Context(), prompt); err != nil || said(s) != want {
			t.Errorf("%q = %q, %v; want %q", prompt, said(s), err, want)
		}
	}
	for _, q := range asked {
		if q.AllowText != (len(q.Options) == 0) {
			t.Errorf("question %+v; want free text exactly where there are no options", q)
		}
	}
	if len(asked) != 2 {
		t.Errorf("%d questions were asked; want 2", len(asked))
	}
}

// Whatever people answer, the processes that start are those that were allowed,
// each once, with exactly the allowed input.
func TestNoStartWithoutAnAllowForThatInput(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	cwd := dir(t)
	log := filepath.Join(cwd, "log")
	var mu sync.Mutex
	var want []string
	decide := func(_ context.Context, _ *agenttest.Session, a agent.Approval) agent.Decision {
		mu.Lock()
		defer mu.Unlock()
		d := agent.Decision{Outcome: []frames.Outcome{
			frames.AllowedOnce, frames.AllowedAlways, frames.Rejected, frames.Unavailable, "odd",
		}[r.IntN(5)], Cause: frames.CauseReply}
		if d.Outcome.Allows() {
			want = append(want, strings.Fields(string(a.Input))[1])
		} else {
			d.Input = a.Input // must not matter
		}
		return d
	}
	_, s := open(t, shell.Options{}, agenttest.Script{Cwd: cwd, Approve: decide})
	for i := range 40 {
		n := strconv.Itoa(i)
		prompt := "echo " + n + " >> log"
		if i%5 == 0 {
			prompt = "@spawn echo " + n + " >> log"
		}
		if _, err := s.Prompt(t.Context(), prompt); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(b)); !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("ran %v; want %v", got, want)
	}
}
