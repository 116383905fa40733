package llm_test

import (
	"context"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/agenttest/stubllm"
	"github.com/muxhost/muxhost/host/agent/llm"
)

// model is a model server that real agents are tested with, on a real socket.
type model struct {
	mu   sync.Mutex
	seen []stubllm.Request
}

func (m *model) options(t *testing.T) llm.Options {
	t.Helper()
	srv := httptest.NewServer(stubllm.New(stubllm.Options{OnRequest: func(r stubllm.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.seen = append(m.seen, r)
	}}))
	t.Cleanup(srv.Close)
	return llm.Options{BaseURL: srv.URL + "/v1", Model: "stub-model", Backoff: 1, Images: true}
}

func (m *model) requests() []stubllm.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.seen)
}

// Over a real connection a turn thinks, speaks in pieces, calls tools at once, hears
// their results and ends, with all that it used.
func TestTurnOverARealConnection(t *testing.T) {
	m := &model{}
	o := m.options(t)
	h, s := open(t, o, agenttest.Script{Env: env})
	res := prompt(t, s, stubllm.Script(
		stubllm.Step{Think: "Hm.", Text: "I write two files.", Chunks: 6, Tools: []stubllm.Tool{
			stubllm.Call("write", map[string]string{"path": "a", "content": "A<&>"}),
			stubllm.Call("shell", map[string]string{"command": "echo B > b; cat a"}),
		}},
		stubllm.Step{Tools: []stubllm.Tool{
			stubllm.Call("spawn", map[string]string{"prompt": stubllm.Script(stubllm.Step{Text: "I am the child."})}),
			stubllm.Call("ask", map[string]any{"question": "Which?", "options": []string{"left", "right"}}),
		}},
		stubllm.Step{Text: "Done."},
	))
	if get(t, s.Info.Cwd, "a") != "A<&>" || get(t, s.Info.Cwd, "b") != "B\n" {
		t.Errorf("files %q, %q", get(t, s.Info.Cwd, "a"), get(t, s.Info.Cwd, "b"))
	}
	var results []string
	for _, r := range all[frames.ToolResult](s) {
		results = append(results, words(r.Content))
	}
	if got := strings.Join(results, "|"); got != "Wrote 4 bytes to a.|A<&>|I am the child.|left" {
		t.Errorf("results %q", got)
	}
	if s.Text(0) != "Hm." || s.Text(1) != "I write two files." || said(s) != "Done." || len(h.Sessions()) != 2 {
		t.Errorf("streamed %q and %q, said %q, %d sessions", s.Text(0), s.Text(1), said(s), len(h.Sessions()))
	}
	if n := len(m.requests()); n != 4 || res.Usage == nil || res.Usage.InputTokens != 3000 || s.Deltas() < 7 {
		t.Errorf("%d requests, usage %+v, %d deltas; want 4 with the child's, 3000 tokens, pieces", n, res.Usage, s.Deltas())
	}
}

// A rejected call goes to the model, which goes on; nothing of it ran.
func TestRejectionOverARealConnection(t *testing.T) {
	m := &model{}
	sc := agenttest.Script{Env: env, Approve: func(context.Context, *agenttest.Session, agent.Approval) agent.Decision {
		return agent.Decision{Outcome: frames.Rejected, Cause: frames.CauseReply, Feedback: "not today"}
	}}
	_, s := open(t, m.options(t), sc)
	prompt(t, s, stubllm.Script(stubllm.Step{Tools: []stubllm.Tool{stubllm.Call("shell", map[string]string{"command": "touch ran"})}}, stubllm.Step{Text: "Pity."}))
	seen := m.requests()
	if said(s) != "Pity." || exists(filepath.Join(s.Info.Cwd, "ran")) || len(seen) != 2 || !strings.Contains(string(seen[1].Body), "not today") {
		t.Errorf("said %q after %d requests; want the model told and nothing run", said(s), len(seen))
	}
}

// A status is tried again as often as it may, and told; one that says no is not.
func TestStatusOverARealConnection(t *testing.T) {
	for status, want := range map[int]struct {
		requests int
		words    string
	}{503: {5, "503"}, 429: {5, "429"}, 401: {1, "API key"}, 400: {1, "scripted failure"}} {
		m := &model{}
		_, s := open(t, m.options(t), agenttest.Script{})
		_, err := s.Prompt(t.Context(), stubllm.Script(stubllm.Step{Status: status}))
		if err == nil || !strings.Contains(err.Error(), want.words) || len(m.requests()) != want.requests {
			t.Errorf("%d: %v after %d requests; want %q after %d", status, err, len(m.requests()), want.words, want.requests)
		}
	}
}

// A connection that breaks in the middle keeps what came; no call of it is run.
func TestCutOverARealConnection(t *testing.T) {
	m := &model{}
	_, s := open(t, m.options(t), agenttest.Script{Env: env})
	_, err := s.Prompt(t.Context(), stubllm.Script(stubllm.Step{
		Text: "Half of it", Cut: true, Tools: []stubllm.Tool{stubllm.Call("shell", map[string]string{"command": "touch ran"})},
	}))
	if err == nil || !strings.Contains(err.Error(), "cut") || s.Text(0) != "Half of it" || len(m.requests()) != 1 || len(all[frames.ToolCall](s)) > 0 {
		t.Errorf("Prompt = %v after %d requests, streamed %q; want that it was cut, once", err, len(m.requests()), s.Text(0))
	}
}

// A turn is cancelled while the server hangs, and while it speaks slowly.
func TestCancelOverARealConnection(t *testing.T) {
	for name, st := range map[string]stubllm.Step{
		"hangs": {Text: "I begin", HangMS: 600_000}, "is slow": {Text: "I begin", Chunks: 7, DelayMS: 600_000},
	} {
		m := &model{}
		ctx, cancel := context.WithCancel(t.Context())
		_, s := open(t, m.options(t), agenttest.Script{Streamed: func(*agenttest.Session) { cancel() }})
		res, err := s.Prompt(ctx, stubllm.Script(st))
		if err != nil || res.Reason != frames.TurnCancelled || agenttest.Last[frames.ModelEnd](s).Status != "cancelled" {
			t.Errorf("%s: Prompt = %+v, %v; want a cancelled turn", name, res, err)
		}
	}
}

// The models of a real server are listed.
func TestListModelsOverARealConnection(t *testing.T) {
	m := &model{}
	if got, err := llm.ListModels(t.Context(), m.options(t)); err != nil || !slices.Equal(got, []string{"stub-model"}) {
		t.Errorf("ListModels = %q, %v; want stub-model", got, err)
	}
}
