package editor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
	"github.com/muxhost/muxhost/rpc"
)

// maxPrompts is how many prompts of the editor may wait in one session.
const maxPrompts = 64

// prompt is a session/prompt that has no answer yet.
type prompt struct {
	in      acprpc.Inbound
	id      frames.PromptID
	content []block
	turn    frames.TurnID // "" until known
	// handed says that it was given to the host, taken that the host has it,
	// cancelled that the editor does not want it any more.
	handed, taken, cancelled bool
}

// prompt takes a session/prompt. It stays open until the turn of that prompt ends.
func (b *bridge) prompt(in acprpc.Inbound) {
	var p struct {
		Session frames.SessionID `json:"sessionId"`
		Prompt  []block          `json:"prompt"`
	}
	if err := params(in, &p); err != nil {
		b.conn.Reject(in.ID, acprpc.CodeBadParams, "session/prompt: "+err.Error())
		return
	}
	th := b.threads[p.Session]
	switch {
	case th == nil || !th.own:
		b.conn.Reject(in.ID, acprpc.CodeBadParams, fmt.Sprintf("session/prompt: session %s is not open here; open it with session/load or session/resume", p.Session))
		return
	case len(th.prompts) >= maxPrompts:
		b.conn.Reject(in.ID, acprpc.CodeInternal, fmt.Sprintf("session/prompt: %d prompts wait already", len(th.prompts)))
		return
	}
	pr := &prompt{in: in, id: frames.PromptID(rand.Text()), content: p.Prompt}
	if !b.conn.Attend(in.ID, func() { b.said(func() { th.withdrawn(pr) }) }) {
		return // taken back already
	}
	th.prompts = append(th.prompts, pr)
	th.next()
}

// next hands the next prompt to the host, once that has those before it.
func (th *thread) next() {
	for _, p := range th.prompts {
		switch {
		case p.taken:
			continue
		case !p.handed:
			th.hand(p)
		}
		return
	}
}

func (th *thread) hand(p *prompt) {
	p.handed = true
	th.mine[p.id] = true
	b := th.b
	b.beside(func(ctx context.Context) func() {
		res, err := b.say(ctx, th.id, p)
		return func() {
			if err != nil {
				th.refused(p, err)
			} else {
				p.taken = true
				p.turn = frames.TurnID(first(string(p.turn), string(res.TurnID)))
				if p.cancelled {
					th.cancelTurn(p.turn)
				}
				th.checkPrompts()
			}
			th.next()
		}
	})
}

// say gives a prompt to the host. The id makes it one prompt, however often a broken
// connection makes it be said again.
func (b *bridge) say(ctx context.Context, sid frames.SessionID, p *prompt) (rpc.PromptResult, error) {
	content, err := contentOf(ctx, b.host, p.content)
	if err != nil {
		return rpc.PromptResult{}, err
	}
	return again(ctx, func() (rpc.PromptResult, error) {
		return b.host.Prompt(ctx, rpc.PromptParams{SessionID: sid, Content: content, Mode: frames.ModeQueue, PromptID: p.id})
	})
}

// refused answers a prompt that the host did not take.
func (th *thread) refused(p *prompt, err error) {
	delete(th.mine, p.id)
	th.remove(p)
	if p.cancelled {
		th.b.conn.Reply(p.in.ID, stopped("cancelled", obj{"message": err.Error()}))
		return
	}
	if bad, ok := errors.AsType[badPrompt](err); ok {
		th.b.conn.Reject(p.in.ID, acprpc.CodeBadParams, "session/prompt: "+string(bad))
		return
	}
	th.b.fail(p.in, err)
}

func (th *thread) remove(p *prompt) {
	th.prompts = slices.DeleteFunc(th.prompts, func(other *prompt) bool { return other == p })
}

// promptEvent follows what becomes of the editor's prompts.
func (th *thread) promptEvent(e frames.Event, p any) {
	for _, pr := range slices.Clone(th.prompts) {
		switch p := p.(type) {
		case *frames.TurnStart:
			if p.PromptID == pr.id {
				pr.turn, pr.taken = e.TurnID, true
			}
		case *frames.PromptDequeued:
			if p.PromptID == pr.id && p.Reason != "started" && p.Reason != "steered" {
				delete(th.mine, pr.id)
				th.finish(pr, frames.TurnCancelled, "")
			}
		}
	}
}

