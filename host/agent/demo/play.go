package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// player plays the script of one turn.
type player struct {
	demo     *demo
	t        agent.Turn
	facts    map[string]string
	children map[string]agent.Child
	calls    int
	usage    *frames.Usage
}

// step is one line of a script.
//
//sumtype:decl
type step interface {
	play(ctx context.Context, p *player) error
}

type (
	// think streams reasoning; say streams a message.
	think struct{ text string }
	say   struct{ text string }
	// plan gives each of [todos] a state.
	plan [3]string
	// tool pretends a tool call that prints lines.
	tool struct {
		name, kind, title, input string
		lines                    []string
	}
	// gated asks for approval of a command, which is not run in any case.
	gated struct{ fact, name, kind, command, reason string }
	// question asks a person and keeps the answer as a fact.
	question struct {
		fact string
		q    frames.Question
	}
	// launch starts a child; join waits for it and keeps its words as a fact.
	launch struct{ key, title, role, prompt string }
	join   struct{ key string }

	modelBegins struct{}
	modelEnds   struct{ used frames.Usage }
	// spend reports what the turn used.
	spend struct{ used frames.Usage }
)

func (p *player) run(ctx context.Context, steps []step) error {
	for _, s := range steps {
		if err := s.play(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// pause waits for d at the session's pace, or until ctx is done.
func (p *player) pause(ctx context.Context, d time.Duration) error {
	if p.demo.speed == 0 {
		return context.Cause(ctx)
	}
	return wait(ctx, time.Duration(float64(d)/p.demo.speed))
}

// wait waits for d, or until ctx is done.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fill puts facts into a text, once: facts are not looked at for more.
func (p *player) fill(text string) string {
	pairs := make([]string, 0, 2*len(p.facts))
	for name, value := range p.facts {
		pairs = append(pairs, "{"+name+"}", value)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func (p *player) call() frames.CallID {
	p.calls++
	return frames.CallID(fmt.Sprintf("%s-%d", p.t.ID(), p.calls))
}

// pieces cuts text into at most 40 pieces of whole words.
func pieces(text string) []string {
	words := strings.SplitAfter(text, " ")
	n := (len(words) + 39) / 40
	var out []string
	for i := 0; i < len(words); i += n {
		out = append(out, strings.Join(words[i:min(i+n, len(words))], ""))
	}
	return out
}

func (s think) play(ctx context.Context, p *player) error {
	block, text := p.t.NewBlock(), p.fill(s.text)
	for _, piece := range pieces(text) {
		if err := p.t.Reasoning(ctx, block, piece); err != nil {
			return err
		}
		if err := p.pause(ctx, chunkPause); err != nil {
			return err
		}
	}
	return p.t.Emit(ctx, frames.ReasoningMessage{Content: []frames.ContentBlock{frames.Text(text)}, Blocks: []int{block}})
}

func (s say) play(ctx context.Context, p *player) error {
	block, text := p.t.NewBlock(), p.fill(s.text)
	for _, piece := range pieces(text) {
		if err := p.t.Text(ctx, block, piece); err != nil {
			return err
		}
		if err := p.pause(ctx, chunkPause); err != nil {
			return err
		}
	}
	return p.message(ctx, block, text)
}

func (p *player) message(ctx context.Context, block int, text string) error {
	return p.t.Emit(ctx, frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text(text)}, Blocks: []int{block}})
}

func (s plan) play(ctx context.Context, p *player) error {
	var w frames.TodoWrite
	for i, content := range todos {
		w.Todos = append(w.Todos, frames.Todo{ID: fmt.Sprint(i + 1), Content: content, Status: s[i]})
	}
	return p.t.Emit(ctx, w)
}

func (s tool) play(ctx context.Context, p *player) error {
	call := p.call()
	began := time.Now()
	err := p.t.Emit(ctx, frames.ToolCall{
		CallID: call, Name: s.name, Kind: s.kind, Title: p.fill(s.title), Input: json.RawMessage(s.input),
	})
	if err != nil {
		return err
	}
	for _, line := range s.lines {
		if err := p.pause(ctx, linePause); err != nil {
			return err
		}
		if err := p.t.Progress(ctx, call, line); err != nil {
			return err
		}
	}
	return p.t.Emit(ctx, frames.ToolResult{
		CallID:     call,
		Content:    []frames.ContentBlock{frames.Text(strings.Join(s.lines, ""))},
		DurationMs: time.Since(began).Milliseconds(),
	})
}

func (s gated) play(ctx context.Context, p *player) error {
	var input bytes.Buffer
	e := json.NewEncoder(&input)
	e.SetEscapeHTML(false) // people read it
	err := e.Encode(struct {
		Command string `json:"command"`
		Cwd     string `json:"cwd"`
	}{s.command, p.demo.session.Cwd})
	if err != nil {
		return fmt.Errorf("demo: encoding a command: %w", err)
	}
	tl := frames.Tool{Name: s.name, Kind: s.kind, Title: s.command}
	d, err := p.ask(ctx, tl, bytes.TrimSpace(input.Bytes()), s.reason)
	if err != nil {
		return err
	}
	p.facts[s.fact] = verdict(d)
	return nil
}

// ask asks for one call and writes a result for it; nothing is run.
func (p *player) ask(ctx context.Context, tl frames.Tool, input json.RawMessage, reason string) (agent.Decision, error) {
	call := p.call()
	began := time.Now()
	err := p.t.Emit(ctx, frames.ToolCall{CallID: call, Name: tl.Name, Kind: tl.Kind, Title: tl.Title, Input: input})
	if err != nil {
		return agent.Decision{}, err
	}
	d, err := p.t.Ask(ctx, agent.Approval{Call: call, Tool: tl, Input: input, Reason: reason})
	if err != nil {
		return d, err
	}
	res := frames.ToolResult{
		CallID: call, IsError: !d.Allowed(), DurationMs: time.Since(began).Milliseconds(),
		Content: []frames.ContentBlock{frames.Text("It " + verdict(d) + ".")},
	}
	if res.IsError {
		res.ErrorCode = "rejected"
	}
	return d, p.t.Emit(ctx, res)
}

func verdict(d agent.Decision) string {
	switch {
	case d.Allowed():
		return "was allowed (but nothing was run: this is a demonstration)"
	case d.Cause == frames.CauseTimeout:
		return "was not run: nobody answered in time"
	case d.Feedback != "":
		return fmt.Sprintf("was not run: %s (%s)", d.Outcome, d.Feedback)
	}
	return fmt.Sprintf("was not run: %s", d.Outcome)
}

func (s question) play(ctx context.Context, p *player) error {
	a, err := p.t.Question(ctx, s.q)
	if err != nil {
		return err
	}
	p.facts[s.fact] = "nobody chose"
	for _, one := range a.Answers {
		if said := append(one.Labels[:len(one.Labels):len(one.Labels)], one.Text); strings.Join(said, "") != "" {
			p.facts[s.fact] = strings.TrimSuffix(strings.Join(said, ", "), ", ")
		}
	}
	return nil
}

func (s launch) play(ctx context.Context, p *player) error {
	config, err := p.demo.config.child(s.role)
	if err != nil {
		return err
	}
	c, err := p.t.Spawn(ctx, agent.Spawn{
		Agent: "demo", Title: s.title, Config: config, Prompt: []frames.ContentBlock{frames.Text(s.prompt)},
	})
	if err != nil {
		return err
	}
	if p.children == nil {
		p.children = map[string]agent.Child{}
	}
	p.children[s.key] = c
	return nil
}

func (s join) play(ctx context.Context, p *player) error {
	res, err := p.children[s.key].Wait(ctx)
	if err != nil {
		return err
	}
	p.facts[s.key] = string(res.Reason)
	if res.Reason == frames.TurnCompleted && len(res.Result) > 0 {
		p.facts[s.key] = res.Result[0].Text
	}
	return nil
}

func (modelBegins) play(ctx context.Context, p *player) error {
	return p.t.Emit(ctx, frames.ModelStart{Attempt: 1, Model: model, Provider: "none", SelectionReason: "the only one"})
}

func (s modelEnds) play(ctx context.Context, p *player) error {
	return p.t.Emit(ctx, frames.ModelEnd{Attempt: 1, Model: model, Status: "ok", OutputStarted: true, Usage: &s.used})
}

func (s spend) play(ctx context.Context, p *player) error {
	used := s.used
	p.usage = &used
	return p.t.Emit(ctx, frames.UsageUpdated{Usage: p.demo.spend(used)})
}
