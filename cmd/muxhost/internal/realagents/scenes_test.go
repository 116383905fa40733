//go:build realagents && linux

package realagents_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/agenttest/stubllm"
	"github.com/muxhost/muxhost/rpc"
)

// scene is one column of the table.
type scene struct {
	name string
	// can says whether the agent has what the scene needs; nil: all have.
	can func(*realAgent) bool
	run func(*play) error
}

func scenes() []scene {
	return []scene{
		{"stream", nil, stream},
		{"allow", nil, allow},
		{"reject", nil, reject},
		{"cancel-asked", nil, cancelAsked},
		{"cancel-stream", nil, cancelStream},
		{"subagent", func(a *realAgent) bool { return a.delegate != nil }, subagent},
		{"question", func(a *realAgent) bool { return a.question != nil }, question},
		{"host-ask", nil, hostAsk},
		{"host-spawn", nil, hostSpawn},
		{"killed", nil, killed},
		{"restart", nil, restart},
		{"crash", nil, crash},
		{"leftovers", nil, leftovers},
	}
}

// toolStep says text and calls one tool.
func toolStep(text string, t stubllm.Tool) stubllm.Step {
	return stubllm.Step{Text: text, Tools: []stubllm.Tool{t}}
}

// countTo is a text in which nothing comes twice: some agents take that for a loop.
func countTo(n int) string {
	words := make([]string, n)
	for i := range words {
		words[i] = fmt.Sprintf("word-%d", i+1)
	}
	return strings.Join(words, " ")
}

// stream: both clients see the answer grow.
func stream(p *play) error {
	text := countTo(100)
	err := p.completes("Say a lot.", text, stubllm.Step{Text: text, Chunks: 20, DelayMS: 50})
	if err != nil {
		return err
	}
	return p.both("the answer in pieces", func(w *watcher) bool { return w.deltas[p.sid] >= 2 })
}

// allow: nothing is written before a person allows it, and both calls run then.
func allow(p *play) error {
	turn, err := p.prompt(
		"Write, then run.",
		toolStep("I write.", p.agent.write(p.path("note.txt"), "hello")),
		toolStep("I run.", p.agent.shell("printf ran > "+p.path("ran.txt"))),
		stubllm.Step{Text: "Both are done."},
	)
	if err != nil {
		return err
	}
	var seen []frames.RequestID
	for _, name := range []string{"note.txt", "ran.txt"} {
		a, err := p.asked(turn, seen...)
		if err != nil {
			return err
		}
		seen = append(seen, a.ID)
		if !strings.Contains(string(a.Input), name) {
			return fmt.Errorf("the input of the approval does not show %s: %s", name, a.Input)
		}
		if err := errors.Join(p.absent(name), p.answer(a, frames.AllowedOnce)); err != nil {
			return err
		}
	}
	return errors.Join(p.completed(turn, "Both are done."), p.holds("note.txt", "hello"), p.holds("ran.txt", "ran"))
}

// reject: what was rejected does not run, its call is closed, and the next turn works.
func reject(p *play) error {
	turn, err := p.prompt("Run.", toolStep("I run.", p.agent.shell("printf ran > "+p.path("ran.txt"))), stubllm.Step{Text: "So be it."})
	if err != nil {
		return err
	}
	a, err := p.asked(turn)
	if err != nil {
		return err
	}
	if err := errors.Join(p.answer(a, frames.Rejected), p.reason(turn, frames.TurnCompleted)); err != nil {
		return err
	}
	return errors.Join(p.completes("Go on.", "Next.", stubllm.Step{Text: "Next."}), p.absent("ran.txt"), p.refused(a))
}

// refused fails unless the call of an approval is closed as an error.
func (p *play) refused(a *frames.ApprovalRequested) error {
	_, v, err := p.desk.durable(a.SessionID)
	if err != nil {
		return err
	}
	for _, it := range v.Items {
		if it.Tool != nil && it.Tool.CallID == a.CallID {
			if it.Tool.Running || !it.Tool.IsError || len(it.Tool.Decisions) != 1 {
				return fmt.Errorf("the refused call is running %v, an error %v, with %d decisions; want no, yes, 1",
					it.Tool.Running, it.Tool.IsError, len(it.Tool.Decisions))
			}
			return nil
		}
	}
	return fmt.Errorf("there is no card of the refused call %s", a.CallID)
}

