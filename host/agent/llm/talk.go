package llm

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

const (
	maxTodos   = 200
	maxOptions = 20
)

// spawnInput hands a task to a child session.
type spawnInput struct {
	Agent  string `json:"agent,omitempty"`
	Prompt string `json:"prompt"`
	Title  string `json:"title,omitempty"`
}

func (in *spawnInput) check(string) error {
	if strings.TrimSpace(in.Prompt) == "" {
		return errors.New("the argument \"prompt\" is missing; want all that the other agent must know")
	}
	return nil
}

func (in *spawnInput) title() string {
	if in.Title != "" {
		return in.Title
	}
	return in.Prompt
}

// spawn describes the child. One of its own kind is configured as this one is.
func (in *spawnInput) spawn(c *toolRun) (agent.Spawn, error) {
	s := agent.Spawn{
		Agent: in.Agent, Title: oneLine(in.title()), Call: c.id, Prompt: []frames.ContentBlock{frames.Text(in.Prompt)},
	}
	if in.Agent != "" && in.Agent != c.opt.Name {
		return s, nil
	}
	var err error
	s.Agent = c.opt.Name
	if s.Config, err = marshal(c.configured()); err != nil {
		return s, fmt.Errorf("encoding the child's config: %w", err)
	}
	return s, nil
}

func (in *spawnInput) do(ctx context.Context, c *toolRun) (frames.ToolResult, error) {
	s, err := in.spawn(c)
	if err != nil {
		return frames.ToolResult{}, err
	}
	child, err := c.t.Spawn(ctx, s)
	if err != nil {
		return frames.ToolResult{}, fmt.Errorf("no other agent could be started: %w", err)
	}
	end, err := child.Wait(ctx)
	if err != nil {
		return frames.ToolResult{}, fmt.Errorf("the other agent was not waited for: %w", err)
	}
	var said []string
	for _, b := range end.Result {
		if b.Text != "" {
			said = append(said, blockText(b))
		}
	}
	if end.Reason != frames.TurnCompleted {
		return c.failed(codeFailed, fmt.Sprintf("The other agent ended %s. %s\n%s", end.Reason, end.Message, strings.Join(said, "\n"))), nil
	}
	if len(said) == 0 {
		said = []string{"[It is done and said nothing.]"}
	}
	return c.whole(ctx, strings.Join(said, "\n"))
}

// askInput asks the person.
type askInput struct {
	Question    string   `json:"question"`
	Options     []string `json:"options,omitempty"`
	MultiSelect bool     `json:"multiSelect,omitempty"`
}

func (in *askInput) check(string) error {
	if strings.TrimSpace(in.Question) == "" {
		return errors.New("the argument \"question\" is missing")
	}
	if len(in.Options) > maxOptions {
		return fmt.Errorf("there are %d options; want at most %d", len(in.Options), maxOptions)
	}
	seen := map[string]bool{}
	for _, o := range in.Options {
		if strings.TrimSpace(o) == "" || seen[o] {
			return errors.New("an option is empty or stands there twice")
		}
		seen[o] = true
	}
	return nil
}

func (in *askInput) title() string { return in.Question }

func (in *askInput) do(ctx context.Context, c *toolRun) (frames.ToolResult, error) {
	q := frames.Question{ID: "answer", Question: in.Question, MultiSelect: in.MultiSelect, AllowText: true}
	for _, o := range in.Options {
		q.Options = append(q.Options, frames.QuestionOption{Label: o})
	}
	a, err := c.t.Question(ctx, q)
	if err != nil {
		return frames.ToolResult{}, ours(fmt.Errorf("llm: asking: %w", err))
	}
	if a.Outcome != frames.Answered {
		return c.failed(codeRejected, fmt.Sprintf("There is no answer (%s).", a.Cause)), nil
	}
	var said []string
	for _, one := range a.Answers {
		said = append(said, one.Labels...)
		if one.Text != "" {
			said = append(said, one.Text)
		}
	}
	return c.whole(ctx, strings.Join(said, ", "))
}

// todoInput is the whole plan.
type todoInput struct {
	Todos *[]todo `json:"todos"`
}

type todo struct {
	Content string `json:"content"`
	Status  string `json:"status"`
}

func (in *todoInput) check(string) error {
	if in.Todos == nil {
		return errors.New("the argument \"todos\" is missing; want the whole list, empty to clear it")
	}
	if len(*in.Todos) > maxTodos {
		return fmt.Errorf("there are %d todos; want at most %d", len(*in.Todos), maxTodos)
	}
	for _, t := range *in.Todos {
		switch t.Status {
		case "pending", "in_progress", "completed":
		default:
			return fmt.Errorf("a todo has the status %q; want pending, in_progress or completed", t.Status)
		}
		if strings.TrimSpace(t.Content) == "" {
			return errors.New("a todo has no content")
		}
	}
	return nil
}

func (in *todoInput) title() string { return "Plan" }

func (in *todoInput) do(ctx context.Context, c *toolRun) (frames.ToolResult, error) {
	w := frames.TodoWrite{Todos: []frames.Todo{}}
	for i, t := range *in.Todos {
		w.Todos = append(w.Todos, frames.Todo{ID: fmt.Sprint(i + 1), Content: t.Content, Status: t.Status})
	}
	if err := c.t.Emit(ctx, w); err != nil {
		return frames.ToolResult{}, ours(err)
	}
	return c.result(frames.Text("The plan is noted.")), nil
}
