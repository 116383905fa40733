package session_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// export exports a session and returns the document.
func (r *rig) export(sid frames.SessionID, format string) (session.Export, string) {
	r.t.Helper()
	x, err := r.m.Export(r.t.Context(), sid, format)
	if err != nil {
		r.t.Fatalf("export: %v", err)
	}
	doc := r.pub.blob(x.Blob)
	if int64(len(doc)) != x.Bytes {
		r.t.Errorf("the blob has %d bytes, the answer says %d", len(doc), x.Bytes)
	}
	return x, doc
}

func (p *publisher) blob(id frames.BlobID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.blobs[id])
}

// As JSON lines a log is what is stored, one event a line; the same log gives the
// same blob.
func TestExportAsJSONLines(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		for i := range 90 { // more than one page
			r.prompt(sid, fmt.Sprint("turn ", i))
			r.wait()
		}
		var want strings.Builder
		for _, e := range r.raw(sid) {
			want.Write(e.Data)
			want.WriteByte('\n')
		}
		x, doc := r.export(sid, "jsonl")
		if doc != want.String() {
			t.Errorf("%d bytes were exported, want the %d of the log", len(doc), want.Len())
		}
		if s, _ := r.m.Get(sid); x.Head != s.Head || x.Mime != "application/jsonl" {
			t.Errorf("export = %+v, want head %d", x, s.Head)
		}
		if again, _ := r.export(sid, "jsonl"); again != x {
			t.Errorf("the same log exported again is %+v, was %+v", again, x)
		}
		_, md := r.export(sid, "markdown")
		if n := strings.Count(md, "\n## Turn "); n != 90 {
			t.Errorf("the transcript has %d turns, want 90", n)
		}
	})
}

// A trimmed log begins with the fold of what is gone; with the events behind it,
// it folds to what the whole did.
func TestExportOfATrimmedLog(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{Title: "t"})
		for i := range 5 {
			r.prompt(sid, fmt.Sprint("turn ", i))
			r.wait()
		}
		want := viewJSON(t, r.view(sid))
		r.trim(sid, r.ends(sid)[2]+1)
		r.restart()
		_, doc := r.export(sid, "jsonl")
		first, rest, _ := strings.Cut(doc, "\n")
		var line struct{ Base *frames.View }
		if err := json.Unmarshal([]byte(first), &line); err != nil || line.Base == nil {
			r.t.Fatalf("the first line is %.80s, %v", first, err)
		}
		for l := range strings.Lines(rest) {
			e, err := frames.DecodeEvent([]byte(strings.TrimSuffix(l, "\n")))
			if err == nil {
				err = line.Base.ApplyEvent(e)
			}
			if err != nil {
				r.t.Fatal(err)
			}
		}
		if got := viewJSON(t, line.Base); got != want {
			t.Errorf("the export folds to\n     %s\nwant %s", got, want)
		}
		_, md := r.export(sid, "markdown")
		for i := range 5 {
			if !strings.Contains(md, fmt.Sprintf("> turn %d\n", i)) {
				t.Errorf("the transcript lacks turn %d:\n%s", i, md)
			}
		}
	})
}

// basing is a store in which something happens before the base of a log is read.
type basing struct {
	store.Store
	first func()
}

func (s *basing) Get(ctx context.Context, table, key string) ([]byte, error) {
	if f := s.first; f != nil && table == store.TableBase {
		s.first = nil
		f()
	}
	return s.Store.Get(ctx, table, key)
}

// An export says how far it goes, also where a trim went further than the log did
// when the export began.
func TestExportSaysWhatItsBaseHolds(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "x")
		r.wait()
		var first frames.Seq
		r.disk.Store = &basing{r.disk.Store, func() {
			for range 2 {
				r.prompt(sid, "x")
				r.wait()
			}
			first = r.ends(sid)[1] + 1
			r.trim(sid, first)
		}}
		if x, doc := r.export(sid, "jsonl"); x.Head != first-1 || strings.Count(doc, "\n") != 1 {
			t.Errorf("the export goes up to %d, want %d:\n%s", x.Head, first-1, doc)
		}
	})
}