// cancelAsked: cancelling a turn that waits for a person settles the request.
func cancelAsked(p *play) error {
	turn, err := p.prompt("Run.", toolStep("I run.", p.agent.shell("printf ran > "+p.path("ran.txt"))), stubllm.Step{Text: "So be it."})
	if err != nil {
		return err
	}
	a, err := p.asked(turn)
	if err != nil {
		return err
	}
	if err := errors.Join(p.cancel(), p.settled(a, frames.Cancelled), p.reason(turn, frames.TurnCancelled)); err != nil {
		return err
	}
	if err := p.phone.Respond(p.ctx, rpc.ApprovalParams{SessionID: a.SessionID, ID: a.ID, Outcome: frames.AllowedOnce}); err == nil {
		return errors.New("an answer after the cancellation was accepted")
	}
	return errors.Join(p.completes("Go on.", "Next.", stubllm.Step{Text: "Next."}), p.absent("ran.txt"))
}

// cancelStream: a turn is cancelled while it speaks; what was said stays.
func cancelStream(p *play) error {
	turn, err := p.prompt("Say a lot.", stubllm.Step{Text: countTo(400), Chunks: 400, DelayMS: 100})
	if err != nil {
		return err
	}
	if err := p.both("pieces of the answer", func(w *watcher) bool { return w.deltas[p.sid] >= 3 }); err != nil {
		return err
	}
	if err := errors.Join(p.cancel(), p.reason(turn, frames.TurnCancelled)); err != nil {
		return err
	}
	if err := p.completes("Go on.", "Next.", stubllm.Step{Text: "Next."}); err != nil {
		return err
	}
	_, v, err := p.desk.durable(p.sid)
	if err == nil && !strings.Contains(said(v, turn), "word-1 word-2") {
		err = fmt.Errorf("of the cancelled turn %q is kept", said(v, turn))
	}
	return err
}

// subagent: what a subagent asks is asked, as its own session where the agent shows
// that, and its work is done once it is allowed.
func subagent(p *play) error {
	inner := stubllm.Script(
		toolStep("Inner agent says hi.", p.agent.shell("printf inner > "+p.path("inner.txt"))),
		stubllm.Step{Text: "Inner agent is done."},
	)
	turn, err := p.prompt("Delegate.", append(p.agent.delegate("Please do this. "+inner), stubllm.Step{Text: "Parent is done."})...)
	if err != nil {
		return err
	}
	if p.agent.mute {
		return errors.Join(p.completed(turn, "Parent is done."), p.absent("inner.txt"), errMute)
	}
	a, err := p.asked(turn)
	if err != nil {
		return err
	}
	if own := a.SessionID != p.sid; own == p.agent.flat || own && a.ParentSessionID != p.sid {
		return fmt.Errorf("the approval belongs to %s below %q, the root is %s", a.SessionID, a.ParentSessionID, p.sid)
	}
	if err := errors.Join(p.absent("inner.txt"), p.answer(a, frames.AllowedOnce)); err != nil {
		return err
	}
	if err := errors.Join(p.completed(turn, "Parent is done."), p.holds("inner.txt", "inner")); err != nil || p.agent.flat {
		return err
	}
	return p.both("the subagent's words", func(w *watcher) bool {
		v := w.folder.View(a.SessionID)
		return v != nil && len(v.Turns) == 1 && said(v, v.Turns[0].TurnID) == "Inner agent is done."
	})
}

// errMute is what the scene of an agent ends with whose subagents must not ask.
var errMute = errors.New("the subagent could not ask, and did without")

