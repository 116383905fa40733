package editor

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

// acpEvent begins the types of events that hold an update of an agent below, as it
// came.
const acpEvent = "acp.agentclientprotocol.com/"

// event sends what a new event means to the editor.
func (th *thread) event(e frames.Event) {
	p, err := e.Payload()
	if err != nil {
		th.b.log.Error("an event cannot be read", slog.Any("error", err))
		return
	}
	th.promptEvent(e, p)
	th.childEvent(p)
	switch p.(type) {
	case *frames.ApprovalAsked, *frames.QuestionAsked:
		th.askAll(false)
	}
	if !th.direct() {
		th.digest(p)
		return
	}
	if p == nil {
		th.vendor(e)
		return
	}
	th.textEvent(e, p)
	th.toolEvent(p)
	th.stateEvent(e, p)
	if end, ok := p.(*frames.TurnEnd); ok {
		th.turned("")
		th.endPrompts(e, end)
		if th.parent != nil {
			th.idle(end.Reason)
		}
	}
}

// textEvent sends what was said.
func (th *thread) textEvent(e frames.Event, p any) {
	switch p := p.(type) {
	case *frames.TurnStart:
		th.turned(e.TurnID)
	case *frames.UserMessage:
		th.input(e.By, e.Seq, p.PromptID, p.Content)
	case *frames.SteeringMessage:
		th.input(e.By, e.Seq, p.PromptID, p.Content)
	case *frames.ContextMessage:
		th.input(e.By, e.Seq, p.PromptID, p.Content)
	case *frames.AssistantDelta:
		th.delta(agentChunk, p.Block, p.From, p.To, p.Text)
	case *frames.ReasoningDelta:
		th.delta(thoughtChunk, p.Block, p.From, p.To, p.Text)
	case *frames.AssistantMessage:
		th.message(agentChunk, e.TurnID, e.Seq, p.Content, p.Blocks)
	case *frames.ReasoningMessage:
		th.message(thoughtChunk, e.TurnID, e.Seq, p.Content, p.Blocks)
	case *frames.AssistantRetracted:
		th.retracted(p)
	}
}

// The kinds of chunks.
const (
	userChunk    = "user_message_chunk"
	agentChunk   = "agent_message_chunk"
	thoughtChunk = "agent_thought_chunk"
)

// input sends what somebody said to the agent, unless it was the editor.
func (th *thread) input(by *frames.By, seq frames.Seq, id frames.PromptID, content []frames.ContentBlock) {
	if th.mine[id] {
		delete(th.mine, id)
		return
	}
	if th.parent != nil && !th.announced {
		th.title = first(th.title, th.view.Title)
		th.announceAs(texts(content))
	}
	meta := obj{"seq": seq}
	if by != nil {
		meta["by"] = by
	}
	for _, c := range content {
		th.emit(obj{
			"sessionUpdate": userChunk, "content": shown(c), "_meta": obj{"muxhost": meta},
			"messageId": first(string(id), fmt.Sprintf("seq/%d", seq)),
		})
	}
}

// block is what was sent of a block of the open turn.
func (th *thread) block(n int) *said {
	s := th.said[n]
	if s == nil {
		s = &said{}
		th.said[n] = s
	}
	return s
}

// chunk sends text of a block.
func (th *thread) chunk(kind, message, text string) {
	if text != "" {
		th.emit(obj{"sessionUpdate": kind, "content": obj{"type": "text", "text": text}, "messageId": message})
	}
}

func messageID(turn frames.TurnID, block int) string { return fmt.Sprintf("%s/%d", turn, block) }

// delta sends chunks [from, to) of a block. Chunks that are missing come with the
// next session/live.
func (th *thread) delta(kind string, n, from, to int, text string) {
	s := th.block(n)
	if s.closed || to <= s.to || from != s.to {
		return
	}
	s.to = to
	s.text.WriteString(text)
	th.chunk(kind, messageID(th.turn, n), text)
}

// openText sends what the open turn says beyond what was sent.
func (th *thread) openText() {
	live := th.view.Live()
	if live == nil {
		return
	}
	for _, lb := range live.Blocks {
		s := th.block(lb.Block)
		kind := agentChunk
		if lb.Kind == "reasoning" {
			kind = thoughtChunk
		}
		if rest, ok := strings.CutPrefix(lb.Text, s.text.String()); ok && !s.closed {
			s.to = lb.To
			s.text.WriteString(rest)
			th.chunk(kind, messageID(live.TurnID, lb.Block), rest)
		}
	}
	for _, tool := range live.Tools {
		if tool.Text != "" {
			th.b.later(th, tool.CallID)
		}
	}
}

// message sends what a message says beyond what was sent of its blocks.
func (th *thread) message(kind string, turn frames.TurnID, seq frames.Seq, content []frames.ContentBlock, blocks []int) {
	if len(blocks) != len(content) {
		th.joined(kind, turn, seq, content, blocks)
		return
	}
	for i, c := range content {
		s := th.block(blocks[i])
		s.closed = true
		id := messageID(turn, blocks[i])
		if c.Type != "text" {
			th.emit(obj{"sessionUpdate": kind, "content": shown(c), "messageId": id})
			continue
		}
		th.rest(kind, id, seq, s, c)
	}
}

// rest sends what a text block has beyond what was sent; one that differs is sent
// again, as a message of its own.
func (th *thread) rest(kind, id string, seq frames.Seq, s *said, c frames.ContentBlock) {
	had, text := s.text.String(), whole(c)
	rest, ok := strings.CutPrefix(text, had)
	switch {
	case ok:
	case c.Truncated != nil && strings.HasPrefix(had, c.Text):
		return // more was sent than the preview holds
	default:
		id, rest = fmt.Sprintf("%s/%d", id, seq), text
		s.text.Reset()
	}
	s.text.WriteString(rest)
	th.chunk(kind, id, rest)
}

