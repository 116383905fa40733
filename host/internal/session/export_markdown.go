package session

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/muxhost/muxhost/frames"
)

// transcript writes a log as Markdown for people, by the fold. It folds one turn
// at a time, and writes it at its end; what comes after that end, such as the end
// of a subagent, is told where it comes. Whatever agents and people said is quoted
// or fenced and cannot pose as words of the host.
type transcript struct {
	s     frames.Session
	view  *frames.View
	begun bool
	turns int
	size  int    // of the events in view, in bytes
	todos string // the plan as it was written last
}

// itemNote is an item that holds words of the transcript itself.
const itemNote frames.ItemKind = "note"

// turnBytes is how much of one turn is folded together; more of it is written in
// pieces, which a later retraction does not reach. 16 MiB.
const turnBytes = 16 << 20

func newTranscript(s frames.Session) *transcript {
	return &transcript{s: s, view: frames.NewView()}
}

func (t *transcript) base(dst, base []byte) ([]byte, error) {
	if err := json.Unmarshal(base, t.view); err != nil {
		return dst, err
	}
	dst = t.head(dst, t.view)
	dst = append(dst, "\n*Events up to "...)
	dst = fmt.Appendf(dst, "%d are no longer kept; this is what they came to.*\n", t.view.Seq)
	return t.flush(dst), nil
}

func (t *transcript) event(dst, event []byte) ([]byte, error) {
	e, err := frames.DecodeEvent(event)
	if err != nil {
		return dst, err
	}
	_ = t.view.ApplyEvent(e) // gaps are ours: each view begins in the middle
	t.size += len(event)
	if !t.begun {
		dst = t.head(dst, t.view)
	}
	t.said(e)
	switch {
	case e.Type == frames.TurnStartEvent:
		dst = t.turn(t.flushItems(dst), e)
	case e.Type == frames.TurnEndEvent:
		dst = t.ended(t.flush(dst), e)
	case t.size > turnBytes && len(t.view.Pending()) == 0 && !t.running():
		dst = t.flush(dst)
	}
	return dst, nil
}

func (t *transcript) end(dst []byte) []byte {
	if !t.begun {
		dst = t.head(dst, t.view)
	}
	dst = t.flush(dst)
	return dst
}

// running reports whether the view holds something that a later event changes.
func (t *transcript) running() bool {
	for _, it := range t.view.Items {
		if it.Partial || it.Tool != nil && it.Tool.Running {
			return true
		}
	}
	return false
}

// flush writes what the view holds and begins a new one.
func (t *transcript) flush(dst []byte) []byte {
	dst = t.flushItems(dst)
	dst = t.plan(dst)
	t.view, t.size = frames.NewView(), 0
	return dst
}

// flushItems writes the items of the view, once.
func (t *transcript) flushItems(dst []byte) []byte {
	for _, it := range t.view.Items {
		dst = t.item(dst, it)
	}
	clear(t.view.Items)
	t.view.Items = t.view.Items[:0]
	return dst
}

// head writes the title and what the session is.
func (t *transcript) head(dst []byte, v *frames.View) []byte {
	t.begun = true
	title := v.Title
	if title == "" {
		title = "Session " + string(t.s.SessionID)
	}
	dst = fmt.Appendf(dst, "# %s\n\n", inline(title))
	row := func(k, val string) {
		if val != "" {
			dst = fmt.Appendf(dst, "- %s: %s\n", k, val)
		}
	}
	row("session", code(string(t.s.SessionID)))
	row("agent", code(v.Agent))
	row("directory", code(v.Cwd))
	if !v.CreatedAt.IsZero() {
		row("created", v.CreatedAt.String())
	}
	row("parent", code(string(v.ParentSessionID)))
	if f := v.ForkedFrom; f != nil {
		row("forked from", fmt.Sprintf("%s at event %d", code(string(f.SessionID)), f.Seq))
	}
	return dst
}

// said adds the events that are no items of the fold and yet part of a story.
func (t *transcript) said(e frames.Event) {
	note := func(format string, args ...any) {
		t.view.Items = append(t.view.Items, &frames.Item{Kind: itemNote, Seq: e.Seq, Message: fmt.Sprintf(format, args...)})
	}
	p, err := e.Payload()
	if err != nil {
		return
	}
	switch p := p.(type) {
	case *frames.SessionCreated:
		if e.Seq > 1 {
			note("From here on: copies of the events of the session that this one was forked from.")
		}
	case *frames.SessionRenamed:
		note("Renamed: %s", inline(p.Title))
	case *frames.SessionClosed:
		note("Closed%s · %s", byText(e.By), e.Time)
	case *frames.ApprovalAsked:
		if e.TurnID == "" { // no tool's card says what for
			note("Approval %s is asked for: %s %s", code(string(p.ID)), code(p.Tool.Name), code(string(oneLine(p.Input))))
		}
	case *frames.TaskStarted:
		note("Background task %s began: %s", code(string(p.TaskID)), inline(join(p.Kind, p.Label)))
	case *frames.TaskCompleted:
		note("Background task %s ended: %s", code(string(p.TaskID)), inline(join(p.Status, p.Detail)))
	case *frames.ModelSwitched:
		note("Model: %s", inline(p.To))
	case nil:
		note("%s · event %d", code(string(e.Type)), e.Seq)
	}
}

// turn begins a turn's section.
func (t *transcript) turn(dst []byte, e frames.Event) []byte {
	t.turns++
	return fmt.Appendf(dst, "\n## Turn %d · %s\n", t.turns, e.Time)
}

// ended writes how a turn ended.
func (t *transcript) ended(dst []byte, e frames.Event) []byte {
	p, err := e.Payload()
	end, ok := p.(*frames.TurnEnd)
	if err != nil || !ok {
		return dst
	}
	dst = fmt.Appendf(dst, "\n*Turn ended: %s*\n", inline(join(string(end.Reason), end.Message)))
	if end.Usage != nil {
		dst = fmt.Appendf(dst, "\n*Used: %s*\n", usage(end.Usage))
	}
	return dst
}

// plan writes the plan where it changed.
func (t *transcript) plan(dst []byte) []byte {
	var b strings.Builder
	for _, todo := range t.view.Todos {
		mark := " "
		if todo.Status == "completed" {
			mark = "x"
		}
		fmt.Fprintf(&b, "- [%s] %s", mark, inline(todo.Content))
		if todo.Status == "in_progress" {
			b.WriteString(" *(in progress)*")
		}
		b.WriteString("\n")
	}
	if b.Len() == 0 || b.String() == t.todos {
		return dst
	}
	t.todos = b.String()
	return append(append(dst, "\n**Plan**\n\n"...), t.todos...)
}

func byText(by *frames.By) string {
	if by == nil {
		return ""
	}
	name := by.Label
	if name == "" {
		name = string(by.ClientID)
	}
	return " by " + inline(name)
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ": " + b
}

func usage(u *frames.Usage) string {
	s := fmt.Sprintf("%d tokens in, %d out", u.InputTokens, u.OutputTokens)
	if u.Cost != "" {
		s += ", " + inline(strings.TrimSpace(u.Cost+" "+u.Currency))
	}
	return s
}
