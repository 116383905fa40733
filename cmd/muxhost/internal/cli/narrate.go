package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/term"
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc/client"
)

// narrator turns frames into lines for people. Command output and the
// assistant's text go to out; everything said about them goes to notes. It
// belongs to one goroutine.
type narrator struct {
	out, notes *printer
	style      term.Style
	// rest prints what of a command's output did not stream, once its result is
	// there.
	rest func(blob frames.BlobID, from int) error
	// quiet leaves out what a person did not ask to see: steps, models, hooks.
	quiet bool

	sessions map[frames.SessionID]*narrated
}

// narrated is what was printed of one session.
type narrated struct {
	label  string // "" for the session that was asked for
	broken bool   // its text ended with a message that the next one continues
	cut    bool   // that message was not partial, but cut for its length
	blocks map[int]*stream
	calls  map[frames.CallID]*stream
	names  map[frames.CallID]string
}

// stream is what was printed of one text block or one command's output.
type stream struct {
	printed int  // bytes
	have    int  // chunks
	missed  bool // chunks are missing: wait for the whole
	joined  bool // printing began in the middle
}

func newNarrator(out, notes *printer, style term.Style) *narrator {
	out.mixed = out == notes
	return &narrator{out: out, notes: notes, style: style, sessions: map[frames.SessionID]*narrated{}}
}

// session returns the state of sid, new if need be.
func (n *narrator) session(sid frames.SessionID) *narrated {
	s := n.sessions[sid]
	if s == nil {
		s = &narrated{}
		s.turn()
		n.sessions[sid] = s
	}
	return s
}

// turn forgets blocks and calls: their numbers begin anew with every turn.
func (s *narrated) turn() {
	s.blocks, s.calls, s.names = map[int]*stream{}, map[frames.CallID]*stream{}, map[frames.CallID]string{}
}

// frame prints what f says. Frames that say nothing to a person print nothing.
func (n *narrator) frame(f frames.Frame) error {
	switch f := f.(type) {
	case *frames.SessionEvent:
		e, err := frames.DecodeEvent(f.Event)
		if err != nil {
			return err
		}
		return n.event(f.SessionID, e)
	case *frames.SessionLive:
		n.live(f)
	case *frames.SessionAdded:
		if s := n.session(f.SessionID); f.Session.ParentSessionID != "" && s.label == "" {
			s.label = nameOf(f.Session)
		}
	case *client.Reset:
		label := n.session(f.SessionID).label
		delete(n.sessions, f.SessionID)
		n.session(f.SessionID).label = label
		n.note(f.SessionID, n.style.Yellow("from the start: the log was replaced, or cut further than was read"))
	case *frames.SessionSubscribed:
		if f.Since == 0 && f.First > 1 {
			n.note(f.SessionID, n.style.Yellow(fmt.Sprintf("… events 1 to %d are no longer kept", f.First-1)))
		}
	case *frames.SessionLagging:
		n.note(f.SessionID, n.style.Yellow("… reading too slowly: catching up"))
	case *frames.AgentError:
		n.note(f.SessionID, n.style.Red("✗ "+term.Line(f.Message)))
	case *frames.HostDraining:
		n.note("", n.style.Yellow("the host is going down"))
	case *frames.SessionUnsubscribed:
		n.note(f.SessionID, n.style.Yellow("no longer watching: "+term.Line(f.Reason)))
	}
	return nil
}

func (n *narrator) event(sid frames.SessionID, e frames.Event) error {
	p, err := e.Payload()
	if err != nil {
		return fmt.Errorf("event %d (%s): %w", e.Seq, term.Line(string(e.Type)), err)
	}
	s := n.session(sid)
	switch p := p.(type) {
	case *frames.TurnStart:
		s.turn()
	case *frames.TurnEnd:
		n.turnEnd(sid, p)
	case *frames.UserMessage:
		n.note(sid, n.style.Bold("› "+n.text(textOf(p.Content))))
	case *frames.SteeringMessage:
		n.note(sid, n.style.Bold("» "+n.text(textOf(p.Content))))
	case *frames.ContextMessage:
		n.note(sid, n.style.Dim("+ "+n.text(textOf(p.Content))))
	case *frames.PromptQueued:
		if p.Mode == frames.ModeSteer {
			break // shown when the agent takes it
		}
		n.note(sid, n.style.Dim("queued: "+term.Line(textOf(p.Content))))
	case *frames.AssistantDelta:
		n.delta(sid, stOf(s.blocks, p.Block), p.From, p.To, p.Text)
	case *frames.AssistantMessage:
		return n.message(sid, s, p)
	case *frames.ReasoningMessage:
		if len(p.Content) > 0 { // else it is withheld
			n.note(sid, n.style.Dim("∙ "+n.text(textOf(p.Content))))
		}
	case *frames.ToolCall:
		n.toolCall(sid, s, p)
	case *frames.ToolProgress:
		n.delta(sid, stOf(s.calls, p.CallID), p.From, p.To, p.Text)
	case *frames.ToolResult:
		return n.toolResult(sid, s, p)
	default:
		n.other(sid, e, p)
	}
	return nil
}

