package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/term"
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc/client"
)

// plain writes facts for logs and audits: one line each, with the time, the
// session, the number and the type of the event. Nothing is coloured, cut or
// interpreted; control characters are made visible.
type plain struct {
	w   io.Writer
	now func() time.Time // of frames that carry no time
	// tools are the names of running calls.
	tools map[frames.CallID]string
}

func newPlain(w io.Writer) *plain {
	return &plain{w: w, now: time.Now, tools: map[frames.CallID]string{}}
}

// line writes one fact; seq 0 is none.
func (p *plain) line(at frames.Time, sid frames.SessionID, seq frames.Seq, what, text string) error {
	n := "-"
	if seq > 0 {
		n = fmt.Sprint(seq)
	}
	_, err := fmt.Fprintln(p.w, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s", at, term.VisibleLine(string(sid)), n, term.VisibleLine(what), term.VisibleLine(text))))
	return err
}

// frame writes what f says; frames that repeat what an event says write nothing.
func (p *plain) frame(f frames.Frame) error {
	now := frames.At(p.now())
	switch f := f.(type) {
	case *frames.SessionEvent:
		e, err := frames.DecodeEvent(f.Event)
		if err != nil {
			return err
		}
		if e.Seq == 0 {
			return nil
		}
		return p.event(f.SessionID, e)
	case *frames.SessionSubscribed:
		if f.First > 1 && f.Since < f.First-1 {
			return p.line(now, f.SessionID, 0, "trimmed", fmt.Sprintf("events up to %d are no longer kept", f.First-1))
		}
	case *client.Reset:
		return p.line(now, f.SessionID, 0, "replaced", "the log was replaced: from the start")
	case *frames.AgentError:
		return p.line(now, f.SessionID, 0, "agent-error", f.Message)
	case *frames.HostDraining:
		return p.line(now, "-", 0, "draining", "the host is going down")
	case *frames.SessionUnsubscribed:
		return p.line(now, f.SessionID, 0, "unsubscribed", f.Reason)
	}
	return nil
}

// event writes one stored event.
func (p *plain) event(sid frames.SessionID, e frames.Event) error {
	v, err := e.Payload()
	text := ""
	if err == nil && v != nil {
		text = p.told(v)
	}
	if text == "" {
		text = string(e.Data)
	}
	if e.By != nil && !saysWho(v) {
		text += " by " + who(e.By)
	}
	return p.line(e.Time, sid, e.Seq, string(e.Type), text)
}

// told says an event in words, "" where its data says it best.
func (p *plain) told(v any) string {
	switch v := v.(type) {
	case *frames.UserMessage:
		return content(v.Content)
	case *frames.SteeringMessage:
		return content(v.Content)
	case *frames.ContextMessage:
		return content(v.Content)
	case *frames.PromptQueued:
		return fmt.Sprintf("%s (%s): %s", v.PromptID, v.Mode, content(v.Content))
	case *frames.AssistantMessage:
		return content(v.Content)
	case *frames.ReasoningMessage:
		return content(v.Content)
	case *frames.TurnStart:
		return strings.TrimSpace(v.Trigger + " " + string(v.PromptID))
	case *frames.TurnEnd:
		return joined(string(v.Reason), v.Message)
	case *frames.ErrorReported:
		return joined(v.Code, v.Message)
	case *frames.SessionRenamed:
		return v.Title
	case *frames.AgentSpawned:
		return strings.TrimSpace(string(v.ChildSessionID) + " " + v.Title)
	case *frames.AgentCompleted:
		return joined(string(v.ChildSessionID)+" "+v.Status, content(v.Result))
	case *frames.TaskStarted:
		return joined(string(v.TaskID)+" "+v.Kind, v.Label)
	case *frames.TaskCompleted:
		return joined(string(v.TaskID)+" "+v.Status, v.Detail)
	}
	return p.gate(v)
}

// gate says tool calls, and what was asked and who answered.
func (p *plain) gate(v any) string {
	switch v := v.(type) {
	case *frames.ToolCall:
		p.tools[v.CallID] = v.Name
		return joined(string(v.CallID)+" "+v.Name, string(v.Input))
	case *frames.ToolResult:
		how := "ok"
		if v.IsError {
			how = strings.TrimSpace("failed " + v.ErrorCode)
		}
		name := p.tools[v.CallID]
		delete(p.tools, v.CallID)
		took := (time.Duration(v.DurationMs) * time.Millisecond).String()
		return joined(fmt.Sprintf("%s %s %s in %s", v.CallID, name, how, took), content(v.Content))
	case *frames.ApprovalAsked:
		return joined(string(v.ID)+" "+v.Tool.Name, string(v.Input))
	case *frames.ApprovalDecided:
		return decided(string(v.ID), v.Outcome, v.Origin, v.By, v.Feedback)
	case *frames.QuestionAsked:
		var all []string
		for _, q := range v.Questions {
			all = append(all, q.Question)
		}
		return joined(string(v.ID), strings.Join(all, " / "))
	case *frames.QuestionDecided:
		return decided(string(v.ID), v.Outcome, v.Origin, v.By, answersText(v.Answers))
	case *frames.TodoWrite:
		var all []string
		for _, t := range v.Todos {
			all = append(all, fmt.Sprintf("[%s] %s", t.Status, t.Content))
		}
		return strings.Join(all, "; ")
	}
	return ""
}

// saysWho reports whether what is told of an event ends with who did it.
func saysWho(v any) bool {
	switch v := v.(type) {
	case *frames.ApprovalDecided:
		return v.By != nil
	case *frames.QuestionDecided:
		return v.By != nil
	}
	return false
}

func decided(id string, o frames.Outcome, c frames.Cause, by *frames.By, more string) string {
	s := fmt.Sprintf("%s %s (%s)", id, o, c)
	if by != nil {
		s += " by " + who(by)
	}
	return joined(s, more)
}

func who(by *frames.By) string {
	if by.Label == "" {
		return string(by.ClientID)
	}
	return fmt.Sprintf("%s (%s)", by.Label, by.ClientID)
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ": " + b
}

// content is all text of content; what is not text stands as JSON.
func content(all []frames.ContentBlock) string {
	var out []string
	for _, b := range all {
		if b.Type == "text" && b.Truncated == nil {
			out = append(out, b.Text)
			continue
		}
		raw, err := json.Marshal(b)
		if err != nil {
			raw = []byte(b.Type)
		}
		out = append(out, string(raw))
	}
	return strings.Join(out, " ")
}
