package llm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// lateTimeout bounds what is still said after a turn was cancelled.
const lateTimeout = 5 * time.Second

// run is one running turn.
type run struct {
	*llm
	t    agent.Turn
	step int
	used *frames.Usage // by the whole turn; nil while nothing is known
	// prompt is what the person said, for summaries.
	prompt string
}

// turn runs steps until the model calls no more tools.
func (r *run) turn(ctx context.Context, p agent.Prompt) (agent.Result, error) {
	defer r.conv.wholes.forget()
	if err := r.conv.begin(ctx, p); err != nil {
		return agent.Result{}, err
	}
	r.prompt = p.Text()
	for {
		cfg := r.configured()
		limit := r.opt.MaxSteps
		if cfg.MaxSteps > 0 {
			limit = min(limit, cfg.MaxSteps)
		}
		if r.step >= limit {
			return agent.Result{
				Reason: frames.TurnMaxSteps, Message: fmt.Sprintf("the turn had its %d steps; prompt again to go on", limit),
			}, nil
		}
		r.step++
		over, res, err := r.oneStep(ctx, cfg)
		if over || err != nil {
			return res, err
		}
	}
}

// oneStep asks the model once and runs what it calls. over means that the turn is.
func (r *run) oneStep(ctx context.Context, cfg Config) (over bool, res agent.Result, err error) {
	if err := r.t.Emit(ctx, frames.StepStart{Step: r.step}); err != nil {
		return true, res, err
	}
	before := r.sum()
	defer func() {
		if ctx.Err() == nil && err == nil {
			err = r.endStep(ctx, before)
		}
	}()
	rep, out, err := r.answer(ctx, cfg)
	if err != nil {
		return true, res, err
	}
	calls := r.calls(rep, cfg)
	if err := r.t.Emit(ctx, out.events(rep, calls)...); err != nil {
		return true, res, err
	}
	if len(calls) > 0 {
		over, err = r.runCalls(ctx, calls)
		if over {
			res.Reason = frames.TurnCancelled
		}
		return over, res, err
	}
	return r.ended(rep)
}

// ended says how a turn ends whose model called nothing; it goes on if somebody
// steered meanwhile.
func (r *run) ended(rep *reply) (bool, agent.Result, error) {
	switch {
	case rep.finish == "length":
		return true, agent.Result{Reason: frames.TurnMaxTokens, Message: "the model's answer reached its limit of tokens"}, nil
	case rep.finish == "content_filter":
		return true, agent.Result{Reason: frames.TurnRefused, Message: "the model server's content filter stopped the answer"}, nil
	case rep.refused:
		return true, agent.Result{Reason: frames.TurnRefused, Message: "the model refused"}, nil
	}
	if !r.lastAnswer() {
		return false, agent.Result{}, nil
	}
	res := agent.Result{}
	if rep.text.Len() == 0 {
		res.Message = "the model said nothing"
	}
	return true, res, nil
}

func (r *run) sum() frames.Usage {
	if r.used == nil {
		return frames.Usage{}
	}
	return *r.used
}

// endStep tells what a step used, and what the session did in all.
func (r *run) endStep(ctx context.Context, before frames.Usage) error {
	now := r.sum()
	end := frames.StepEnd{Step: r.step}
	if now == before {
		return r.t.Emit(ctx, end)
	}
	step := now
	step.InputTokens -= before.InputTokens
	step.OutputTokens -= before.OutputTokens
	step.CacheReadTokens -= before.CacheReadTokens
	step.Cost = difference(now.Cost, before.Cost)
	end.Usage = &step
	var all frames.Usage
	if u := r.conv.view.Usage; u != nil {
		all = *u
	}
	return r.t.Emit(ctx, end, frames.UsageUpdated{Usage: add(all, step)})
}

// answer brings the conversation up to date and asks the model. A prompt that
// does not fit its window is made shorter first, once more if the server says so.
func (r *run) answer(ctx context.Context, cfg Config) (*reply, *speaker, error) {
	squeezed := false
	for {
		if err := r.conv.sync(ctx); err != nil {
			return nil, nil, err
		}
		for _, p := range r.takeSteers() {
			r.conv.say(p)
		}
		ms := r.conv.messages(ctx, r.opt.pictures(), r.opt.MaxToolText)
		q := r.request(cfg, ms)
		bytes := size(ms) + q.overhead()
		if !squeezed && r.tooLarge(bytes) {
			squeezed = true
			if done, err := r.compact(ctx, cfg, ms); done || err != nil {
				if err != nil {
					return nil, nil, err
				}
				continue
			}
		}
		out := &speaker{run: r, ctx: ctx, textBlock: -1, reasoningBlock: -1}
		rep, err := r.generate(ctx, cfg, q, out)
		if err == nil {
			r.conv.measured(rep, bytes)
			return rep, out, nil
		}
		if squeezed || ctx.Err() != nil || !tooLong(err) || rep.started {
			return nil, nil, r.failure(ctx, err, cfg.Model)
		}
		squeezed = true
		done, cerr := r.compact(ctx, cfg, ms)
		if cerr != nil {
			return nil, nil, cerr
		}
		if !done {
			return nil, nil, r.failure(ctx, err, cfg.Model)
		}
	}
}

