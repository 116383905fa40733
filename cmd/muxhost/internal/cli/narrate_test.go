package cli

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/term"
	"github.com/muxhost/muxhost/frames"
)

const sid = frames.SessionID("01980000-0000-7000-8000-000000000001")

// story feeds payloads to a narrator as one turn's events.
type story struct {
	t   *testing.T
	n   *narrator
	out strings.Builder
	seq frames.Seq
}

func newStory(t *testing.T, tty bool) *story {
	s := &story{t: t}
	p := &printer{w: &s.out, tty: tty}
	s.n = newNarrator(p, p, term.Style{})
	return s
}

func (s *story) event(p frames.Payload) {
	s.t.Helper()
	e, err := frames.NewEvent(p)
	if err != nil {
		s.t.Fatal(err)
	}
	if frames.ClassOf(e.Type).Durable() {
		s.seq++
		e.Seq = s.seq
	} else {
		e.After = s.seq
	}
	e.Time, e.TurnID = frames.At(time.Unix(0, 0)), "t1"
	enc, err := frames.EncodeEvent(e)
	if err != nil {
		s.t.Fatal(err)
	}
	s.frame(&frames.SessionEvent{SessionID: sid, Event: enc.Data})
}

func (s *story) frame(f frames.Frame) {
	s.t.Helper()
	if err := s.n.frame(f); err != nil {
		s.t.Fatal(err)
	}
}

func (s *story) has(want string) {
	s.t.Helper()
	if got := s.out.String(); !strings.Contains(got, want) {
		s.t.Errorf("printed %q, want it to hold %q", got, want)
	}
}

func call(id frames.CallID, cmd string) frames.ToolCall {
	in, _ := json.Marshal(map[string]string{"command": cmd})
	return frames.ToolCall{CallID: id, Name: "sh", Input: in}
}

func result(id frames.CallID, text string) frames.ToolResult {
	return frames.ToolResult{CallID: id, Content: []frames.ContentBlock{frames.Text(text)}, Details: json.RawMessage(`{"exitCode":0}`)}
}

// A command's output is printed exactly once, whatever streamed of it.
func TestOutputIsPrintedExactlyOnce(t *testing.T) {
	const text = "one\ntwo\nthree\n"
	progress := func(s *story, from, to int, text string) {
		s.event(frames.ToolProgress{CallID: "c", From: from, To: to, Text: text})
	}
	for name, stream := range map[string]func(*story){
		"nothing streamed": func(*story) {},
		"all streamed":     func(s *story) { progress(s, 0, 1, "one\n"); progress(s, 1, 3, "two\nthree\n") },
		"repeated":         func(s *story) { progress(s, 0, 1, "one\n"); progress(s, 0, 1, "one\n"); progress(s, 1, 2, "two\n") },
		"a hole":           func(s *story) { progress(s, 0, 1, "one\n"); progress(s, 2, 3, "three\n") },
		"lagging": func(s *story) {
			progress(s, 0, 1, "one\n")
			s.frame(&frames.SessionLive{SessionID: sid, Seq: 1, Turn: &frames.LiveTurn{TurnID: "t1", Tools: []frames.LiveTool{{CallID: "c", Text: "two\n", To: 2}}}})
			progress(s, 2, 3, "three\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, false)
			s.event(call("c", "x"))
			stream(s)
			s.event(result("c", text))
			if got := s.out.String(); strings.Count(got, "one\n") != 1 || !strings.Contains(got, text) {
				t.Errorf("printed %q, want %q once", got, text)
			}
		})
	}
}

// Why a command was cut off is no continuation of what it had printed.
func TestWhyACommandWasCutOffIsPrintedWhole(t *testing.T) {
	for code, why := range map[string]string{
		"interrupted": "the host stopped before this finished",
		"cancelled":   "the turn was cancelled before this finished",
	} {
		s := newStory(t, false)
		s.event(call("c", "x"))
		s.event(frames.ToolProgress{CallID: "c", From: 0, To: 1, Text: "one\ntwo\nthree\n"})
		s.event(frames.ToolResult{CallID: "c", Content: []frames.ContentBlock{frames.Text(why)}, IsError: true, ErrorCode: code})
		s.has("three\n" + why + "\n")
	}
}

// What is said about an output stands on a line of its own, in a pipe as on a
// terminal, where both go the same way.
func TestNotesStandOnTheirOwnLines(t *testing.T) {
	for _, tty := range []bool{false, true} {
		s := newStory(t, tty)
		s.event(call("c", "x"))
		s.event(frames.ToolProgress{CallID: "c", From: 0, To: 1, Text: "no newline"})
		s.event(result("c", "no newline"))
		s.has("\nno newline\n✓ sh")
	}
}

