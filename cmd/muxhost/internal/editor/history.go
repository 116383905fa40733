package editor

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/muxhost/muxhost/frames"
)

// answer is what a request that opens the session is answered with.
func (th *thread) answer(p sessionParams) obj {
	th.mode = modeOf(th.view.Policy)
	meta := obj{"agent": th.view.Agent, "cwd": th.view.Cwd}
	if len(p.MCP) > 0 {
		meta["ignored"] = []string{"mcpServers"}
	}
	if p.Cwd != "" && p.Cwd != th.view.Cwd {
		th.b.log.Info("the session runs in a directory other than the editor's", slog.String("session", string(th.id)))
	}
	return obj{"sessionId": th.id, "modes": modes(th.mode), "_meta": obj{"muxhost": meta}}
}

// history sends the whole session and those below it, as they are now.
func (th *thread) history() {
	th.begin()
	th.items(0)
	th.present()
}

// begin forgets what was sent.
func (th *thread) begin() {
	th.turn = th.view.TurnID
	clear(th.said)
	clear(th.running)
	th.announced, th.state = false, ""
}

// present sends how the session is now, without what was said before its open turn's
// last words.
func (th *thread) present() {
	th.turned(th.view.TurnID)
	if th.view.Title != "" {
		th.named()
	}
	if len(th.view.Todos) > 0 {
		th.plan()
	}
	if len(th.view.Commands) > 0 {
		th.commands()
	}
	th.usage()
	th.openText()
	for _, other := range th.family() {
		if other.parent == th && !other.told {
			other.told = true
			other.turned(other.view.TurnID)
			other.openText()
			other.digest(nil)
		}
	}
}

// items sends the transcript from the entries after a number on.
func (th *thread) items(after frames.Seq) {
	done := map[*thread]bool{}
	for _, it := range th.view.Items {
		if it.Seq <= after || it.Void {
			continue
		}
		th.item(it)
		if it.Kind == frames.ItemAgent {
			if child := th.b.threads[it.Agent.ChildSessionID]; child != nil && child.parent == th {
				child.past(after)
				done[child] = true
			}
		}
	}
	for _, child := range th.family() {
		if child.parent == th && !done[child] {
			child.past(after)
		}
	}
	th.turned(th.view.TurnID)
}

// past sends the transcript of a child within that of its parent.
func (th *thread) past(after frames.Seq) {
	if after > 0 {
		return // its own frames bring what is new
	}
	th.begin()
	th.told = true
	if !th.direct() {
		th.sendDigest(true)
		return
	}
	th.items(0)
	th.openText()
	th.childEnded()
}

// item sends one entry of the transcript.
func (th *thread) item(it *frames.Item) {
	switch it.Kind {
	case frames.ItemUser, frames.ItemSteering, frames.ItemContext:
		th.input(it.By, it.Seq, it.PromptID, it.Content)
	case frames.ItemAssistant:
		th.turned(it.TurnID) // numbers of blocks begin anew with each turn
		th.message(agentChunk, it.TurnID, it.Seq, it.Content, it.Blocks)
	case frames.ItemReasoning:
		th.turned(it.TurnID)
		th.message(thoughtChunk, it.TurnID, it.Seq, it.Content, it.Blocks)
	case frames.ItemTool:
		th.card(it.Tool)
	case frames.ItemCompaction:
		th.compacted(it.Seq, it.Content)
	case frames.ItemBlocked:
		th.remark("warning", "A prompt was refused: "+it.Message)
	case frames.ItemError:
		th.remark("error", it.Message)
	case frames.ItemAgent, frames.ItemApproval, frames.ItemQuestion:
	}
}

// card sends a call with its end, if it has one.
func (th *thread) card(t *frames.ToolCard) {
	u := th.call(t)
	delete(th.running, t.CallID)
	switch {
	case t.ResultSeq > 0:
		maps.Copy(u, th.result(t))
	case t.Running:
		th.running[t.CallID] = true
	default:
		u["status"] = "failed" // its turn ended without it
	}
	th.emit(u)
}

// ended sends the ends of calls that the editor saw begin.
func (th *thread) ended() {
	if len(th.running) == 0 {
		return
	}
	cards := map[frames.CallID]*frames.ToolCard{}
	for _, it := range th.view.Items {
		if it.Kind == frames.ItemTool {
			cards[it.Tool.CallID] = it.Tool
		}
	}
	for _, id := range slices.Sorted(maps.Keys(th.running)) {
		t := cards[id]
		if t != nil && t.Running {
			continue
		}
		th.over(id)
		u := obj{"status": "failed"} // its turn ended without it, or the log has it no more
		if t != nil && t.ResultSeq > 0 {
			u = th.result(t)
		}
		u["sessionUpdate"], u["toolCallId"] = "tool_call_update", id
		th.emit(u)
	}
}

// words is the last that a session said, at most n bytes.
func words(v *frames.View, n int) string {
	if live := v.Live(); live != nil {
		for i := len(live.Blocks) - 1; i >= 0; i-- {
			if b := live.Blocks[i]; b.Kind == "assistant" && b.Text != "" {
				return frames.Tail(b.Text, n)
			}
		}
	}
	for i := len(v.Items) - 1; i >= 0; i-- {
		switch it := v.Items[i]; {
		case it.Kind == frames.ItemAssistant && !it.Void && texts(it.Content) != "":
			return frames.Tail(texts(it.Content), n)
		case it.Kind == frames.ItemTool && it.Tool.Running:
			return fmt.Sprintf("[%s]", first(it.Tool.Title, it.Tool.Name))
		}
	}
	return ""
}