// failure is what a person is told of a request that failed. Errors of the turn
// are passed on as they are.
func (r *run) failure(ctx context.Context, err error, model string) error {
	if e, ok := errors.AsType[*turnError](err); ok {
		return e.error
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return r.client.explain(err, model)
}

// turnError is an error of the host, not of the model server.
type turnError struct{ error }

func (e *turnError) Unwrap() error { return e.error }

func ours(err error) error {
	if err == nil {
		return nil
	}
	return &turnError{err}
}

// request makes the request for messages.
func (r *run) request(cfg Config, ms []entry) request {
	q := request{Model: cfg.Model, Temperature: cfg.Temperature, MaxTokens: r.opt.MaxTokens, Effort: cfg.ReasoningEffort, Tools: defs(cfg.Tools)}
	q.Messages = append(q.Messages, message{Role: "system", Content: text(r.system(cfg))})
	for _, m := range ms {
		q.Messages = append(q.Messages, m.message)
	}
	return q
}

// overhead is the size of what stands in every request.
func (q request) overhead() int {
	n := q.Messages[0].Content.size()
	for _, t := range q.Tools {
		n += len(t.Function.Name) + len(t.Function.Description) + len(t.Function.Parameters)
	}
	return n
}

func (r *run) system(cfg Config) string {
	s := r.opt.System
	if s == "" {
		s = systemPrompt
	}
	s = strings.ReplaceAll(s, "{cwd}", r.session.Cwd)
	if cfg.System != "" {
		s += "\n\n" + cfg.System
	}
	return s
}

const systemPrompt = `You are a coding agent. You work in the directory {cwd}; paths in tool calls are relative to it, and files outside of it cannot be reached.
Look before you change something: list, search and read first. Make small edits. A person may have to allow each call; if a call is rejected, do not try it again in another way, but say what you need.
Say in a few words what you did when you are done.`

// speaker streams an answer to the turn: reasoning into one block, text into
// another.
type speaker struct {
	run                       *run
	ctx                       context.Context //nolint:containedctx // that of the request
	textBlock, reasoningBlock int
}

func (s *speaker) text(text string) error {
	if s.textBlock < 0 {
		s.textBlock = s.run.t.NewBlock()
	}
	return ours(s.run.t.Text(s.ctx, s.textBlock, text))
}

func (s *speaker) reasoning(text string) error {
	if s.reasoningBlock < 0 {
		s.reasoningBlock = s.run.t.NewBlock()
	}
	return ours(s.run.t.Reasoning(s.ctx, s.reasoningBlock, text))
}

// events are the whole answer: its messages, and the calls that it announces.
func (s *speaker) events(rep *reply, calls []*toolRun) []frames.Payload {
	var out []frames.Payload
	if s.reasoningBlock >= 0 {
		out = append(out, frames.ReasoningMessage{
			Content: []frames.ContentBlock{frames.Text(rep.reasoning.String())}, Blocks: []int{s.reasoningBlock},
		})
	}
	if s.textBlock >= 0 {
		out = append(out, frames.AssistantMessage{
			Content: []frames.ContentBlock{frames.Text(rep.text.String())}, Blocks: []int{s.textBlock},
		})
	}
	for _, c := range calls {
		out = append(out, c.announcement())
	}
	return out
}

// newCallID mints the id of a call. Servers' own ids repeat; some models take only
// nine letters and digits.
func newCallID() frames.CallID { return frames.CallID(strings.ToLower(rand.Text()[:9])) }

// calls are the tool calls of an answer. One that was cut off calls nothing.
func (r *run) calls(rep *reply, cfg Config) []*toolRun {
	if rep.finish == "length" || rep.finish == "content_filter" {
		return nil
	}
	var all []*toolRun
	for _, c := range rep.calls {
		all = append(all, r.parse(newCallID(), c.name, c.args.String(), cfg))
	}
	return all
}

// runCalls runs calls in order. over means that the turn was cancelled; every call
// has its result in any case.
func (r *run) runCalls(ctx context.Context, calls []*toolRun) (over bool, err error) {
	for i, c := range calls {
		var res frames.ToolResult
		res, err = c.execute(ctx)
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateTimeout)
		if ferr := r.t.Emit(late, res); err == nil {
			err = ferr
		}
		over = res.ErrorCode == codeCancelled || ctx.Err() != nil
		if over || err != nil {
			var rest []frames.Payload
			for _, o := range calls[i+1:] {
				rest = append(rest, o.failed(codeCancelled, "Not run: the turn ended before."))
			}
			if len(rest) > 0 {
				_ = r.t.Emit(late, rest...) // the host writes what is missing
			}
		}
		cancel()
		if over || err != nil {
			return over, err
		}
	}
	return false, nil
}
