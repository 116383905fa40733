package acp

import (
	"context"
	"fmt"

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
	at, ts := th.asker()
	if ts == nil {
		if l.conn.Reply(in.ID, permissionAnswer{reject(p.Options)}) {
			th.bg.Failed(fmt.Sprintf("%s asked for permission (%s) while no turn ran; it was rejected, because nobody can be asked then",
				l.opt.Name, acprpc.Plain(p.ToolCall["title"])))
		}
		return
	}
	id := acprpc.Plain(p.ToolCall["toolCallId"])
	t := at.tool(id)
	if !t.ended {
		delete(p.ToolCall, "status") // it is that of the request
		t.merge(p.ToolCall)
		at.announce(t)
	}
	a := agent.Approval{Call: frames.CallID(id), Tool: t.describe(), Input: t.input()}
	ctx, cancel := context.WithCancel(ts.ctx)
	if !l.conn.Attend(in.ID, cancel) {
		cancel() // withdrawn already
		return
	}
	ts.asks.Go(func() {
		defer cancel()
		l.ask(ctx, ts, at, t, in, p.Options, a)
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
func (l *link) ask(ctx context.Context, ts *turnState, th *thread, t *tool, in acprpc.Inbound, options []permissionOption, a agent.Approval) {
	d, err := ts.Ask(ctx, a)
	switch {
	case ctx.Err() != nil && !d.Allowed():
		d = agent.Decision{Outcome: frames.Cancelled, Cause: frames.CauseAbort}
	case err != nil:
		d = agent.Decision{Outcome: frames.Unavailable, Cause: frames.CauseAbort}
	}
	out := choose(options, d)
	if !d.Allowed() {
		ts.rejected.Store(true)
	}
	if !l.conn.Reply(in.ID, permissionAnswer{out}) || d.Allowed() && out.Outcome == "selected" {
		return
	}
	// The agent may say nothing more of a call that it was refused.
	_ = l.lane.do(l.ctx, func() {
		if th.turn != ts {
			return
		}
		if !t.own && !t.ended {
			th.refuse(t, refusalCode(d), refusal(d, out))
		}
	})
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
		return "Not run: the agent offered no way to allow it once."
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
		return permissionAnswer{outcome{Outcome: "cancelled"}}
	case "elicitation/create":
		return elicitationAnswer{Action: "cancel"}
	}
	return nil
}
