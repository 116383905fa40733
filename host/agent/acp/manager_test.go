package acp_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store/mem"
)

// The host itself, with its checks of what agents say, takes everything that recorded
// agents say: the log holds all text and calls, each subagent is a session below, and
// the turn completes.
func TestTheHostTakesWhatRecordedAgentsSay(t *testing.T) {
	for _, name := range []string{
		"claude-stream", "claude-perm-allow", "claude-plan", "claude-subagent-flat", "claude-subagent-native",
		"codex-stream", "codex-perm-allow", "codex-subagent-flat", "codex-subagent-native",
		"gemini-perm-allow", "gemini-plan", "opencode-perm-allow-nofs", "opencode-plan", "opencode-subagent-allowed",
		"claude-busy", "codex-busy", "opencode-busy", // both prompts come at once
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			rec := readRecording(t, "testdata/replay/"+name+".jsonl")
			synctest.Test(t, func(t *testing.T) { rec.playOnHost(t, dir) })
		})
	}
}

// at is a driver whose sessions are shown in another directory.
type at struct {
	agent.Driver
	cwd string
}

func (d at) Open(ctx context.Context, s agent.Session) (agent.Agent, error) {
	s.Cwd = d.cwd
	return d.Driver.Open(ctx, s)
}

// playOnHost runs the turns of a recording on a session manager, which gets all prompts
// at once.
func (rec *recording) playOnHost(t *testing.T, dir string) {
	o := acp.Options{Name: "fake"}
	if m, ok := rec.find("host>agent", "session/set_mode"); ok {
		o.ApprovalMode = field(m.Params, "modeId")
	}
	m, _ := rec.find("host>agent", "session/new")
	a, _ := rec.answer("agent>host", string(m.ID))
	rec.main = field(a.Result, "sessionId")
	var ids counter
	d := at{driver(t, o, rec.agent), "/home/dev/demo"}
	mgr, err := session.New(t.Context(), session.Config{
		Store: mem.New(), Publisher: nobody{}, Blobs: nobody{}, NewID: ids.mint, Logger: slog.New(slog.DiscardHandler),
		Drivers:      map[string]agent.Driver{"fake": d},
		DefaultAgent: "fake",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := mgr.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		shut(t, d)
	}()
	var root frames.SessionID
	if err := mgr.Create(t.Context(), session.CreateArgs{
		Cwd: dir, Policy: &frames.Policy{Rules: []frames.Rule{{Tool: "*", Decision: "allow"}}},
	}, func(s frames.Session) { root = s.SessionID }); err != nil {
		t.Fatal(err)
	}
	for _, p := range rec.all("host>agent", "session/prompt") {
		text := field([]byte(field(p.Params, "prompt")[1:len(field(p.Params, "prompt"))-1]), "text")
		if err := mgr.Prompt(t.Context(), session.PromptArgs{Session: root, Content: []frames.ContentBlock{frames.Text(text)}},
			func(session.PromptAnswer) {}); err != nil {
			t.Fatal(err)
		}
	}
	<-time.After(time.Minute)
	rec.checkHost(t, mgr, root)
}

// On the host itself a request outside of turns is judged by the session's policy, and the
// agent hears the answer.
func TestTheHostAnswersOutsideTurns(t *testing.T) {
	dir := t.TempDir()
	bubble(t, func(t *testing.T) {
		answer := make(chan message, 1)
		d := at{driver(t, acp.Options{}, afterTurn(func(f *fake) {
			f.ask("0", "s1", "c1")
			a, _ := f.answered("0")
			answer <- a
		})), "/src/demo"}
		var ids counter
		mgr, err := session.New(t.Context(), session.Config{
			Store: mem.New(), Publisher: nobody{}, Blobs: nobody{}, NewID: ids.mint, Logger: slog.New(slog.DiscardHandler),
			Drivers: map[string]agent.Driver{"fake": d}, DefaultAgent: "fake",
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := mgr.Shutdown(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
			shut(t, d)
		}()
		var root frames.SessionID
		if err := mgr.Create(t.Context(), session.CreateArgs{
			Cwd: dir, Policy: &frames.Policy{Rules: []frames.Rule{{Tool: "*", Decision: "allow"}}},
		}, func(s frames.Session) { root = s.SessionID }); err != nil {
			t.Fatal(err)
		}
		if err := mgr.Prompt(t.Context(), session.PromptArgs{Session: root, Content: []frames.ContentBlock{frames.Text("go")}},
			func(session.PromptAnswer) {}); err != nil {
			t.Fatal(err)
		}
		if a := <-answer; field(a.Result, "outcome", "optionId") != "once" {
			t.Errorf("answered %s; want what the policy says", a.Result)
		}
	})
}

// checkHost compares the logs of a tree with what the recorded agent said.
func (rec *recording) checkHost(t *testing.T, mgr *session.Manager, root frames.SessionID) {
	t.Helper()
	said, calls, _ := rec.said()
	sessions, _, err := mgr.List(session.Filter{Tree: root, Limit: 100})
	if err != nil || len(sessions) != len(said) {
		t.Fatalf("%d sessions, %v; the agent spoke for %d", len(sessions), err, len(said))
	}
	for _, s := range sessions {
		page, err := mgr.History(t.Context(), s.SessionID, new(frames.Seq), nil, 500, 100<<20)
		if err != nil || page.More {
			t.Fatalf("the log of %s: more %t, %v", s.SessionID, page.More, err)
		}
		var text strings.Builder
		began, ended, ends := 0, 0, ""
		for _, e := range page.Events {
			event, err := frames.DecodeEvent(e.Data)
			if err != nil {
				t.Fatal(err)
			}
			payload, err := event.Payload()
			if err != nil {
				t.Errorf("%s: %v", e.Type, err)
			}
			switch p := payload.(type) {
			case *frames.AssistantMessage:
				text.WriteString(p.Content[0].Text)
			case *frames.ToolCall:
				began++
			case *frames.ToolResult:
				ended++
			case *frames.TurnEnd:
				ends += string(p.Reason) + " "
			case *frames.ErrorReported:
				t.Errorf("error: %+v", p)
			}
		}
		id, want := rec.main, strings.Repeat("completed ", len(rec.all("host>agent", "session/prompt")))
		if s.SessionID != root {
			want = "completed "
			for other := range said {
				if other != rec.main {
					id = other // no recording has two subagents
				}
			}
		}
		if text.String() != said[id] || began != len(calls[id]) || ended != began || ends != want {
			t.Errorf("%s: %q, %d calls, %d results, turns ended %s; the agent said %q, %d calls",
				s.SessionID, text.String(), began, ended, ends, said[id], len(calls[id]))
		}
	}
}

// nobody publishes to nobody, and keeps no blob.
type nobody struct{}

func (nobody) Add(frames.Session, frames.Seq, bool)     {}
func (nobody) SetLive(frames.SessionID, bool)           {}
func (nobody) Remove(frames.SessionID, string)          {}
func (nobody) Trimmed(frames.SessionID, frames.Seq)     {}
func (nobody) Publish(frames.SessionID, session.Update) {}

func (nobody) Put(_ context.Context, r io.Reader) (frames.BlobID, int64, error) {
	b, err := io.ReadAll(r)
	return frames.BlobID(fmt.Sprintf("sha256-%x", sha256.Sum256(bytes.Clone(b)))), int64(len(b)), err
}

// counter mints ids that sort by age.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) mint() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return fmt.Sprintf("id-%06d", c.n)
}
