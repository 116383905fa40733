package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/term"
	"github.com/muxhost/muxhost/frames"
)

// Lines of an exact input that a card shows; the middle of a longer one is
// folded, and the card says so.
const (
	cardHead = 30
	cardTail = 10
)

// lineage names a session and its parents, root first.
type lineage struct {
	names []string
	cwd   string
	agent string
}

// approvalCard is what a person reads before deciding. The input is exact:
// hidden characters are made visible, nothing is interpreted.
func approvalCard(style term.Style, a *frames.ApprovalRequested, l lineage, now time.Time) string {
	var b strings.Builder
	head := "approval " + term.Line(string(a.ID))
	b.WriteString(style.Yellow("┌ "+head) + "\n")
	row := func(k, v string) {
		if v != "" {
			fmt.Fprintf(&b, "%s %s %s\n", style.Yellow("│"), style.Dim(fmt.Sprintf("%-7s", k)), v)
		}
	}
	row("session", strings.Join(l.names, " ▸ ")+style.Dim("  "+term.Line(string(a.SessionID))))
	row("agent", term.Line(l.agent))
	row("tool", style.Bold(term.Line(a.Tool.Name)))
	row("cwd", term.VisibleLine(l.cwd))
	for _, line := range inputLines(a.Input) {
		b.WriteString(style.Yellow("│") + "   " + style.Bold(line) + "\n")
	}
	if a.Truncated != nil {
		row("", style.Red(fmt.Sprintf("only a part is shown: the whole is %d bytes", a.Truncated.Bytes)))
	}
	row("sha256", term.Line(a.InputHash))
	if a.Reason != "" {
		row("agent says", term.Line(a.Reason))
	}
	if !a.ExpiresAt.IsZero() {
		row("", "rejects itself "+left(now, a.ExpiresAt))
	}
	b.WriteString(style.Yellow("└"))
	return b.String()
}

// inputLines renders the exact input: a lone command and its cwd as text,
// anything else as JSON.
func inputLines(input json.RawMessage) []string {
	text := ""
	if cmd, ok := loneCommand(input); ok {
		text = "$ " + cmd
	} else {
		var buf bytes.Buffer
		if json.Indent(&buf, input, "", "  ") == nil {
			text = buf.String()
		} else {
			text = string(input)
		}
	}
	lines := strings.Split(text, "\n")
	if n := len(lines) - cardHead - cardTail; n > 1 {
		folded := append(lines[:cardHead:cardHead], fmt.Sprintf("⋯ %d more lines, all of them part of what you decide on ⋯", n))
		lines = append(folded, lines[len(lines)-cardTail:]...)
	}
	for i := range lines {
		lines[i] = term.Visible(lines[i])
	}
	return lines
}

// loneCommand returns the command of an input that holds nothing but a command
// and a cwd, so that showing the command as text hides nothing.
func loneCommand(input json.RawMessage) (string, bool) {
	var m map[string]json.RawMessage
	if json.Unmarshal(input, &m) != nil || len(m["command"]) == 0 {
		return "", false
	}
	for k := range m {
		if k != "command" && k != "cwd" {
			return "", false
		}
	}
	var cmd string
	return cmd, json.Unmarshal(m["command"], &cmd) == nil
}

// cwdOf returns the cwd in a tool's input, "" if there is none.
func cwdOf(input json.RawMessage) string {
	return stringIn(input, "cwd")
}

// questionCard is what a person reads before answering.
func questionCard(style term.Style, q *frames.QuestionRequested, l lineage) string {
	var b strings.Builder
	b.WriteString(style.Cyan("┌ question "+term.Line(string(q.ID))) + "\n")
	fmt.Fprintf(&b, "%s %s %s\n", style.Cyan("│"), style.Dim("session"), strings.Join(l.names, " ▸ "))
	for _, one := range q.Questions {
		id := ""
		if len(q.Questions) > 1 {
			id = style.Dim(term.Line(one.ID) + ": ")
		}
		fmt.Fprintf(&b, "%s %s%s\n", style.Cyan("│"), id, style.Bold(term.Line(one.Question)))
		for i, o := range one.Options {
			fmt.Fprintf(&b, "%s   %d) %s %s\n", style.Cyan("│"), i+1, term.Line(o.Label), style.Dim(term.Line(o.Description)))
		}
	}
	b.WriteString(style.Cyan("└"))
	return b.String()
}
