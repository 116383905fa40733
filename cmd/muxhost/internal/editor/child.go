package editor

import (
	"github.com/muxhost/muxhost/frames"
)

// announce tells of a child before anything of it is sent.
func (th *thread) announce() {
	if th.parent != nil && !th.announced && th.b.editor.subagents() {
		th.announceAs("")
	}
}

// announceAs is announce with what the child was asked to do.
func (th *thread) announceAs(task string) {
	if th.announced || !th.direct() || th.parent == nil || !th.b.editor.subagents() {
		return
	}
	th.announced = true
	u := obj{"sessionUpdate": "subagent_update", "sessionId": th.id, "state": obj{"state": "running"}, "capabilities": obj{"cancel": obj{}}}
	set(u, "title", first(th.title, th.view.Title, task))
	set(u, "description", task)
	set(u, "cwd", first(th.view.Cwd, th.cwd))
	u["_meta"] = obj{"muxhost": obj{"agent": first(th.view.Agent, th.agent)}}
	th.state = "running"
	th.parent.emit(u)
}

// childState tells of a child's state when it changes.
func (th *thread) childState(state string, stop string) {
	if th.parent == nil || !th.announced || th.state == state {
		return
	}
	th.state = state
	s := obj{"state": state}
	set(s, "stopReason", stop)
	u := obj{"sessionUpdate": "subagent_update", "sessionId": th.id, "state": s}
	if state == "idle" {
		u["capabilities"] = nil // it takes session/cancel no more
	}
	th.parent.emit(u)
}

// childEvent follows what a child's events say of its state.
func (th *thread) childEvent(p any) {
	if th.parent == nil || !th.direct() {
		return
	}
	switch p.(type) {
	case *frames.TurnStart:
		th.childState("running", "")
	case *frames.ApprovalAsked, *frames.QuestionAsked:
		th.childState("requires_action", "")
	case *frames.ApprovalDecided, *frames.QuestionDecided:
		if len(th.view.Pending()) == 0 && th.state == "requires_action" {
			th.childState("running", "")
		}
	}
}

// idle tells that a child's work has ended.
func (th *thread) idle(reason frames.TurnEndReason) {
	th.announce()
	th.childState("idle", stopReason(reason))
}

// childEnded tells of the end of a child that is sent as part of the past.
func (th *thread) childEnded() {
	turns := th.view.Turns
	if n := len(turns); n > 0 && th.view.TurnID == "" {
		th.idle(turns[n-1].Reason)
	}
}

// digest follows a child that is shown as a tool call of the session above.
func (th *thread) digest(p any) {
	if th.direct() || !th.told {
		return
	}
	if _, over := p.(*frames.TurnEnd); over {
		th.sendDigest(false)
		delete(th.b.dirty, th)
		return
	}
	th.b.later(th, "")
}

// sendDigest sends a child as a tool call, with its last words.
func (th *thread) sendDigest(anew bool) {
	at := th.shownIn()
	if at == th {
		return
	}
	u := obj{"sessionUpdate": "tool_call_update", "toolCallId": "subagent:" + string(th.id), "status": "in_progress"}
	if anew || !th.announced {
		th.announced = true
		u["sessionUpdate"], u["kind"] = "tool_call", "other"
		u["title"] = "Subagent: " + first(th.view.Title, th.title, th.view.Agent, string(th.id))
	}
	if n := len(th.view.Turns); n > 0 && th.view.TurnID == "" {
		u["status"] = "completed"
		if r := th.view.Turns[n-1].Reason; r != frames.TurnCompleted {
			u["status"] = "failed"
		}
	}
	if text := words(th.view, maxProgress); text != "" {
		u["content"] = []obj{{"type": "content", "content": obj{"type": "text", "text": text}}}
	}
	at.emit(u)
}