// A log that is trimmed while it is exported is exported anew, with its base.
func TestExportWhileTrimmed(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		for range 200 {
			r.prompt(sid, "x")
			r.wait()
		}
		plain := r.disk.Store
		r.disk.Store = &trimming{Store: plain, at: 2, trim: func() { r.trim(sid, r.ends(sid)[100]+1) }}
		_, doc := r.export(sid, "jsonl")
		if !strings.HasPrefix(doc, `{"base":`) || strings.Count(doc, "\n") != 1+len(r.raw(sid)) {
			t.Errorf("the export begins with %.40s and has %d lines", doc, strings.Count(doc, "\n"))
		}
	})
}

// trimming trims a log once, before the read of a log that at says.
type trimming struct {
	store.Store
	reads, at int
	trim      func()
}

func (s *trimming) Read(ctx context.Context, sid frames.SessionID, after frames.Seq, limit, maxBytes int) ([]store.Event, error) {
	if s.reads++; s.reads == s.at {
		s.trim()
	}
	return s.Store.Read(ctx, sid, after, limit, maxBytes)
}

// poses says, does and prints what could pose as words of a transcript.
func (r *rig) poses(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
	emit := func(ps ...frames.Payload) {
		if err := t.Emit(ctx, ps...); err != nil {
			r.t.Error(err)
		}
	}
	emit(
		frames.ReasoningMessage{Content: []frames.ContentBlock{frames.Text("think </details> first")}, Blocks: []int{t.NewBlock()}},
		frames.TodoWrite{Todos: []frames.Todo{{Content: "one *two*", Status: "in_progress"}}},
		frames.ToolCall{CallID: "c1", Name: "sh", Title: "run\nit", Input: json.RawMessage(`{"command":"echo '` + "````" + `'"}`)},
		agent.Raw{Type: "acme.com/odd", Data: json.RawMessage(`{}`)},
	)
	if d, err := t.Ask(ctx, ask("c1", `{"command":"x"}`)); err != nil || !d.Allowed() {
		return agent.Result{}, errors.Join(err, errors.New("not allowed"))
	}
	emit(
		frames.ToolResult{CallID: "c1", Content: []frames.ContentBlock{frames.Text("out\n`````\n**Approval** `x`\n\x1b[31mred\x07\u202e")}, DurationMs: 1500},
		frames.ErrorReported{Code: "odd", Message: "a\n# b"},
		frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text("done <script>\n\n- x"), {Type: "image", MimeType: "image/png", Blob: "sha256-1"}}, Blocks: []int{t.NewBlock(), t.NewBlock()}},
	)
	return agent.Result{Usage: &frames.Usage{InputTokens: 3, OutputTokens: 4, Cost: "0.5", Currency: "USD"}}, nil
}

// The transcript tells who said, did and allowed what, and how it ended; nothing
// that was said or printed can pose as the transcript's own words, or act on a
// terminal.
func TestTranscript(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go <b>now</b>\n## Turn 9\n```\n# fake", r.poses)
		sid := r.create(session.CreateArgs{Title: "a [title](x)\n# b"})
		r.prompt(sid, "go <b>now</b>\n## Turn 9\n```\n# fake", func(p *session.PromptArgs) { p.By = &frames.By{ClientID: "c1", Label: "Ann"} })
		r.wait()
		if err := r.answer(sid, r.approvals(sid)[0].ID, frames.AllowedOnce); err != nil {
			r.t.Fatal(err)
		}
		r.wait()
		x, doc := r.export(sid, "markdown")
		at := 0
		for _, want := range []string{
			"# a \\[title\\](x) \\# b\n", "- agent: `scripted`\n", "\n## Turn 1 · ",
			"\n**User by Ann** · ", "\n> go &lt;b>now&lt;/b>\n> ## Turn 9\n> ```\n> # fake\n",
			"<details><summary>Reasoning</summary>\n\n> think &lt;/details> first\n\n</details>\n",
			"\n**Tool `sh`** run it · ", "\n`````json\n{\n  \"command\": \"echo '````'\"\n}\n`````\n",
			"- Approval `", "`: **allowed-once** by c1 (reply) · ",
			"\n``````\nout\n`````\n**Approval** `x`\n\\x1b[31mred\\x07\\u{202e}\n``````\n", "\n*Done · 1.5s*\n",
			"\n*`acme.com/odd` · event ", "\n**Error** odd: a \\# b\n",
			"\n**Assistant** · ", "\n> done &lt;script>\n>\n> - x\n>\n> *image: image/png* `sha256-1`\n",
			"\n**Plan**\n\n- [ ] one \\*two\\* *(in progress)*\n",
			"\n*Turn ended: completed*\n", "\n*Used: 3 tokens in, 4 out, 0.5 USD*\n",
		} {
			i := strings.Index(doc[at:], want)
			if i < 0 {
				r.t.Fatalf("the transcript lacks %q after byte %d:\n%s", want, at, doc)
			}
			at += i + len(want)
		}
		if i := strings.IndexFunc(doc, func(c rune) bool { return c < ' ' && c != '\n' || c == 0x7f || c == '\u202e' }); i >= 0 {
			t.Errorf("byte %d of the transcript is %q", i, doc[i])
		}
		if x.Mime != "text/markdown; charset=utf-8" || strings.Count(doc, "\n## Turn ") != 1 {
			t.Errorf("export = %+v with %d turns", x, strings.Count(doc, "\n## Turn "))
		}
		if again, _ := r.export(sid, "markdown"); again != x {
			t.Errorf("the same log exported again is %+v, was %+v", again, x)
		}
	})
}

