package shell

import (
	"context"
	"fmt"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// Help is what the agent answers to "@help".
const Help = "Type a command line; it runs with sh in the session's directory once somebody allows it.\n\n" +
	"- `@spawn CMD` runs CMD in a child session and waits; several lines start several children at once\n" +
	"- `@ask QUESTION | A | B` asks a person; without answers to choose from, for free text\n" +
	"- `CMD &` runs CMD in the background: the turn ends, and tasks show its output and end it\n" +
	"- `@help` shows this\n\n" +
	"While a command runs, steering text goes to its standard input, a line at a time; `@eof` closes it. " +
	"What a command itself starts in the background ends with it."

// maxChildren bounds the children of one prompt.
const maxChildren = 64

// ask asks a person, and says the answer.
func ask(ctx context.Context, t agent.Turn, text string) error {
	q, ok := question(text)
	if !ok {
		return say(ctx, t, "There is no question. Write `@ask QUESTION` or `@ask QUESTION | A | B`.")
	}
	a, err := t.Question(ctx, q)
	if err != nil {
		return fmt.Errorf("shell: asking: %w", err)
	}
	if a.Outcome != frames.Answered {
		return say(ctx, t, fmt.Sprintf("No answer (%s).", a.Cause))
	}
	return say(ctx, t, answerText(a.Answers))
}

func question(text string) (frames.Question, bool) {
	parts := strings.Split(text, "|")
	q := frames.Question{ID: "answer", Question: strings.TrimSpace(parts[0])}
	for _, label := range parts[1:] {
		if label = strings.TrimSpace(label); label != "" {
			q.Options = append(q.Options, frames.QuestionOption{Label: label})
		}
	}
	q.AllowText = len(q.Options) == 0
	return q, q.Question != ""
}

func answerText(answers []frames.Answer) string {
	var said []string
	for _, a := range answers {
		said = append(said, a.Labels...)
		if a.Text != "" {
			said = append(said, a.Text)
		}
	}
	if len(said) == 0 {
		return "The answer is empty."
	}
	return strings.Join(said, ", ")
}

// spawn runs every line in a child session, all at once, and says how they ended.
func spawn(ctx context.Context, t agent.Turn, text string) error {
	lines := children(text)
	if len(lines) == 0 || len(lines) > maxChildren {
		return say(ctx, t, fmt.Sprintf("There are %d command lines. Write `@spawn CMD`, one to %d of them, each on its own line.",
			len(lines), maxChildren))
	}
	type started struct {
		child agent.Child
		err   error
	}
	all := make([]started, len(lines))
	for i, line := range lines {
		all[i].child, all[i].err = t.Spawn(ctx, agent.Spawn{
			Agent: "shell", Title: title(line), Prompt: []frames.ContentBlock{frames.Text(line)},
		})
	}
	var sum strings.Builder
	for i, s := range all {
		var res agent.ChildResult
		if s.err == nil {
			res, s.err = s.child.Wait(ctx)
		}
		fmt.Fprintf(&sum, "%d. `%s`: %s\n", i+1, title(lines[i]), outcome(res, s.err))
	}
	return say(ctx, t, sum.String())
}

// children are the prompts of the lines of text, one "@spawn" taken off each.
func children(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "@spawn"); ok && (rest == "" || rest[0] == ' ' || rest[0] == '\t') {
			line = strings.TrimSpace(rest)
		}
		if line != "" {
			out = append(out, line)
		}
	}
	return out
}

func outcome(res agent.ChildResult, err error) string {
	if err != nil {
		return "did not run: " + err.Error()
	}
	var said []string
	for _, b := range res.Result {
		if b.Text != "" {
			said = append(said, b.Text)
		}
	}
	if res.Message != "" {
		said = append([]string{res.Message}, said...)
	}
	if len(said) == 0 {
		return string(res.Reason)
	}
	return string(res.Reason) + ": " + strings.Join(said, " ")
}