// A stream that is a program's result keeps its bytes: notes go elsewhere.
func TestAResultGetsNoNewline(t *testing.T) {
	var out, notes strings.Builder
	s := &story{t: t, n: newNarrator(&printer{w: &out}, &printer{w: &notes}, term.Style{})}
	s.event(call("c", "x"))
	s.event(result("c", "no newline"))
	if out.String() != "no newline" {
		t.Errorf("printed %q, want the output alone", out.String())
	}
}

// A note beside a result that is open begins a line of its own wherever both are seen:
// the notes get the newline, once, and the result none.
func TestANoteBesideAResultBeginsALine(t *testing.T) {
	var both, notes strings.Builder
	s := &story{t: t, n: newNarrator(&printer{w: &both}, &printer{w: io.MultiWriter(&both, &notes)}, term.Style{})}
	usage := frames.UsageUpdated{Usage: frames.Usage{InputTokens: 12}}
	s.event(frames.AssistantDelta{Block: 0, From: 0, To: 1, Text: "Running."})
	s.event(usage)
	s.event(usage)
	s.event(frames.AssistantDelta{Block: 0, From: 1, To: 2, Text: " Ran.\n"})
	s.event(usage)
	line := usageText(usage.Usage) + "\n"
	if want := "Running.\n" + line + line + " Ran.\n" + line; both.String() != want {
		t.Errorf("seen is %q, want %q", both.String(), want)
	}
	if want := "\n" + line + line + line; notes.String() != want {
		t.Errorf("noted %q, want %q", notes.String(), want)
	}
}

// A message that the host keeps in parts is printed as one, byte by byte, whether it
// streamed or not, ended or not.
func TestPartialMessagesArePrintedAsOne(t *testing.T) {
	part := func(b int, text string) frames.AssistantMessage {
		return frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text(text)}, Blocks: []int{b}, Partial: true}
	}
	delta := func(b int, text string) frames.AssistantDelta {
		return frames.AssistantDelta{Block: b, From: 0, To: 1, Text: text}
	}
	whole := frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text("one two three")}, Blocks: []int{0, 1, 2}}
	cut := frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text("one")}, Blocks: []int{0, 1, 2}}
	cut.Content[0].Truncated = &frames.Truncated{Bytes: int64(len("one two three")), Blob: "sha256-00"}
	for name, events := range map[string][]frames.Payload{
		"streamed":          {delta(0, "one "), part(0, "one "), delta(1, "two "), part(1, "two "), delta(2, "three"), whole},
		"the end is late":   {delta(0, "one "), part(0, "one "), delta(1, "tw"), part(1, "two "), delta(2, "th"), whole},
		"from the log":      {part(0, "one "), part(1, "two "), whole},
		"whole in parts":    {part(0, "one "), part(1, "two "), part(2, "three"), whole},
		"cut by the turn":   {delta(0, "one "), part(0, "one "), part(1, "two three"), frames.TurnEnd{Reason: frames.TurnCancelled}},
		"a call between":    {delta(0, "one "), part(0, "one "), call("c", "x"), delta(1, "two "), part(1, "two "), whole},
		"a long preview":    {delta(0, "one "), part(0, "one "), part(1, "two "), cut},
		"only the preview":  {cut},
		"a preview of less": {delta(0, "o"), cut},
	} {
		var out strings.Builder
		s := &story{t: t, n: newNarrator(&printer{w: &out}, &printer{w: io.Discard}, term.Style{})}
		s.n.rest = func(_ frames.BlobID, from int) error { s.n.write(sid, "one two three"[from:]); return nil }
		for _, e := range events {
			s.event(e)
		}
		if got, want := out.String(), "one two three\n"; got != want {
			t.Errorf("%s: printed %q, want %q", name, got, want)
		}
	}
}

// A text that a driver cut for its length is printed as one; what follows a call is not
// its continuation.
func TestCutTextsArePrintedAsOne(t *testing.T) {
	var out strings.Builder
	s := &story{t: t, n: newNarrator(&printer{w: &out}, &printer{w: io.Discard}, term.Style{})}
	long := strings.Repeat("x", 96<<10)
	for b, text := range []string{long, long + "y", "end", long} {
		s.event(frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text(text)}, Blocks: []int{b}})
	}
	s.event(call("c", "x"))
	s.event(frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text("new")}, Blocks: []int{4}})
	if got, want := out.String(), long+long+"yend\n"+long+"\nnew\n"; got != want {
		t.Errorf("printed %d bytes with %d newlines, want %d with %d", len(got), strings.Count(got, "\n"), len(want), strings.Count(want, "\n"))
	}
}

