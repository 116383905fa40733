package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

// closeGrace is [Options.CancelGrace] where the agent is being closed, and its
// process ends anyway.
const closeGrace = time.Second

var errStalled = errors.New("acp: the agent said nothing for too long; its turn was cancelled")

// run is one turn of the main session.
type run struct {
	l    *link
	ts   *turnState
	host context.Context //nolint:containedctx // the turn's, as the host cancels it
	// delivered says that the agent got the prompt.
	delivered bool
	noticed   bool // that it is silent
}

func newRun(ctx context.Context, l *link, t agent.Turn) *run {
	ts := &turnState{Turn: t}
	ts.ctx, ts.cancel = context.WithCancelCause(ctx)
	return &run{l: l, ts: ts, host: ctx}
}

// run prompts the agent and waits for the end of the turn.
func (r *run) run(params map[string]any) (agent.Result, error) {
	l, ts := r.l, r.ts
	defer ts.cancel(nil)
	if err := l.lane.do(l.ctx, func() { l.main.begin(ts) }); err != nil {
		return agent.Result{}, l.because(err)
	}
	defer l.beginTools(ts.Turn)()
	_, ch := l.conn.Start("session/prompt", params)
	res, err := r.wait(ch)
	if err == nil && ts.ctx.Err() == nil {
		r.awaitKids()
	}
	if err != nil && !l.alive() {
		l.told.Store(true)
	}
	over, failed := r.end(l.main)
	switch {
	case over:
		return agent.Result{Reason: frames.TurnCancelled}, failed
	case err != nil && !l.alive():
		return agent.Result{}, l.because(err)
	case err != nil:
		return agent.Result{}, fmt.Errorf("acp: %s: %w", l.opt.Name, err)
	}
	return r.result(res), nil
}

// end ends the thread's turn. over says that it was cancelled, and err why, if not
// the host did it: an event was not stored, or the agent cannot go on.
func (r *run) end(th *thread) (over bool, err error) {
	ts := r.ts
	over = ts.ctx.Err() != nil
	if r.l.lane.do(context.Background(), func() { th.end(over) }) != nil {
		th.end(over) // the lane has ended, so nobody else touches it
	}
	if ts.ctx.Err() != nil {
		over = true // what was said last could not be stored
	}
	if over && r.host.Err() == nil {
		err = context.Cause(ts.ctx)
	}
	ts.cancel(agent.ErrTurnOver)
	ts.asks.Wait()
	return over, err
}

// wait waits for the agent's answer to the prompt. A turn that is cancelled is
// cancelled at the agent too, and the agent is killed if it does not end it.
func (r *run) wait(ch <-chan acprpc.Response) (p prompted, err error) {
	for {
		select {
		case res := <-ch:
			return r.take(res)
		case <-r.ts.ctx.Done():
			return r.abort(ch)
		case <-time.After(r.patience()):
			r.stalled()
		}
	}
}

func (r *run) take(res acprpc.Response) (p prompted, err error) {
	if res.Err != nil {
		_, refused := errors.AsType[*acprpc.CallError](res.Err)
		r.delivered = refused
		return p, res.Err
	}
	r.delivered = true
	if !acprpc.IsNull(res.Result) {
		if err := json.Unmarshal(res.Result, &p); err != nil {
			return p, fmt.Errorf("the agent's answer to session/prompt is not as the protocol says: %w", err)
		}
	}
	return p, nil
}

