package acp_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// elicited opens a session whose agent asks with a form of these properties, and returns
// the agent's answer as text.
func elicited(t *testing.T, form string, person func(context.Context, *agenttest.Session, []frames.Question) agent.Answers) (*agenttest.Session, string) {
	t.Helper()
	got := ""
	s := open(t, agenttest.Script{Answer: person}, driver(t, acp.Options{}, func(f *fake) {
		f.serve(func(m message) {
			f.line(`{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"sessionId":"s1","mode":"form","message":"M","requestedSchema":{"type":"object",%s}}}`, form)
			a, _ := f.answered("0")
			got = string(a.Result)
			f.end(m, "end_turn")
		})
	}))
	prompt(t, s)
	return s, got
}

// Quirk 33: what does not fit the form is asked for again, and only that; a person sees
// what it must be.
func TestWhatDoesNotFitAFormIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var rounds []string
		person := func(_ context.Context, _ *agenttest.Session, q []frames.Question) agent.Answers {
			var asked []string
			for _, one := range q {
				asked = append(asked, one.Question)
			}
			rounds = append(rounds, strings.Join(asked, " | "))
			a := agent.Answers{Outcome: frames.Answered, Cause: frames.CauseReply}
			switch len(rounds) {
			case 1:
				a.Answers = []frames.Answer{{ID: "name", Text: "ok"}, {ID: "n", Text: "many"}}
			case 2:
				a.Answers = []frames.Answer{{ID: "n", Text: "9"}}
			default:
				a.Answers = []frames.Answer{{ID: "n", Text: " 3 "}}
			}
			return a
		}
		const form = `"properties":{"name":{"type":"string","title":"Name?","maxLength":5,"default":"x"},"n":{"type":"integer","title":"How many?","minimum":1,"maximum":5}},"required":["name","n"]`
		_, got := elicited(t, form, person)
		if got != `{"action":"accept","content":{"n":3,"name":"ok"}}` {
			t.Errorf("the answer is %s; want both values", got)
		}
		const again = "This needs a whole number, at least 1, at most 5. How many? (a whole number, at least 1, at most 5)"
		want := []string{"Name? (text, at most 5 characters; default: x) | How many? (a whole number, at least 1, at most 5)", again, again}
		if fmt.Sprint(rounds) != fmt.Sprint(want) {
			t.Errorf("asked %q; want %q", rounds, want)
		}
	})
}

// A form that nobody fills in as it needs is declined in the end, and that is told.
func TestAFormThatIsNeverFilledInIsDeclined(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rounds := 0
		s, got := elicited(t, `"properties":{"n":{"type":"number","title":"N"}},"required":["n"]`, func(context.Context, *agenttest.Session, []frames.Question) agent.Answers {
			rounds++
			return agent.Answers{Outcome: frames.Answered, Cause: frames.CauseReply, Answers: []frames.Answer{{ID: "n", Text: "x"}}}
		})
		if got != `{"action":"decline"}` || rounds != 3 || len(s.Failures()) != 1 || !strings.Contains(s.Failures()[0], "a number") {
			t.Errorf("answered %s after %d rounds, told %v; want declined after 3, and why", got, rounds, s.Failures())
		}
	})
}

const submit = `[{"optionId":"proceed_once","name":"Submit","kind":"allow_once"},{"optionId":"cancel","name":"Cancel","kind":"reject_once"}]`

// Quirk 33: questions that come as a permission request are asked as questions, and the
// answers go back beside the option that submits them.
func TestQuestionsInAPermissionRequest(t *testing.T) {
	const input = `{"questions":[{"question":"Which color?","header":"Color","options":[{"label":"Red","description":"warm"},{"label":"Blue"}]},{"question":"Which ones?","options":[{"label":"a"},{"label":"b"}],"multiSelect":true}]}`
	for name, c := range map[string]struct {
		answers agent.Answers
		want    string
	}{
		"answered": {
			agent.Answers{Outcome: frames.Answered, Cause: frames.CauseReply, Answers: []frames.Answer{{ID: "0", Labels: []string{"Blue"}}, {ID: "1", Labels: []string{"a", "b"}, Text: "c"}}},
			`{"outcome":{"outcome":"selected","optionId":"proceed_once"},"answers":{"0":"Blue","1":"a, b, c"}}`,
		},
		"declined":  {agent.Answers{Outcome: frames.Cancelled, Cause: frames.CauseReply}, `{"outcome":{"outcome":"selected","optionId":"cancel"}}`},
		"timed out": {agent.Answers{Outcome: frames.Cancelled, Cause: frames.CauseTimeout}, `{"outcome":{"outcome":"cancelled"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				got := ""
				person := func(context.Context, *agenttest.Session, []frames.Question) agent.Answers { return c.answers }
				s := open(t, agenttest.Script{Answer: person, Approve: always}, driver(t, acp.Options{}, func(f *fake) {
					f.serve(func(m message) {
						f.line(`{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s1","toolCall":{"toolCallId":"c","kind":"think","rawInput":%s},"options":%s}}`, input, submit)
						a, _ := f.answered("0")
						got = string(a.Result)
						f.end(m, "end_turn")
					})
				}))
				prompt(t, s)
				if got != c.want || count[frames.ApprovalAsked](s) != 0 {
					t.Errorf("answered %s, %d approvals; want %s, and none", got, count[frames.ApprovalAsked](s), c.want)
				}
				q := agenttest.Last[frames.QuestionAsked](s).Questions
				if len(q) != 2 || q[0].Header != "Color" || q[0].Options[0].Description != "warm" || !q[1].MultiSelect {
					t.Errorf("asked %+v", q)
				}
			})
		})
	}
}

// A request that holds more than questions is a request for permission, whatever it
// shows: no answer to a question lets anything run.
func TestOnlyQuestionsAreAskedAsQuestions(t *testing.T) {
	for name, call := range map[string]string{
		"another input": `"kind":"think","rawInput":{"command":"rm x","questions":[{"question":"Sure?"}]}`,
		"another kind":  `"kind":"execute","rawInput":{"questions":[{"question":"Sure?"}]}`,
		"no kind":       `"rawInput":{"questions":[{"question":"Sure?"}]}`,
		"no questions":  `"kind":"think","rawInput":{"questions":[]}`,
		"no text":       `"kind":"think","rawInput":{"questions":[{"header":"x"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := open(t, agenttest.Script{Approve: reject}, driver(t, acp.Options{}, func(f *fake) {
					f.serve(func(m message) {
						f.line(`{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s1","toolCall":{"toolCallId":"c",%s},"options":%s}}`, call, submit)
						if a, _ := f.answered("0"); field(a.Result, "outcome", "optionId") != "cancel" {
							t.Errorf("answered %s; want the rejection", a.Result)
						}
						f.end(m, "end_turn")
					})
				}))
				prompt(t, s)
				if count[frames.ApprovalAsked](s) != 1 || count[frames.QuestionAsked](s) != 0 {
					t.Errorf("events:\n%s\nwant an approval", show(s.Events()))
				}
			})
		})
	}
}