// question: one client answers what the agent asks, and the model gets the answer.
func question(p *play) error {
	turn, err := p.prompt("Ask.", toolStep("I ask.", p.agent.question()), stubllm.Step{Text: "Thank you."})
	if err != nil {
		return err
	}
	var q *frames.QuestionRequested
	if err := p.both("a question", func(w *watcher) bool {
		for _, r := range w.questions {
			if r.SessionID == p.sid {
				q = r
				return true
			}
		}
		return false
	}); err != nil {
		return err
	}
	i := -1
	for n, one := range q.Questions {
		for _, o := range one.Options {
			if o.Label == "Blue" {
				i = n
			}
		}
	}
	if i < 0 {
		return fmt.Errorf("no question offers Blue: %+v", q.Questions)
	}
	if err := p.phone.Answer(p.ctx, rpc.QuestionParams{
		SessionID: q.SessionID, ID: q.ID, Answers: []frames.Answer{{ID: q.Questions[i].ID, Labels: []string{"Blue"}}},
	}); err != nil {
		return err
	}
	if err := p.completed(turn, "Thank you."); err != nil {
		return err
	}
	if !p.model.chose("Blue", "Red") {
		return errors.New("the model was not told the answer")
	}
	return nil
}

// hostAsk: the agent asks by the host's own tool, and is told the answer.
func hostAsk(p *play) error {
	turn, err := p.prompt("Ask.", toolStep("I ask.", p.agent.hosts("ask_user", args{"questions": []args{{
		"question": "Which metal?", "options": []args{{"label": "Copper"}, {"label": "Silver"}},
	}}})), stubllm.Step{Text: "Thank you."})
	if err != nil {
		return err
	}
	err = p.allowing(turn, func(w *watcher) bool { return len(w.questions) > 0 })
	if err != nil {
		return err
	}
	p.phone.mu.Lock()
	var q *frames.QuestionRequested
	for _, q = range p.phone.questions {
	}
	p.phone.mu.Unlock()
	if q.SessionID != p.sid || len(q.Questions) != 1 {
		return fmt.Errorf("the question is %+v", q)
	}
	if err := p.phone.Answer(p.ctx, rpc.QuestionParams{
		SessionID: q.SessionID, ID: q.ID, Answers: []frames.Answer{{ID: q.Questions[0].ID, Labels: []string{"Silver"}}},
	}); err != nil {
		return err
	}
	if err := p.completed(turn, "Thank you."); err != nil {
		return err
	}
	if !p.model.chose("Silver", "Copper") {
		return errors.New("the model was not told the answer")
	}
	return nil
}

// hostSpawn: the agent starts a subagent of another kind by the host's own tool. What
// that asks is asked in its own session, below.
func hostSpawn(p *play) error {
	turn, err := p.prompt("Spawn.", toolStep("I spawn.", p.agent.hosts("spawn_subagent", args{
		"agent": "shell", "prompt": "printf spawned | tee spawned.txt",
	})), stubllm.Step{Text: "Spawned."})
	if err != nil {
		return err
	}
	var below *frames.ApprovalRequested
	err = p.allowing(turn, func(w *watcher) bool {
		for _, a := range w.approvals {
			if a.ParentSessionID == p.sid {
				below = a
			}
		}
		return below != nil
	})
	if err != nil {
		return err
	}
	if err := errors.Join(p.absent("spawned.txt"), p.answer(below, frames.AllowedOnce)); err != nil {
		return err
	}
	if err := errors.Join(p.completed(turn, "Spawned."), p.holds("spawned.txt", "spawned")); err != nil {
		return err
	}
	_, v, err := p.desk.durable(p.sid)
	if err == nil && len(v.Children()) != 1 {
		err = fmt.Errorf("%d children are known, want 1", len(v.Children()))
	}
	return err
}

// allowing allows what the agent asks of its own, until both clients see what done
// says; it fails once the turn has ended.
func (p *play) allowing(turn frames.TurnID, done func(*watcher) bool) error {
	for {
		var a *frames.ApprovalRequested
		reached := false
		if err := p.phone.until(p.ctx, "what the agent wants", func() bool {
			for _, r := range p.phone.approvals {
				if r.SessionID == p.sid {
					a = r
				}
			}
			t := p.phone.turn(p.sid, turn)
			reached = done(p.phone)
			return reached || a != nil || t != nil && t.Reason != ""
		}); err != nil {
			return err
		}
		switch {
		case reached:
			return p.both("what the agent wants", done)
		case a == nil:
			return errors.New("the turn ended, and the host's tool was not reached")
		}
		if err := p.answer(a, frames.AllowedOnce); err != nil {
			return err
		}
	}
}