// Background work is told by its id, with what it is and how it ended; not to whom
// asked for a command's output only.
func TestTasksAreTold(t *testing.T) {
	s := newStory(t, false)
	s.event(frames.TaskStarted{TaskID: "T1", Kind: "command", Label: "make\x1b[2J"})
	s.event(frames.TaskStarted{TaskID: "T2"})
	s.event(frames.TaskCompleted{TaskID: "T1", Status: "failed", Detail: "exit 4"})
	s.event(frames.TaskCompleted{TaskID: "T2", Status: "completed"})
	const want = "· task T1 started (command make)\n· task T2 started\n· task T1 failed (exit 4)\n· task T2 completed\n"
	if got := s.out.String(); got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
	s.n.quiet = true
	s.event(frames.TaskStarted{TaskID: "T3"})
	if got := s.out.String(); got != want {
		t.Errorf("printed %q to who is spared details", got)
	}
}

// The end of a long output that was withheld from a slow reader is fetched.
func TestWithheldEndOfALongOutputIsFetched(t *testing.T) {
	s := newStory(t, false)
	var fetched int
	s.n.rest = func(_ frames.BlobID, from int) error { fetched = from; return nil }
	s.event(call("c", "x"))
	s.event(frames.ToolProgress{CallID: "c", From: 0, To: 1, Text: "one\n"})
	s.frame(&frames.SessionLagging{SessionID: sid})
	r := result("c", "one\n")
	r.Content[0].Truncated = &frames.Truncated{Bytes: 1 << 20, Blob: "sha256-00"}
	s.event(r)
	if fetched != len("one\n") {
		t.Errorf("the rest was fetched from %d, want from 4", fetched)
	}
}

// Text of a block is printed once, streamed, caught up or both.
func TestTextIsPrintedOnce(t *testing.T) {
	s := newStory(t, true)
	s.event(frames.AssistantDelta{Block: 0, From: 0, To: 1, Text: "Hello "})
	s.frame(&frames.SessionLive{SessionID: sid, Turn: &frames.LiveTurn{TurnID: "t1", Blocks: []frames.LiveBlock{{Block: 0, Kind: "assistant", Text: "Hello wide ", To: 2}}}})
	s.event(frames.AssistantDelta{Block: 0, From: 1, To: 2, Text: "wide "})
	s.event(frames.AssistantDelta{Block: 0, From: 2, To: 3, Text: "world"})
	s.event(frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text("Hello wide world!")}, Blocks: []int{0}})
	if got, want := s.out.String(), "Hello wide world!\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

// Nothing that an agent writes drives the terminal.
func TestNarratorIsCleanOnATerminal(t *testing.T) {
	s := newStory(t, true)
	evil := "\x1b]52;c;eA==\x07\x1b[2J\u202e"
	s.event(frames.UserMessage{Content: []frames.ContentBlock{frames.Text("u" + evil)}})
	s.event(frames.ToolCall{CallID: "c", Name: "n" + evil, Title: "t" + evil})
	s.event(frames.ToolProgress{CallID: "c", From: 0, To: 1, Text: "p" + evil})
	s.event(frames.AssistantDelta{Block: 0, From: 0, To: 1, Text: "d" + evil})
	s.event(frames.ErrorReported{Code: "x", Message: "m" + evil})
	s.event(frames.TurnEnd{Reason: "error", Message: "e" + evil})
	s.event(frames.AgentSpawned{ChildSessionID: frames.SessionID("id" + evil), Title: "s" + evil})
	s.frame(&frames.AgentError{SessionID: sid, Message: "a" + evil})
	s.event(frames.ApprovalDecided{ID: "r", Outcome: frames.Outcome("o" + evil), Origin: frames.Cause("c" + evil)})
	s.event(frames.TurnEnd{Reason: frames.TurnEndReason("r" + evil)})
	if got := s.out.String(); strings.ContainsAny(got, "\x1b\x07\u202e") {
		t.Errorf("printed %q", got)
	}
	s.has("p")
}

// A card shows the exact input, with what is hidden in it made visible.
func TestCardShowsTheExactInput(t *testing.T) {
	a := &frames.ApprovalRequested{ID: "a1", Tool: frames.Tool{Name: "sh"}, Input: json.RawMessage(`{"command":"rm -rf x\u202e\u001b[8m","cwd":"/tmp"}`), InputHash: "abcd1234"}
	got := approvalCard(term.Style{}, a, lineage{names: []string{"root", "child"}, cwd: "/tmp"}, time.Unix(0, 0))
	for _, want := range []string{"$ rm -rf x⟨U+202E⟩⟨U+001B⟩[8m", "root ▸ child", "/tmp", "abcd1234"} {
		if !strings.Contains(got, want) {
			t.Errorf("card %s\nwants %q", got, want)
		}
	}
}