// other prints the rarer events.
func (n *narrator) other(sid frames.SessionID, e frames.Event, p any) {
	switch p := p.(type) {
	case *frames.TodoWrite:
		for _, t := range p.Todos {
			n.note(sid, todoMark(t.Status)+" "+term.Line(t.Content))
		}
	case *frames.ApprovalDecided:
		n.note(sid, n.settled(p.Outcome, p.Origin, p.By, p.Feedback))
	case *frames.QuestionDecided:
		n.note(sid, n.settled(p.Outcome, p.Origin, p.By, answersText(p.Answers)))
	case *frames.AgentSpawned:
		s := n.session(p.ChildSessionID)
		s.label = first(term.Line(p.Title), short(string(p.ChildSessionID)))
		n.note(sid, n.style.Cyan("▸ "+s.label)+n.style.Dim(" "+term.Line(string(p.ChildSessionID))))
	case *frames.AgentCompleted:
		n.note(sid, n.style.Cyan("◂ "+first(n.session(p.ChildSessionID).label, short(string(p.ChildSessionID))))+" "+term.Line(p.Status))
	case *frames.ErrorReported:
		n.note(sid, n.style.Red("✗ "+term.Line(p.Message)))
	case *frames.SessionRenamed:
		n.note(sid, n.style.Dim("title: "+term.Line(p.Title)))
	case *frames.UsageUpdated:
		if text := usageText(p.Usage); text != "" {
			n.note(sid, n.style.Dim(text))
		}
	case *frames.TaskStarted:
		n.detail(sid, "task "+string(p.TaskID)+" started", paren(strings.TrimSpace(p.Kind+" "+p.Label)))
	case *frames.TaskCompleted:
		n.detail(sid, "task "+string(p.TaskID), p.Status, paren(p.Detail))
	case *frames.ApprovalAsked, *frames.QuestionAsked, *frames.ReasoningDelta:
	default:
		n.detail(sid, string(e.Type))
	}
}

// detail notes what a person does not ask to see, of words of which some may be "".
func (n *narrator) detail(sid frames.SessionID, words ...string) {
	if n.quiet {
		return
	}
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
	n.note(sid, n.style.Dim("· "+term.Line(strings.Join(words, " "))))
}

// paren puts text in parentheses, if there is any.
func paren(s string) string {
	if s == "" {
		return ""
	}
	return "(" + s + ")"
}

func (n *narrator) turnEnd(sid frames.SessionID, p *frames.TurnEnd) {
	n.whole(n.session(sid))
	msg := term.Line(string(p.Reason))
	if p.Message != "" {
		msg += ": " + term.Line(p.Message)
	}
	switch p.Reason {
	case frames.TurnCompleted:
		n.note(sid, n.style.Dim("— "+msg))
	default:
		n.note(sid, n.style.Yellow("— "+msg))
	}
}

func (n *narrator) toolCall(sid frames.SessionID, s *narrated, p *frames.ToolCall) {
	if s.cut {
		n.whole(s)
	}
	s.names[p.CallID] = term.Line(p.Name)
	title := first(term.Line(p.Title), commandOf(p.Input))
	n.note(sid, n.style.Cyan("● "+term.Line(p.Name))+" "+title)
}

