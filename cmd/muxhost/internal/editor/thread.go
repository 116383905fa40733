package editor

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc/client"
)

// thread is one session that is followed.
type thread struct {
	b      *bridge
	id     frames.SessionID
	parent *thread // who spawned it, where that is followed too; else nil
	view   *frames.View

	title, agent, cwd string // of a child, before its first event
	opening           *opening
	// own says that the editor opened the session itself; told that it knows of it,
	// so that updates go out; live that all that was stored has come.
	own, told, live bool
	// begun says that what is subscribed has begun; what came before is of an earlier
	// subscription.
	begun bool
	// refold is where the editor's picture ends while the log comes anew.
	refold *mark
	mode   string // that the editor was told

	turn    frames.TurnID // the open turn
	said    map[int]*said // its blocks, as far as they were sent
	running map[frames.CallID]bool
	notices int // sent, to tell them apart

	prompts []*prompt
	mine    map[frames.PromptID]bool // prompts of the editor that are not to be repeated to it
	cards   map[frames.RequestID]*card

	announced bool   // a child, to the editor
	state     string // of a child, that the editor was told
}

// mark is a place in a log.
type mark struct {
	seq   frames.Seq
	epoch frames.Epoch
}

// said is what was sent of a block.
type said struct {
	text   strings.Builder
	to     int  // chunks
	closed bool // it is over; later chunks are void
}

func (b *bridge) newThread(sid frames.SessionID, parent *thread) *thread {
	th := &thread{
		b: b, id: sid, parent: parent, view: frames.NewView(), said: map[int]*said{}, running: map[frames.CallID]bool{},
		mine: map[frames.PromptID]bool{}, cards: map[frames.RequestID]*card{},
	}
	b.threads[sid] = th
	return th
}

// below reports whether th is top or a session below it.
func (th *thread) below(top *thread) bool {
	for ; th != nil; th = th.parent {
		if th == top {
			return true
		}
	}
	return false
}

// family is th and the sessions below it, parents first.
func (th *thread) family() []*thread {
	out := []*thread{th}
	for i := 0; i < len(out); i++ {
		first := len(out)
		for _, other := range th.b.threads {
			if other.parent == out[i] {
				out = append(out, other)
			}
		}
		slices.SortFunc(out[first:], func(a, b *thread) int { return strings.Compare(string(a.id), string(b.id)) })
	}
	return out
}

// direct reports whether the session's traffic goes out under its own id. Else it is
// shown as a tool call of the nearest session above that is.
func (th *thread) direct() bool {
	return th.own || th.parent == nil || th.b.editor.subagents() && th.parent.direct()
}

// shownIn is the session in which th is seen.
func (th *thread) shownIn() *thread {
	for !th.direct() {
		th = th.parent
	}
	return th
}

// emit sends an update of the session.
func (th *thread) emit(update obj) {
	if !th.direct() {
		return
	}
	th.announce()
	th.b.send("session/update", obj{"sessionId": th.id, "update": update})
}

// tell tells the person something that is the program's own, not the agent's.
func (th *thread) tell(severity, text string) {
	th = th.shownIn()
	if th.b.editor.notices() {
		th.emit(obj{"sessionUpdate": "notice", "severity": severity, "title": text})
		return
	}
	th.remark(severity, text)
}

// remark is tell as part of the transcript, which notices are not.
func (th *thread) remark(severity, text string) {
	th.notices++
	th.emit(obj{
		"sessionUpdate": "agent_message_chunk", "messageId": fmt.Sprintf("muxhost/%d", th.notices),
		"content": obj{"type": "text", "text": "\n[muxhost] " + text + "\n"}, "_meta": obj{"muxhost": obj{"notice": severity}},
	})
}

// frame takes a frame of the session.
func (th *thread) frame(f frames.Frame) {
	var e frames.Event
	switch f := f.(type) {
	case *client.Reset:
		th.reset()
		return
	case *frames.SessionUnsubscribed:
		if f.Reason != byRequest {
			th.gone(f.Reason)
		}
		return
	case *frames.SessionSubscribed:
		th.begun = th.begun || f.Since == 0
	case *frames.AgentError:
		if th.told {
			th.tell("error", f.Message)
		}
		return
	case *frames.SessionEvent:
		var err error
		if e, err = frames.DecodeEvent(f.Event); err != nil {
			th.b.log.Error("an event cannot be read", slog.Any("error", err))
			return
		}
	}
	if !th.begun {
		return
	}
	if err := th.view.ApplyFrame(f); err != nil && !errors.Is(err, frames.ErrGap) {
		th.b.log.Warn("a frame does not fold", slog.Any("error", err))
	}
	th.after(f, e)
}

// after does what a frame calls for, once it is folded.
func (th *thread) after(f frames.Frame, e frames.Event) {
	switch f := f.(type) {
	case *frames.SessionSubscribed:
		th.live = false
	case *frames.SessionEvent:
		if th.told && th.refold == nil {
			th.event(e)
		}
	case *frames.SessionLive:
		if !f.More {
			th.live = true
			th.caughtUp()
		}
	case *frames.ApprovalRequested, *frames.QuestionRequested:
		if th.told {
			th.askAll(false)
		}
	case *frames.ApprovalResolved:
		th.settled(f.ID)
	case *frames.QuestionResolved:
		th.settled(f.ID)
	}
}

// reset begins anew: the log was replaced, or trimmed beyond the cursor.
func (th *thread) reset() {
	if th.told && th.refold == nil {
		th.refold = &mark{th.view.Seq, th.view.Epoch}
	}
	th.view = frames.NewView()
}

// caughtUp sends what was missed, once all that was stored has come.
func (th *thread) caughtUp() {
	if !th.told {
		return
	}
	if m := th.refold; m != nil {
		th.refold = nil
		if m.epoch != th.view.Epoch {
			th.tell("warning", "The session's log was replaced. What follows is the session as it is now.")
			m.seq = 0
		}
		th.items(m.seq)
		th.ended()
		th.plan()
		th.missedPrompts()
	}
	th.turned(th.view.TurnID)
	th.openText()
	for id := range th.cards {
		if !slices.ContainsFunc(th.view.Pending(), func(p frames.Pending) bool { return p.Card && p.ID == id }) {
			th.settled(id)
		}
	}
	th.checkPrompts()
	th.askAll(true)
}

// byRequest is why a subscription ended that the program ended itself.
const byRequest = "requested"

// turned notes which turn is open.
func (th *thread) turned(turn frames.TurnID) {
	if th.turn == turn {
		return
	}
	th.turn = turn
	clear(th.said)
}

// gone takes the end of the subscription.
func (th *thread) gone(reason string) {
	err := fmt.Errorf("session %s is not to be had any more: %s", th.id, reason)
	if th.told {
		th.tell("warning", "This session is not to be had any more: "+reason+".")
	}
	th.b.drop(th, err)
}

// end answers what the editor waits for in a session that is forgotten.
func (th *thread) end(err error) {
	if o := th.opening; o != nil {
		th.opening = nil
		for _, w := range o.waits {
			th.b.fail(w.in, cmp.Or(err, errClosed))
		}
	}
	if err != nil {
		for _, p := range slices.Clone(th.prompts) {
			th.refused(p, err)
		}
	}
	th.detach()
}

var errClosed = errors.New("the session, or one above it, was closed meanwhile")

// detach answers what the editor waits for in a session that it closes.
func (th *thread) detach() {
	for _, p := range th.prompts {
		th.b.conn.Reply(p.in.ID, stopped("cancelled", obj{"detached": true}))
	}
	th.prompts, th.own = nil, false
}
