package llm

import (
	"context"
	"errors"
	"math/big"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// maxPause bounds the pause between two tries. A server that asks for a longer one
// is not waited for.
const maxPause = time.Minute

// generate asks the model, and again while that may help and nothing of an answer
// has come. The reply is never nil.
func (r *run) generate(ctx context.Context, cfg Config, q request, out said) (*reply, error) {
	pause := r.opt.Backoff
	for attempt := 1; ; attempt++ {
		rep := &reply{said: out}
		if err := r.startModel(ctx, cfg.Model, attempt); err != nil {
			return rep, ours(err)
		}
		err := r.client.ask(ctx, q, rep)
		if merr := r.endModel(ctx, cfg.Model, attempt, rep, err); err == nil {
			err = ours(merr)
		}
		_, host := errors.AsType[*turnError](err)
		if err == nil || host || ctx.Err() != nil || rep.started || attempt >= r.opt.MaxAttempts || !passing(err) {
			return rep, err
		}
		wait := pause
		if e, ok := errors.AsType[*serverError](err); ok && e.after > 0 {
			wait = e.after
		}
		if err := sleep(ctx, min(wait, maxPause)); err != nil {
			return rep, err
		}
		pause *= 2
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *run) startModel(ctx context.Context, model string, attempt int) error {
	var events []frames.Payload
	if was := r.conv.model; was != "" && was != model {
		events = append(events, frames.ModelSwitched{From: was, To: model, Reason: "configured"})
	}
	why := "the session's model"
	if attempt > 1 {
		why = "tried again"
	}
	r.conv.model = model
	return r.t.Emit(ctx, append(events,
		frames.ModelStart{Attempt: attempt, Model: model, Provider: r.opt.Provider, SelectionReason: why},
		frames.RequestHeader{Attempt: attempt, Headers: r.client.headers()})...)
}

// endModel tells how a try ended, also where the turn was cancelled meanwhile.
func (r *run) endModel(ctx context.Context, model string, attempt int, rep *reply, err error) error {
	end := frames.ModelEnd{Attempt: attempt, Model: model, Status: "ok", OutputStarted: rep.started}
	switch {
	case ctx.Err() != nil:
		end.Status = "cancelled"
	case err != nil:
		end.Status = "error"
	}
	if rep.usage != nil {
		u := r.usage(model, rep.usage)
		end.Usage, end.Cost = &u, u.Cost
		r.used = new(add(r.sum(), u))
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateTimeout)
	defer cancel()
	return r.t.Emit(late, end)
}

// usage is what a server says in our words. Input counts all tokens of the prompt,
// also those from a cache.
func (r *run) usage(model string, w *wireUsage) frames.Usage {
	count := func(n int64) int64 { return min(max(n, 0), frames.MaxInteger/1024) }
	w.PromptTokens, w.CompletionTokens = count(w.PromptTokens), count(w.CompletionTokens)
	u := frames.Usage{
		InputTokens: w.PromptTokens, OutputTokens: w.CompletionTokens,
		CacheReadTokens: count(w.PromptTokensDetails.CachedTokens),
		ContextTokens:   w.PromptTokens + w.CompletionTokens, ContextWindow: r.opt.ContextWindow,
	}
	if p := r.rates[model]; p != nil {
		u.Cost, u.Currency = p.cost(w), p.currency
	}
	return u
}

// difference is a - b, exactly.
func difference(a, b string) string {
	x, ok := decimal(a)
	y, ok2 := decimal(b)
	if a == "" || !ok || !ok2 {
		return ""
	}
	return money(new(big.Rat).Sub(x, y))
}

var _ agent.Configurable = (*llm)(nil)
