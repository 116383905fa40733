package acp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

// permit takes a permission request: somebody is asked beside the lane.
func (l *link) permit(in acprpc.Inbound, p permission) {
	th := l.thread(p.SessionID)
	if th == nil {
		l.hold(func() { l.permit(in, p) })
		return
	}
	again := func() { l.permit(in, p) }
	if th.waiting(again) || l.threads[p.SessionID] == nil && l.defers(again) {
		return
	}
	d := th.desk()
	id := acprpc.Plain(p.ToolCall["toolCallId"])
	d.th.settleLoose()
	t := d.th.call(id)
	delete(p.ToolCall, "status") // it is that of the request
	if t.ended {
		t = t.again(p.ToolCall)
	} else {
		t.merge(p.ToolCall)
		d.th.announce(t)
	}
	d.th.permission(id, in.Params)
	if f, ok := p.inquiry(t); ok {
		l.attend(in, d, func(ctx context.Context) { l.inquire(ctx, d, in, p.Options, f) })
		return
	}
	if !slices.ContainsFunc(p.Options, func(o permissionOption) bool { return o.Kind == "allow_once" }) {
		l.unallowable(in, d, t, p.Options)
		return
	}
	a := agent.Approval{Call: frames.CallID(id), Tool: t.describe(), Input: t.input()}
	_, a.KindOnly = t.name()
	l.attend(in, d, func(ctx context.Context) { l.ask(ctx, d, t, in, p.Options, a) })
}

// unallowable refuses a request that nobody could allow for this one call: asking
// somebody who may only say no would hold up a person for nothing.
func (l *link) unallowable(in acprpc.Inbound, d desk, t *tool, options []permissionOption) {
	if !l.reply(in.ID, permissionAnswer{Outcome: reject(options)}) {
		return
	}
	if d.ts != nil {
		d.ts.rejected.Store(true)
		d.th.refuse(t, "rejected", noOnce)
	} else {
		d.th.bg.Failed(l.opt.Name + " asked for permission outside of a turn: " + noOnce)
	}
}

// noOnce says why a call was refused unasked.
const noOnce = "Not run: the agent offered no way to allow it once."

// permission keeps what a request says beside the call that it is about: the agent's
// own options, and whatever is unknown.
func (th *thread) permission(id string, raw json.RawMessage) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return
	}
	fields["toolCall"] = acprpc.Marshal(map[string]string{"toolCallId": id})
	th.vendor("permission", acprpc.Marshal(fields))
}

// desk is where people are asked what the agent of a thread wants to know: a turn, or a
// session in which none runs.
type desk struct {
	th       *thread
	ts       *turnState      // nil outside of turns
	ctx      context.Context //nolint:containedctx // how long anybody can be asked there
	wg       *sync.WaitGroup // waited for at its end
	ask      func(context.Context, agent.Approval) (agent.Decision, error)
	question func(context.Context, ...frames.Question) (agent.Answers, error)
}

// desk finds the thread's turn; a subagent without a session of its own asks where the
// nearest one above it does.
func (th *thread) desk() desk {
	at := th
	for at.turn == nil && at.parent != nil && !at.child.attached {
		at = at.parent
	}
	if ts := at.turn; ts != nil {
		return desk{at, ts, ts.ctx, &ts.asks, ts.Ask, ts.Question}
	}
	return desk{at, nil, at.l.ctx, &at.l.wg, at.bg.Ask, at.bg.Question}
}

// attend runs f beside the lane, until the request that it works for is settled.
func (l *link) attend(in acprpc.Inbound, d desk, f func(context.Context)) {
	ctx, cancel := context.WithCancel(d.ctx)
	if !l.conn.Attend(in.ID, cancel) {
		cancel() // withdrawn already
		return
	}
	d.wg.Go(func() {
		defer cancel()
		f(ctx)
	})
}

// thread is the thread of a request. A session that nobody announced is treated as
// the main one, so that its requests are seen.
func (l *link) thread(id string) *thread {
	if th := l.threads[id]; th != nil {
		return th
	}
	return l.main
}

// ask asks whether a call may run and hands the answer to the agent.
func (l *link) ask(ctx context.Context, at desk, t *tool, in acprpc.Inbound, options []permissionOption, a agent.Approval) {
	d, err := at.ask(ctx, a)
	switch {
	case ctx.Err() != nil && !d.Allowed():
		d = agent.Decision{Outcome: frames.Cancelled, Cause: frames.CauseAbort}
	case err != nil:
		d = agent.Decision{Outcome: frames.Unavailable, Cause: frames.CauseAbort}
	}
	out := choose(options, d)
	if at.ts != nil && !d.Allowed() {
		at.ts.rejected.Store(true)
	}
	if d.Allowed() && out.Outcome == "selected" {
		l.reply(in.ID, permissionAnswer{Outcome: out})
		return
	}
	told := false
	_ = l.lane.do(l.ctx, func() { // so that what the agent says to it comes after it
		if told = l.reply(in.ID, permissionAnswer{Outcome: out}); told && at.ts != nil && at.th.turn == at.ts && !t.ended {
			at.th.refused(t, refusalCode(d), refusal(d, out))
		}
	})
	if told && err != nil && at.ts == nil {
		at.th.bg.Failed(fmt.Sprintf("%s asked for permission (%s), which was rejected, because nobody could be asked: %v", l.opt.Name, a.Tool.Title, err))
	}
}

// choose maps a decision to the agent's options, by their kind. Only a decision
// that allows picks one that allows, and none that allows more than this call.
func choose(options []permissionOption, d agent.Decision) outcome {
	switch {
	case d.Allowed():
		return pick(options, "allow_once")
	case d.Outcome == frames.Cancelled:
		return outcome{Outcome: "cancelled"}
	}
	return reject(options)
}

func reject(options []permissionOption) outcome { return pick(options, "reject_once") }

// pick selects the first option of a kind; without one the request is cancelled.
func pick(options []permissionOption, kind string) outcome {
	for _, o := range options {
		if o.Kind == kind {
			return outcome{Outcome: "selected", OptionID: o.ID}
		}
	}
	return outcome{Outcome: "cancelled"}
}

func refusalCode(d agent.Decision) string {
	if d.Outcome == frames.Cancelled {
		return "cancelled"
	}
	return "rejected"
}

// refusal says why a call was not allowed.
func refusal(d agent.Decision, out outcome) string {
	var text string
	switch {
	case d.Allowed() && out.Outcome != "selected":
		return noOnce
	case d.Outcome == frames.Cancelled:
		return "Not run: it was cancelled before anybody answered."
	case d.Outcome == frames.Unavailable:
		return "Not run: the answer could not be had or stored, so it does not count."
	case d.Cause == frames.CauseTimeout:
		text = "Not run: nobody answered in time."
	case d.Cause == frames.CausePolicy:
		text = "Not run: the session's policy rejects it."
	default:
		text = "Not run: it was rejected."
	}
	if d.Feedback != "" {
		text += " Feedback: " + d.Feedback
	}
	return text
}

// unanswered is what means that nobody answered a request.
func unanswered(in acprpc.Inbound) any {
	switch in.Method {
	case "session/request_permission":
		return permissionAnswer{Outcome: outcome{Outcome: "cancelled"}}
	case "elicitation/create":
		return elicitationAnswer{Action: "cancel"}
	}
	return nil
}
