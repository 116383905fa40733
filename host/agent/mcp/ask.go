package mcp

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// askArgs are those of ask_user.
type askArgs struct {
	Questions []asked `json:"questions"`
}

// asked is one question.
type asked struct {
	Question    string                  `json:"question"`
	Header      string                  `json:"header"`
	Options     []frames.QuestionOption `json:"options"`
	MultiSelect bool                    `json:"multiSelect"`
	AllowText   bool                    `json:"allowText"`
}

// check returns the question as people are asked it, numbered n.
func (a asked) check(n int) (frames.Question, error) {
	if strings.TrimSpace(a.Question) == "" {
		return frames.Question{}, fmt.Errorf("question %d is empty; want one that a person can answer", n)
	}
	seen := map[string]bool{}
	for _, o := range a.Options {
		if strings.TrimSpace(o.Label) == "" || seen[o.Label] {
			return frames.Question{}, fmt.Errorf("question %d has an option that is empty or stands there twice: %q", n, o.Label)
		}
		seen[o.Label] = true
	}
	return frames.Question{
		ID: strconv.Itoa(n), Header: a.Header, Question: a.Question, Options: a.Options,
		MultiSelect: a.MultiSelect, AllowText: a.AllowText || len(a.Options) == 0,
	}, nil
}

// ask asks people and says what they answered. That nobody did is no error: the
// model is told to go on.
func (c *call) ask(in askArgs) (string, error) {
	var qs []frames.Question
	for i, a := range in.Questions {
		q, err := a.check(i + 1)
		if err != nil {
			return "", err
		}
		qs = append(qs, q)
	}
	a, err := c.turn().Question(c.ctx, qs...)
	if err != nil {
		return "", c.failed("nobody was asked", err)
	}
	if a.Outcome != frames.Answered {
		return unanswered(a.Cause) + ". Decide by yourself what is safe, or stop and say what you need to know.", nil
	}
	return answers(qs, a.Answers), nil
}

// unanswered says why there is no answer. Who dismisses a question has seen it.
func unanswered(cause frames.Cause) string {
	switch cause {
	case frames.CauseReply:
		return "It was dismissed"
	case frames.CauseTimeout:
		return "Nobody answered: the time is up"
	case frames.CausePolicy, frames.CauseModeChange:
		return "Nobody answered: in this session nobody is asked"
	case frames.CauseShutdown:
		return "Nobody answered: the host is going down"
	case frames.CauseAbort, frames.CauseCascade:
		return "Nobody answered: the question was withdrawn"
	default:
		return "Nobody answered: " + string(cause)
	}
}

// answers lists what was answered, below its question.
func answers(qs []frames.Question, as []frames.Answer) string {
	var b strings.Builder
	for i, q := range qs {
		if i > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(q.Question)
		said := "(no answer)"
		for _, a := range as {
			if a.ID != q.ID {
				continue
			}
			parts := append([]string(nil), a.Labels...)
			if a.Text != "" {
				parts = append(parts, a.Text)
			}
			said = strings.Join(parts, "; ")
		}
		b.WriteString("\nAnswer: " + said)
	}
	return b.String()
}

// failed is the error of a call that could not do its work, in words for the model.
func (c *call) failed(what string, err error) error {
	switch {
	case errors.Is(err, agent.ErrTurnOver), errors.Is(err, ErrClosed):
		return fmt.Errorf("%s: the turn is over", what)
	case errors.Is(err, agent.ErrBudget):
		return fmt.Errorf("%s: the budget of this session, or of one above it, is used up: start nothing more, and say what is done", what)
	case c.ctx.Err() != nil:
		return fmt.Errorf("%s: the call was cancelled", what)
	}
	return fmt.Errorf("%s: %w", what, err)
}