// toolResult prints what of the output has not streamed, then how it ended.
func (n *narrator) toolResult(sid frames.SessionID, s *narrated, p *frames.ToolResult) error {
	if st := stOf(s.calls, p.CallID); ofTheHost(p) && (st.have == 0 || cutOff(p)) {
		n.note(sid, n.style.Dim(n.text(textOf(p.Content))))
	} else if err := n.remainder(sid, st, p); err != nil {
		return err
	}
	mark, end := n.style.Green("✓"), ""
	if p.IsError {
		mark, end = n.style.Red("✗"), " "+first(exitText(p.Details), term.Line(p.ErrorCode))
	}
	n.note(sid, mark+" "+s.names[p.CallID]+end+n.style.Dim(" "+(time.Duration(p.DurationMs)*time.Millisecond).String()))
	return nil
}

// ofTheHost reports whether a result's text says why there is no output, rather
// than being the output of a command.
func ofTheHost(p *frames.ToolResult) bool {
	_, exited := exitCode(p.Details)
	return p.IsError && p.ErrorCode != "" && p.ErrorCode != "exit" && !exited
}

// cutOff reports whether the host ended a call in its agent's place, so that the
// text does not go on where the output stopped.
func cutOff(p *frames.ToolResult) bool {
	return p.ErrorCode == "interrupted" || p.ErrorCode == "cancelled"
}

// remainder prints the end of a command's output that did not stream.
func (n *narrator) remainder(sid frames.SessionID, st *stream, p *frames.ToolResult) error {
	text := textOf(p.Content)
	whole := truncated(p.Content)
	switch {
	case st.joined && !st.missed:
		return nil
	case whole == nil || whole.Blob == "":
		if st.printed < len(text) {
			n.write(sid, text[st.printed:])
		}
	case n.rest != nil && (st.missed || int64(st.printed) < whole.Bytes):
		return n.rest(whole.Blob, st.printed)
	case st.have == 0:
		n.write(sid, text)
	}
	return nil
}

// delta prints the chunks that were not printed yet.
func (n *narrator) delta(sid frames.SessionID, st *stream, from, to int, text string) {
	switch {
	case to <= st.have || st.missed:
	case from == st.have:
		st.have = to
		st.printed += len(text)
		n.write(sid, text)
	default:
		st.missed = true
	}
}

// message prints what of its blocks has not streamed. A partial one leaves its line
// open for the one that continues it.
func (n *narrator) message(sid frames.SessionID, s *narrated, p *frames.AssistantMessage) error {
	streamed := streamedOf(s, p)
	for i, c := range p.Content {
		printed := streamed[i]
		if printed < len(c.Text) {
			n.write(sid, c.Text[printed:])
			printed = len(c.Text)
		}
		if t := c.Truncated; t != nil && t.Blob != "" && n.rest != nil && int64(printed) < t.Bytes {
			if err := n.rest(t.Blob, printed); err != nil {
				return err
			}
			printed = int(t.Bytes)
		}
		if len(p.Content) == len(p.Blocks) {
			stOf(s.blocks, p.Blocks[i]).printed = printed
		}
	}
	s.cut = !p.Partial && len(textOf(p.Content)) >= cutFrom
	if s.broken = p.Partial || s.cut; !s.broken {
		n.out.endMessage()
	}
	return nil
}

// cutFrom is how long a text is that its driver may have cut, so that it goes on in the
// next message.
const cutFrom = 96 << 10

// whole ends the line of a text that nothing continues any more.
func (n *narrator) whole(s *narrated) {
	if s.broken {
		s.broken, s.cut = false, false
		n.out.endMessage()
	}
}

// streamedOf returns how many bytes of each content of a message are printed. A text
// that moved on from block to block, after partial messages, lists several for one
// content: what is printed of them is the beginning of the message.
func streamedOf(s *narrated, p *frames.AssistantMessage) []int {
	out := make([]int, len(p.Content))
	if len(p.Content) == len(p.Blocks) {
		for i, b := range p.Blocks {
			out[i] = stOf(s.blocks, b).printed
		}
		return out
	}
	all := 0
	for _, b := range p.Blocks {
		all += stOf(s.blocks, b).printed
	}
	for i, c := range p.Content {
		whole := len(c.Text)
		if c.Truncated != nil {
			whole = max(whole, int(c.Truncated.Bytes))
		}
		out[i] = min(all, whole)
		all -= out[i]
	}
	return out
}