// A directory that an agent chose cannot write lines of a card.
func TestCardKeepsTheDirectoryOnItsLine(t *testing.T) {
	a := &frames.ApprovalRequested{ID: "a1", Input: json.RawMessage(`{"command":"rm -rf /","cwd":"/tmp\n│   $ ls"}`)}
	got := approvalCard(term.Style{}, a, lineage{cwd: cwdOf(a.Input)}, time.Unix(0, 0))
	if strings.Contains(got, "\n│   $ ls") || !strings.Contains(got, "/tmp⟨U+000A⟩│   $ ls") {
		t.Errorf("card %s\nhas a line that the input wrote", got)
	}
}

// What a card or a line says of an input is what names of exactly that case say.
func TestInputsAreReadByExactNames(t *testing.T) {
	in := json.RawMessage(`{"command":"rm -rf /","COMMAND":"ls","cwd":"/","Cwd":"/tmp"}`)
	if c, d := commandOf(in), cwdOf(in); c != "rm -rf /" || d != "/" {
		t.Errorf("command %q in %q, want rm -rf / in /", c, d)
	}
}

// An input with more in it than a command is shown whole, as JSON.
func TestCardHidesNoField(t *testing.T) {
	a := &frames.ApprovalRequested{ID: "a1", Input: json.RawMessage(`{"command":"ls","env":{"LD_PRELOAD":"evil"}}`)}
	if got := approvalCard(term.Style{}, a, lineage{}, time.Unix(0, 0)); !strings.Contains(got, "LD_PRELOAD") {
		t.Errorf("card %s\nhides a field", got)
	}
}

// A command padded with newlines is folded, and the fold is told.
func TestCardFoldsPadding(t *testing.T) {
	in, _ := json.Marshal(map[string]string{"command": "ls" + strings.Repeat("\n", 10_000) + "rm -rf /"})
	got := approvalCard(term.Style{}, &frames.ApprovalRequested{Input: in}, lineage{}, time.Unix(0, 0))
	if n := strings.Count(got, "\n"); n > 60 || !strings.Contains(got, "rm -rf /") || !strings.Contains(got, "more lines") {
		t.Errorf("%d lines, card %s", n, got)
	}
}

func TestAnswersFromWords(t *testing.T) {
	one := []frames.Question{{ID: "db", Options: []frames.QuestionOption{{Label: "SQLite"}, {Label: "Postgres"}}}}
	two := append(one, frames.Question{ID: "why"})
	for _, c := range []struct {
		qs    []frames.Question
		words []string
		want  string
	}{
		{one, []string{"2"}, `[{"id":"db","labels":["Postgres"]}]`},
		{one, []string{"sqlite"}, `[{"id":"db","labels":["SQLite"]}]`},
		{one, []string{"db=1"}, `[{"id":"db","labels":["SQLite"]}]`},
		{one, []string{"neither"}, `[{"id":"db","text":"neither"}]`},
		{two, []string{"1", "why=because a=b"}, `[{"id":"db","labels":["SQLite"]},{"id":"why","text":"because a=b"}]`},
	} {
		got, err := answersFrom(c.qs, c.words)
		b, _ := json.Marshal(got)
		if err != nil || string(b) != c.want {
			t.Errorf("answersFrom(%q) = %s, %v; want %s", c.words, b, err, c.want)
		}
	}
	if _, err := answersFrom(two, []string{"1"}); err == nil {
		t.Error("one answer to two questions was taken")
	}
}

// A baseline voids the cards that it does not repeat.
func TestDeskForgetsWhatWasSettledMeanwhile(t *testing.T) {
	d := newDesk(&app{}, nil)
	d.frame(&frames.ApprovalRequested{SessionID: sid, ID: "a"})
	d.frame(&frames.QuestionRequested{SessionID: sid, ID: "q"})
	d.frame(&frames.SessionSubscribed{SessionID: sid})
	d.frame(&frames.QuestionRequested{SessionID: sid, ID: "q"})
	if _, id := requestOf(d.top()); id != "q" || len(d.cards) != 1 {
		t.Errorf("%d cards, top %q; want only q", len(d.cards), id)
	}
	d.frame(&frames.QuestionResolved{SessionID: sid, ID: "q"})
	if d.top() != nil {
		t.Error("a resolved question is still on the desk")
	}
}

// Of usage the terminal shows what was said, and nothing where nothing was.
func TestUsageShowsOnlyWhatWasSaid(t *testing.T) {
	for want, u := range map[string]frames.Usage{
		"":                              {CacheReadTokens: 5},
		"usage: 12 in, 3 out, 0.25 USD": {InputTokens: 12, OutputTokens: 3, Cost: "0.25", Currency: "USD"},
		"usage: context 900 of 1000":    {ContextTokens: 900, ContextWindow: 1000},
	} {
		s := newStory(t, true)
		s.event(frames.UsageUpdated{Usage: u})
		if got := strings.TrimSpace(s.out.String()); got != want {
			t.Errorf("%+v is shown as %q; want %q", u, got, want)
		}
	}
}
