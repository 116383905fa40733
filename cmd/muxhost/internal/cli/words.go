package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/term"
	"github.com/muxhost/muxhost/frames"
)

// stOf returns m[k], new if need be.
func stOf[K comparable](m map[K]*stream, k K) *stream {
	s := m[k]
	if s == nil {
		s = new(stream)
		m[k] = s
	}
	return s
}

// first returns the first string that is not empty.
func first(s ...string) string {
	for _, v := range s {
		if v != "" {
			return v
		}
	}
	return ""
}

// short returns the end of an id, which is what differs.
func short(id string) string {
	id = term.Line(id)
	return id[max(0, len(id)-8):]
}

// nameOf is what a person calls a session.
func nameOf(s frames.Session) string {
	return first(term.Line(s.Title), short(string(s.SessionID)))
}

// textOf joins the text of content; other blocks are named.
func textOf(content []frames.ContentBlock) string {
	var b strings.Builder
	for _, c := range content {
		switch c.Type {
		case "text":
			b.WriteString(c.Text)
		default:
			fmt.Fprintf(&b, "[%s %s]", c.Type, first(c.Name, c.URI, c.MimeType))
		}
	}
	return b.String()
}

// truncated returns what a preview in content was cut from.
func truncated(content []frames.ContentBlock) *frames.Truncated {
	for _, c := range content {
		if c.Truncated != nil {
			return c.Truncated
		}
	}
	return nil
}

// commandOf returns the command line in a shell tool's input, "" if there is
// none.
func commandOf(input json.RawMessage) string {
	return term.Line(stringIn(input, "command"))
}

// stringIn returns the string under exactly this name in a tool's input, "" if
// there is none. A struct would also take names that differ in case, which are
// not what runs.
func stringIn(input json.RawMessage, name string) string {
	var m map[string]json.RawMessage
	var s string
	if json.Unmarshal(input, &m) != nil || json.Unmarshal(m[name], &s) != nil {
		return ""
	}
	return s
}

// exitCode returns the exit code in a tool result's details.
func exitCode(details json.RawMessage) (int, bool) {
	var d struct {
		ExitCode *int `json:"exitCode"`
	}
	if len(details) == 0 || json.Unmarshal(details, &d) != nil || d.ExitCode == nil {
		return 0, false
	}
	return *d.ExitCode, true
}

func exitText(details json.RawMessage) string {
	if c, ok := exitCode(details); ok {
		return fmt.Sprintf("exit %d", c)
	}
	return ""
}

func todoMark(status string) string {
	switch status {
	case "completed":
		return "☑"
	case "in_progress":
		return "◐"
	}
	return "☐"
}

func answersText(as []frames.Answer) string {
	var s []string
	for _, a := range as {
		s = append(s, first(strings.Join(a.Labels, ", "), a.Text))
	}
	return strings.Join(s, "; ")
}

// usageText tells what was used, "" if nothing was said that people look for.
func usageText(u frames.Usage) string {
	var parts []string
	if u.InputTokens > 0 || u.OutputTokens > 0 {
		parts = append(parts, fmt.Sprintf("%d in, %d out", u.InputTokens, u.OutputTokens))
	}
	if u.ContextTokens > 0 && u.ContextWindow > 0 {
		parts = append(parts, fmt.Sprintf("context %d of %d", u.ContextTokens, u.ContextWindow))
	}
	if u.Cost != "" {
		parts = append(parts, term.Line(strings.TrimSpace(u.Cost+" "+u.Currency)))
	}
	if len(parts) == 0 {
		return ""
	}
	return "usage: " + strings.Join(parts, ", ")
}

// left says how long it is until t.
func left(now time.Time, t frames.Time) string {
	d := t.Sub(now).Round(time.Second)
	if d < 0 {
		return "now"
	}
	return fmt.Sprintf("in %d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

// ago says how long ago t was.
func ago(now time.Time, t frames.Time) string {
	switch d := now.Sub(t.Time); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