// live brings streams up to the open turn as it stands.
func (n *narrator) live(f *frames.SessionLive) {
	if f.Turn == nil {
		return
	}
	s := n.session(f.SessionID)
	for _, b := range f.Turn.Blocks {
		if b.Kind != "assistant" {
			continue
		}
		st := stOf(s.blocks, b.Block)
		if end := b.Offset + len(b.Text); end > st.printed && b.Offset <= st.printed {
			n.write(f.SessionID, b.Text[st.printed-b.Offset:])
			st.printed = end
		}
		st.have, st.missed = max(st.have, b.To), false
	}
	for _, t := range f.Turn.Tools {
		st := stOf(s.calls, t.CallID)
		switch {
		case st.have == 0 && t.To > 0 || st.joined:
			n.write(f.SessionID, t.Text)
			st.printed, st.have, st.joined = st.printed+len(t.Text), t.To, true
		case t.To > st.have:
			st.missed = true
		}
	}
}

// settled says how an approval or a question ended, and who ended it.
func (n *narrator) settled(o frames.Outcome, c frames.Cause, by *frames.By, more string) string {
	s := strings.ReplaceAll(term.Line(string(o)), "-", " ")
	if by != nil {
		s += " by " + term.Line(first(by.Label, string(by.ClientID)))
	} else {
		s += " (" + term.Line(string(c)) + ")"
	}
	if more != "" {
		s += ": " + term.Line(more)
	}
	if o.Allows() || o == frames.Answered {
		return n.style.Green("✓ " + s)
	}
	return n.style.Yellow("✗ " + s)
}

func (n *narrator) write(sid frames.SessionID, text string) { n.out.stream(n.session(sid).label, text) }

// apart begins a line for what is not text of the stream. Where the stream is a result
// that gets no newline of ours, the notes get it: a person may see both in one place.
func (n *narrator) apart() {
	n.out.endLine()
	if n.out.open && !n.out.left {
		n.out.left = true
		n.notes.put("\n")
	}
}

func (n *narrator) note(sid frames.SessionID, line string) {
	n.apart()
	label := ""
	if sid != "" {
		label = n.session(sid).label
	}
	n.notes.line(label, line)
}

// text is safe to print and keeps its lines.
func (n *narrator) text(s string) string { return strings.TrimRight(term.Clean(s), "\n") }

// printer writes lines and streams of text. On a terminal everything is cleaned;
// elsewhere streams pass as they are, since they are the result.
type printer struct {
	w     io.Writer
	tty   bool
	mixed bool // notes go here too: their lines stand apart, off a terminal as well
	clean term.Cleaner
	from  string // whose text the open line holds
	open  bool   // a line is not ended
	left  bool   // notes have begun a line of their own since it was written
	err   error
}

func (p *printer) put(s string) {
	if s == "" || p.err != nil {
		return
	}
	_, p.err = io.WriteString(p.w, s)
}

// stream writes a piece of text of the session called label.
func (p *printer) stream(label, text string) {
	if label != p.from {
		p.endLine()
		p.from = label
	}
	if p.tty {
		text = p.clean.Clean(text)
	}
	if text == "" {
		return
	}
	if p.tty && label != "" {
		text = p.labelled(label, text)
	}
	p.put(text)
	p.open, p.left = !strings.HasSuffix(text, "\n"), false
}

// labelled puts the session's name before each line of text.
func (p *printer) labelled(label, text string) string {
	var b strings.Builder
	start := !p.open
	for line := range strings.Lines(text) {
		if start {
			b.WriteString("[" + label + "] ")
		}
		b.WriteString(line)
		start = strings.HasSuffix(line, "\n")
	}
	return b.String()
}

// endLine ends an open line of a stream, but where the stream is the result alone.
func (p *printer) endLine() {
	if p.tty {
		rest := p.clean.Flush()
		p.put(rest)
		if rest != "" {
			p.open = !strings.HasSuffix(rest, "\n")
		}
	}
	if p.open && (p.tty || p.mixed) {
		p.put("\n")
		p.open = false
	}
}

// endMessage ends the line of a message, wherever it goes: messages are the
// assistant's, not bytes of a command.
func (p *printer) endMessage() {
	p.endLine()
	if p.open {
		p.put("\n")
		p.open = false
	}
}

// line writes whole lines.
func (p *printer) line(label, text string) {
	if label != "" {
		text = "[" + label + "] " + text
	}
	p.put(text + "\n")
}
