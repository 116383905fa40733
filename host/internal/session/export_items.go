package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// item writes one entry of the fold.
func (t *transcript) item(dst []byte, it *frames.Item) []byte {
	switch it.Kind {
	case frames.ItemUser:
		return t.spoken(dst, "User"+byText(it.By), it)
	case frames.ItemSteering:
		return t.spoken(dst, "User, while it ran"+byText(it.By), it)
	case frames.ItemContext:
		return t.spoken(dst, "Context"+byText(it.By), it)
	case frames.ItemAssistant:
		if it.Void {
			return dst
		}
		who := "Assistant"
		if it.Partial {
			who = "Assistant, cut off"
		}
		return t.spoken(dst, who, it)
	case frames.ItemReasoning:
		if it.Void || len(it.Content) == 0 {
			return dst
		}
		dst = append(dst, "\n<details><summary>Reasoning</summary>\n"...)
		dst = quoted(append(dst, '\n'), it.Content)
		return append(dst, "\n</details>\n"...)
	case frames.ItemCompaction:
		return t.spoken(dst, fmt.Sprintf("Compacted: the model sees this in place of events up to %d", it.UpTo), it)
	case frames.ItemTool:
		return t.tool(dst, it)
	case frames.ItemAgent:
		return t.child(dst, it.Agent)
	case frames.ItemApproval:
		return t.decision(append(dst, '\n'), "Approval", it.Decision)
	case frames.ItemQuestion:
		return t.decision(append(dst, '\n'), "Question", it.Decision)
	case itemNote:
		return fmt.Appendf(dst, "\n*%s*\n", it.Message)
	case frames.ItemBlocked:
		return fmt.Appendf(dst, "\n**Blocked** %s\n", inline(it.Message))
	case frames.ItemError:
		return fmt.Appendf(dst, "\n**Error** %s\n", inline(join(it.Code, it.Message)))
	}
	return dst
}

// spoken writes words with whose they are.
func (t *transcript) spoken(dst []byte, who string, it *frames.Item) []byte {
	dst = fmt.Appendf(dst, "\n**%s** · %s\n\n", who, it.Time)
	return quoted(dst, it.Content)
}

// quoted writes content as a block quote, so that no line of it is the
// transcript's own.
func quoted(dst []byte, content []frames.ContentBlock) []byte {
	for i, c := range content {
		if i > 0 {
			dst = append(dst, ">\n"...)
		}
		if c.Type == "text" || c.Text != "" {
			dst = quote(dst, c.Text)
		}
		if note := attached(c); note != "" {
			dst = append(append(append(dst, "> "...), note...), '\n')
		}
	}
	return dst
}

// attached names what of a block is not text.
func attached(c frames.ContentBlock) string {
	what := ""
	if c.Type != "text" {
		name := c.Name
		if name == "" {
			name = c.URI
		}
		what = "*" + inline(join(c.Type, join(c.MimeType, name))) + "*"
		if c.Blob != "" {
			what += " " + code(string(c.Blob))
		}
	}
	return what + cut(c.Truncated)
}

// cut says what a preview was cut from.
func cut(t *frames.Truncated) string {
	if t == nil {
		return ""
	}
	s := fmt.Sprintf(" *a preview of %d bytes*", t.Bytes)
	if t.Blob != "" {
		s += " " + code(string(t.Blob))
	}
	return s
}

// tool writes a tool's card: input, who decided, output.
func (t *transcript) tool(dst []byte, it *frames.Item) []byte {
	c := it.Tool
	name := c.Name
	if name == "" {
		name = "tool"
	}
	dst = fmt.Appendf(dst, "\n**Tool %s** %s · %s\n", code(name), inline(c.Title), it.Time)
	if len(c.Input) > 0 {
		dst = fence(append(dst, '\n'), "json", indented(c.Input))
		if c.Truncated != nil {
			dst = append(append(dst, cut(c.Truncated)...), '\n')
		}
	}
	for i, d := range c.Decisions {
		if i == 0 {
			dst = append(dst, '\n')
		}
		what := "Approval"
		if len(d.Questions) > 0 {
			what = "Question"
		}
		dst = t.decision(dst, what, d)
	}
	return t.result(dst, c)
}

func (t *transcript) result(dst []byte, c *frames.ToolCard) []byte {
	if c.ResultSeq == 0 {
		return append(dst, "\n*No result.*\n"...)
	}
	for _, b := range c.Content {
		if b.Text != "" {
			dst = fence(append(dst, '\n'), "", b.Text)
		}
		if note := attached(b); note != "" {
			dst = append(append(append(dst, '\n'), note...), '\n')
		}
	}
	took := (time.Duration(c.DurationMs) * time.Millisecond).String()
	if c.IsError {
		return fmt.Appendf(dst, "\n*Failed: %s · %s*\n", inline(join(c.ErrorCode, string(oneLine(c.Details)))), took)
	}
	return fmt.Appendf(dst, "\n*Done · %s*\n", took)
}

// indented makes JSON readable; what is not JSON stays.
func indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}

func oneLine(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if len(raw) == 0 || json.Compact(&b, raw) != nil {
		return nil
	}
	return b.Bytes()
}

// decision writes how an approval or a question ended, and who ended it.
func (t *transcript) decision(dst []byte, what string, d *frames.Decision) []byte {
	if d == nil {
		return dst
	}
	for _, q := range d.Questions {
		dst = fmt.Appendf(dst, "- %s: %s\n", what, inline(q.Question))
	}
	if d.Outcome == "" {
		return fmt.Appendf(dst, "- %s %s: open\n", what, code(string(d.ID)))
	}
	dst = fmt.Appendf(dst, "- %s %s: **%s**%s (%s) · %s", what, code(string(d.ID)), inline(string(d.Outcome)), byText(d.By), inline(string(d.Origin)), d.Time)
	if d.Feedback != "" {
		dst = append(append(dst, ": "...), inline(d.Feedback)...)
	}
	for _, a := range d.Answers {
		text := a.Text
		for _, l := range a.Labels {
			text = join(l, text)
		}
		dst = append(append(dst, "; "...), inline(text)...)
	}
	return append(dst, '\n')
}

// child writes a subagent's card.
func (t *transcript) child(dst []byte, c *frames.AgentCard) []byte {
	dst = fmt.Appendf(dst, "\n**Subagent** %s %s\n", code(string(c.ChildSessionID)), inline(join(c.Agent, c.Title)))
	if c.Status != "" {
		dst = fmt.Appendf(dst, "\n*Subagent ended: %s*\n\n", inline(c.Status))
		dst = quoted(dst, c.Result)
	}
	return dst
}