// killed: an agent that dies in a turn ends it with an error, and the next prompt
// finds a new one that remembers.
func killed(p *play) error {
	p.crashes = true
	if err := p.completes("The word is heliotrope.", "Noted.", stubllm.Step{Text: "Noted."}); err != nil {
		return err
	}
	turn, err := p.prompt("Run.", toolStep("I run.", p.agent.shell("printf ran > "+p.path("ran.txt"))), stubllm.Step{Text: "So be it."})
	if err != nil {
		return err
	}
	a, err := p.asked(turn)
	if err != nil {
		return err
	}
	if killAll(p.mark) == 0 {
		return errors.New("no process of the agent was found")
	}
	if err := p.reason(turn, frames.TurnError); err != nil {
		return err
	}
	if err := p.both("the outcome of the request", func(w *watcher) bool {
		r := w.resolved[a.ID]
		return r != nil && !r.Outcome.Allows()
	}); err != nil {
		return err
	}
	return errors.Join(p.remembers("heliotrope"), p.absent("ran.txt"))
}

// remembers fails unless the model is reminded of word by the agent's memory.
func (p *play) remembers(word string) error {
	mark := "again-" + word
	if err := p.completes("Say it "+mark+".", "Next.", stubllm.Step{Text: "Next."}); err != nil {
		return err
	}
	if !p.model.heard(mark, "The word is "+word) {
		return fmt.Errorf("the agent no longer knows what was said before: the model heard %q without %q", mark, word)
	}
	return nil
}

// restart: the host goes down while a request waits, and comes up again. The
// request is settled, both clients come back by themselves, and the agent remembers.
func restart(p *play) error { return p.again("marmalade", false) }

// crash: the same, but the host is killed.
func crash(p *play) error { return p.again("periwinkle", true) }

// again ends the host while a request waits, and starts it again.
func (p *play) again(word string, crash bool) error {
	if err := p.completes("The word is "+word+".", "Noted.", stubllm.Step{Text: "Noted."}); err != nil {
		return err
	}
	turn, err := p.prompt("Run.", toolStep("I run.", p.agent.shell("printf ran > "+p.path("ran.txt"))), stubllm.Step{Text: "So be it."})
	if err != nil {
		return err
	}
	a, err := p.asked(turn)
	if err != nil {
		return err
	}
	err = p.down(crash)
	if err := errors.Join(err, p.up(p.ctx), p.reason(turn, frames.TurnInterrupted)); err != nil {
		return err
	}
	if err := p.both("that the request is over", func(w *watcher) bool {
		v := w.folder.View(p.sid)
		return v != nil && len(v.Pending()) == 0 && w.approvals[a.ID] == nil
	}); err != nil {
		return err
	}
	return errors.Join(p.remembers(word), p.absent("ran.txt"))
}

// leftovers: commands that stay behind, also in sessions of their own, end with the
// session or the host. That they do is seen when the host has ended.
func leftovers(p *play) error {
	turn, err := p.prompt("Run.", toolStep("I run.", p.agent.shell(
		"nohup sleep 7771 >/dev/null 2>&1 & setsid sleep 7772 >/dev/null 2>&1 & (setsid sh -c 'sleep 7773 >/dev/null 2>&1 &' &) ; echo started",
	)), stubllm.Step{Text: "Started."})
	if err != nil {
		return err
	}
	a, err := p.asked(turn)
	if err != nil {
		return err
	}
	if err := p.answer(a, frames.AllowedOnce); err != nil {
		return err
	}
	err = p.completed(turn, "Started.")
	behind := slices.DeleteFunc(survivors(p.mark, false), func(s string) bool { return !strings.Contains(s, "sleep 777") })
	fmt.Fprintf(os.Stderr, "%s left %d commands behind: %q\n", p.agent.name, len(behind), behind)
	return err
}

// sceneTime bounds a scene: an agent needs up to a minute where the machine is busy.
const sceneTime = 8 * time.Minute