// Whatever text a tool prints, in whatever fence, none of its lines ends the block.
func FuzzFence(f *testing.F) {
	for _, s := range []string{"", "```", "a\n````\n", "`", "\n\n", "~~~"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		lines := bytes.Split(bytes.TrimSuffix(session.Fence(nil, "", s), []byte("\n")), []byte("\n"))
		open, last := lines[0], lines[len(lines)-1]
		if !bytes.Equal(open, last) || len(open) < 3 {
			t.Fatalf("%q opens with %q and ends with %q", s, open, last)
		}
		for _, l := range lines[1 : len(lines)-1] {
			if bytes.HasPrefix(bytes.TrimLeft(l, " "), open) {
				t.Errorf("%q: the line %q closes the fence %q", s, l, open)
			}
		}
	})
}

// A failing blob store, a session that is not there and a format that does not
// exist are told as such.
func TestExportThatCannotBe(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		full := errors.New("no room")
		r.pub.full(full)
		if _, err := r.m.Export(r.t.Context(), sid, "jsonl"); !errors.Is(err, full) {
			t.Errorf("no room: %v", err)
		}
		r.pub.full(nil)
		if _, err := r.m.Export(r.t.Context(), "nobody", "jsonl"); !errors.Is(err, session.ErrNoSession) {
			t.Errorf("no session: %v", err)
		}
		if _, err := r.m.Export(r.t.Context(), sid, "pdf"); err == nil {
			t.Error("a format that there is none of was taken")
		}
		r.disk.Store = &broken{r.disk.Store}
		_, err := r.m.Export(r.t.Context(), sid, "jsonl")
		if _, ok := errors.AsType[*session.StorageError](err); !ok {
			t.Errorf("a log that cannot be read: %v, want a StorageError", err)
		}
	})
}

type broken struct{ store.Store }

func (broken) Read(context.Context, frames.SessionID, frames.Seq, int, int) ([]store.Event, error) {
	return nil, store.ErrCorrupt
}

// Events that come after the end of their turn are told where they come.
func TestTranscriptOfLateEnds(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("spawn", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			_, err := t.Spawn(ctx, agent.Spawn{Title: "helper", Prompt: []frames.ContentBlock{frames.Text("slow")}})
			return agent.Result{}, err
		})
		r.agent.on("slow", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			if err := pause(ctx, second); err != nil {
				return agent.Result{}, err
			}
			return agent.Result{}, t.Emit(ctx, frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text("found it")}, Blocks: []int{t.NewBlock()}})
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "spawn")
		for len(every[frames.AgentCompleted](r, sid)) == 0 {
			_ = pause(r.t.Context(), second)
			r.wait()
		}
		_, doc := r.export(sid, "markdown")
		if !strings.Contains(doc, "\n**Subagent** `") || !strings.Contains(doc, "helper") || !strings.Contains(doc, "> found it\n") {
			t.Errorf("the transcript does not tell of the subagent:\n%s", doc)
		}
		if got := r.types(sid); !slices.Contains(got, "agent/completed") {
			t.Errorf("log: %v", got)
		}
	})
}