// joined sends a message whose parts are not its blocks one by one.
func (th *thread) joined(kind string, turn frames.TurnID, seq frames.Seq, content []frames.ContentBlock, blocks []int) {
	var sent said
	for _, n := range blocks {
		s := th.block(n)
		s.closed = true
		sent.text.WriteString(s.text.String())
	}
	id := fmt.Sprintf("seq/%d", seq)
	if len(blocks) > 0 {
		id = messageID(turn, blocks[len(blocks)-1])
	}
	if sent.text.Len() > 0 {
		th.rest(kind, id, seq, &sent, frames.Text(texts(content)))
	}
	for _, c := range content {
		if c.Type != "text" || sent.text.Len() == 0 {
			th.emit(obj{"sessionUpdate": kind, "content": shown(c), "messageId": id})
		}
	}
}

func (th *thread) retracted(p *frames.AssistantRetracted) {
	sent := false
	for _, n := range p.Blocks {
		s := th.block(n)
		s.closed = true
		sent = sent || s.text.Len() > 0
	}
	if sent {
		th.tell("warning", strings.TrimSuffix("The agent took back what it said last: "+p.Reason, ": "))
	}
}

// stateEvent sends how things are now.
func (th *thread) stateEvent(e frames.Event, p any) {
	switch p := p.(type) {
	case *frames.TodoWrite:
		th.plan()
	case *frames.UsageUpdated:
		th.usage()
	case *frames.CommandAvailable:
		th.commands()
	case *frames.SessionRenamed:
		th.named()
	case *frames.SessionConfigured:
		th.modeNow()
	case *frames.SessionCompacted:
		th.compacted(e.Seq, p.Content)
	case *frames.PromptBlocked:
		th.tell("warning", "A prompt was refused: "+p.Reason)
	case *frames.ErrorReported:
		th.tell("error", p.Message)
	}
}

func (th *thread) plan() {
	entries := []obj{}
	for _, t := range th.view.Todos {
		entries = append(entries, obj{
			"content": t.Content, "priority": word(t.Priority, "medium", "high", "low"),
			"status": word(t.Status, "pending", "in_progress", "completed"),
		})
	}
	th.emit(obj{"sessionUpdate": "plan", "entries": entries})
}

// usage tells how full the agent's memory is; where its size is not known, a share
// cannot be shown.
func (th *thread) usage() {
	u := th.view.Usage
	if u == nil || u.ContextWindow == 0 {
		return
	}
	out := obj{"sessionUpdate": "usage_update", "used": u.ContextTokens, "size": u.ContextWindow}
	if amount, err := strconv.ParseFloat(u.Cost, 64); err == nil {
		out["cost"] = obj{"amount": amount, "currency": first(u.Currency, "USD")}
	}
	th.emit(out)
}

func (th *thread) commands() {
	list := []obj{}
	for _, c := range th.view.Commands {
		list = append(list, obj{"name": c.Name, "description": c.Description})
	}
	th.emit(obj{"sessionUpdate": "available_commands_update", "availableCommands": list})
}

func (th *thread) named() {
	th.emit(obj{"sessionUpdate": "session_info_update", "title": th.view.Title})
}

func (th *thread) modeNow() {
	if now := modeOf(th.view.Policy); now != th.mode {
		th.mode = now
		th.emit(obj{"sessionUpdate": "current_mode_update", "currentModeId": now})
	}
}

// compacted tells that the agent's memory was summarised, where the editor takes it.
func (th *thread) compacted(seq frames.Seq, summary []frames.ContentBlock) {
	if !th.b.editor.compactions() || th.b.agents[th.view.Agent] {
		return // an agent of the protocol says so itself
	}
	blocks := []obj{}
	for _, c := range summary {
		blocks = append(blocks, shown(c))
	}
	th.emit(obj{"sessionUpdate": "compaction_update", "compactionId": fmt.Sprintf("seq/%d", seq), "status": "completed", "summary": blocks})
}

// vendor passes on what an agent of the protocol said and the contract has no word
// for, as it came, if the editor can take it.
func (th *thread) vendor(e frames.Event) {
	kind, ok := strings.CutPrefix(string(e.Type), acpEvent)
	var u map[string]json.RawMessage
	if !ok || json.Unmarshal(e.Data, &u) != nil || acprpc.Plain(u["sessionUpdate"]) != kind {
		return
	}
	data := e.Data
	switch kind {
	case "tool_call", "tool_call_update":
		var content []json.RawMessage
		if json.Unmarshal(u["content"], &content) == nil && slices.ContainsFunc(content, foreign) {
			delete(u, "content") // an empty list would take away what is shown
			if content = slices.DeleteFunc(content, foreign); len(content) > 0 {
				u["content"] = acprpc.Marshal(content)
			}
			data = acprpc.Marshal(u)
		}
	case "available_commands_update":
	case "notice":
		if !th.b.editor.notices() {
			th.tell(acprpc.Plain(u["severity"]), strings.TrimSpace(acprpc.Plain(u["title"])+"\n"+plain(u["description"])))
			return
		}
	case "compaction_update", "compaction_summary_chunk":
		if !th.b.editor.compactions() {
			return
		}
	default:
		return
	}
	th.announce()
	th.b.send("session/update", obj{"sessionId": th.id, "update": data})
}

// plain is a text that may be missing.
func plain(raw json.RawMessage) string {
	if acprpc.IsNull(raw) {
		return ""
	}
	return acprpc.Plain(raw)
}