// endPrompts answers the prompt whose turn has ended. All that the turn said was sent.
func (th *thread) endPrompts(e frames.Event, p *frames.TurnEnd) {
	for _, pr := range slices.Clone(th.prompts) {
		if pr.turn == e.TurnID && pr.turn != "" {
			th.finish(pr, p.Reason, p.Message)
		}
	}
}

// checkPrompts answers prompts whose turn ended while nobody looked.
func (th *thread) checkPrompts() {
	for _, pr := range slices.Clone(th.prompts) {
		for _, t := range th.view.Turns {
			if t.PromptID == pr.id && t.Reason != "" {
				th.finish(pr, t.Reason, t.Message)
			}
		}
	}
}

// missedPrompts answers prompts that left the queue where nobody can look any more.
func (th *thread) missedPrompts() {
	for _, pr := range slices.Clone(th.prompts) {
		waits := slices.ContainsFunc(th.view.Queue(), func(q frames.QueuedPrompt) bool { return q.PromptID == pr.id })
		runs := slices.ContainsFunc(th.view.Turns, func(t frames.Turn) bool { return t.PromptID == pr.id })
		if pr.taken && !waits && !runs {
			th.finish(pr, frames.TurnCancelled, "")
		}
	}
}

// finish answers a prompt.
func (th *thread) finish(p *prompt, reason frames.TurnEndReason, message string) {
	th.remove(p)
	stop := stopReason(reason)
	if p.cancelled {
		stop = "cancelled"
	}
	if stop == "" {
		th.b.conn.Reject(p.in.ID, acprpc.CodeInternal, first(message, "the turn failed"))
		return
	}
	meta := obj{"turnId": p.turn, "reason": reason}
	set(meta, "message", message)
	th.b.conn.Reply(p.in.ID, stopped(stop, meta))
}

// stopReason is the end of a turn in the protocol's words, "" for a failure.
func stopReason(reason frames.TurnEndReason) string {
	switch reason {
	case frames.TurnCompleted:
		return "end_turn"
	case frames.TurnMaxTokens:
		return "max_tokens"
	case frames.TurnMaxSteps, frames.TurnBudgetExceeded:
		return "max_turn_requests"
	case frames.TurnRefused:
		return "refusal"
	case frames.TurnCancelled, frames.TurnInterrupted:
		return "cancelled"
	}
	return ""
}

// cancelPrompts takes a session/cancel: of the editor's prompts, running or waiting,
// or, where it has none, of what runs in the session.
func (b *bridge) cancelPrompts(session string) {
	th := b.threads[frames.SessionID(session)]
	switch {
	case th == nil || !th.direct():
		return
	case len(th.prompts) == 0:
		th.cancelTurn("")
		return
	}
	for _, p := range slices.Clone(th.prompts) {
		th.cancel(p)
	}
}

// cancel cancels a prompt, at the latest once the host has it.
func (th *thread) cancel(p *prompt) {
	p.cancelled = true
	switch {
	case p.turn != "":
		th.cancelTurn(p.turn)
	case !p.handed:
		th.finish(p, frames.TurnCancelled, "")
	}
}

// withdrawn cancels a prompt that was answered when the editor took it back.
func (th *thread) withdrawn(p *prompt) {
	if slices.Contains(th.prompts, p) {
		th.cancel(p)
	}
}

// cancelTurn asks the host to cancel a turn, or all that runs in the session.
func (th *thread) cancelTurn(turn frames.TurnID) {
	th.b.beside(func(ctx context.Context) func() {
		_, err := again(ctx, func() (bool, error) {
			return th.b.host.Cancel(ctx, rpc.CancelParams{SessionID: th.id, TurnID: turn})
		})
		return func() {
			if err != nil {
				th.tell("error", "The turn could not be cancelled: "+err.Error())
			}
		}
	})
}