// abort cancels the turn at the agent: first everything that it asks is answered,
// also for its subagents, because some agents wait for that.
func (r *run) abort(ch <-chan acprpc.Response) (prompted, error) {
	l := r.l
	l.conn.GiveUpAll(l.e.asksOf(l))
	l.conn.Notify("session/cancel", map[string]string{"sessionId": l.sessionID()})
	grace, closing := l.opt.CancelGrace, errors.Is(context.Cause(r.ts.ctx), errClosed)
	switch alone := l.e.alone(l); {
	case alone && closing:
		grace = min(grace, closeGrace)
	case !alone && l.caps.can("close"):
		grace /= 2 // then its session is closed, which harms nobody else
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case res := <-ch:
		return r.take(res)
	case <-timer.C:
	}
	if l.e.alone(l) && closing && l.e.solo {
		return prompted{}, nil // its process is ended anyway
	}
	if !l.e.alone(l) && l.caps.can("close") && l.closeSession(l.sessionID(), l.opt.CancelGrace-grace, nil) {
		return prompted{}, nil
	}
	why := fmt.Sprintf("%s did not end its cancelled turn within %v", l.opt.Name, l.opt.CancelGrace)
	if !closing {
		l.s.Background.Failed(why + " and was killed")
	}
	l.e.condemn(why + ", so its process was killed, which other sessions used too; the next prompt starts it again")
	return prompted{}, nil
}

// patience is how long the agent may go on being silent until something is done.
func (r *run) patience() time.Duration {
	limit := r.l.opt.StallTimeout
	if !r.noticed {
		limit = min(limit, r.l.opt.StallNotice)
	}
	return max(limit-r.l.silence(), time.Millisecond)
}

// stalled reports a silent agent, and in the end cancels its turn. While a person is
// asked it is not the agent that is waited for.
func (r *run) stalled() {
	l := r.l
	silent := l.silence()
	switch {
	case l.awaited.Load() > 0 || l.conn.Asking(l.e.asksOf(l)):
		l.hear()
	case silent >= l.opt.StallTimeout:
		r.ts.cancel(errStalled)
	case silent >= l.opt.StallNotice && !r.noticed:
		r.noticed = true
		_ = l.lane.do(l.ctx, func() {
			l.main.emit(frames.ErrorReported{
				Code: "agent-silent", Retryable: true,
				Message: fmt.Sprintf("%s has said nothing for %v; if it hangs, cancel its turn. It is cancelled after %v.",
					l.opt.Name, l.opt.StallNotice, l.opt.StallTimeout),
			})
		})
	}
}

// awaitKids waits until every subagent that the turn began has ended, so that what
// they ask can still be answered.
func (r *run) awaitKids() {
	for n := 0; ; n++ {
		var kid *agent.Child
		if r.l.lane.do(r.l.ctx, func() {
			if n < len(r.ts.kids) {
				kid = &r.ts.kids[n]
			}
		}) != nil || kid == nil {
			return
		}
		if _, err := kid.Wait(r.ts.ctx); err != nil {
			if r.ts.ctx.Err() != nil {
				return
			}
		}
	}
}

// result is how the turn ended by the agent's own words.
func (r *run) result(p prompted) agent.Result {
	res := agent.Result{Usage: usageOf(p.Usage)}
	switch p.StopReason {
	case "end_turn":
		res.Reason = frames.TurnCompleted
	case "max_tokens":
		res.Reason = frames.TurnMaxTokens
	case "max_turn_requests":
		res.Reason = frames.TurnMaxSteps
	case "refusal":
		res.Reason = frames.TurnRefused
	case "cancelled":
		res.Reason, res.Message = frames.TurnCancelled, "the agent ended its turn as cancelled"
		if r.ts.rejected.Load() { // some agents call it so when a call was not allowed
			res.Reason, res.Message = frames.TurnCompleted, "the agent ended its turn after a rejection"
		}
	default:
		res.Reason = frames.TurnCompleted
		res.Message = fmt.Sprintf("the agent ended its turn with %q", p.StopReason)
	}
	return res
}

// usageOf reads what the turn used, nil if the agent does not say.
func usageOf(raw json.RawMessage) *frames.Usage {
	var m map[string]json.RawMessage
	if acprpc.IsNull(raw) || json.Unmarshal(raw, &m) != nil {
		return nil
	}
	return &frames.Usage{
		InputTokens: whole(m["inputTokens"]), OutputTokens: whole(m["outputTokens"]),
		CacheReadTokens: whole(m["cachedReadTokens"]), CacheWriteTokens: whole(m["cachedWriteTokens"]),
	}
}
