package llm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/llm"
)

// roles writes what the model saw, a word for each message.
func roles(q seen) string {
	var all []string
	for _, m := range q.Messages {
		s, _, _ := strings.Cut(m.text(), "\n")
		if len(m.ToolCalls) > 0 {
			s += fmt.Sprintf("+%d", len(m.ToolCalls))
		}
		if m.Role == "system" {
			s = ""
		}
		all = append(all, m.Role+":"+s)
	}
	return strings.Join(all, "|")
}

// reopen opens the session's log with another agent, as after a restart.
func reopen(t *testing.T, o llm.Options, s *agenttest.Session) agent.Agent {
	t.Helper()
	info := s.Info
	a, err := logged{llm.New(o)}.Open(t.Context(), info)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return a
}

// After a restart in the middle of a conversation the model sees what it saw
// before: the requests of both agents are the same, byte for byte.
func TestRestartChangesNothing(t *testing.T) {
	srv := &stub{}
	o := options(t, srv)
	_, s := open(t, o, agenttest.Script{})
	prompt(t, s, "first")
	prompt(t, s, script(step{Text: "I look", Tools: []stubTool{{"list", "{}"}, {"read", `{"path":"none"}`}}}, step{Tools: tool("list", `{"depth":9}`)}, step{Text: "Done."}))
	s.Agent = reopen(t, o, s)
	srv.push(step{Text: "a"})
	prompt(t, s, "again")
	s.Agent = reopen(t, o, s)
	again := srv.requests()[4]
	want := "system:|user:first|assistant:Stub answer|user:SCRIPT"
	if got := roles(again); !strings.HasPrefix(got, want) || !strings.HasSuffix(got,
		"|assistant:I look+2|tool:[The directory is empty.]|tool:Error: there is no file none|assistant:+1|tool:Error: Not run: depth is 9; want 1 to 5.|assistant:Done.|user:again") {
		t.Errorf("the model saw %s", got)
	}
	before := srv.requests()[3].Messages
	for i, m := range before {
		a, _ := json.Marshal(m)
		b, _ := json.Marshal(again.Messages[i])
		if string(a) != string(b) {
			t.Errorf("message %d = %s before the restart, %s after it", i, a, b)
		}
	}
}

// An answer that was cut stays in the conversation as far as it came, and a call
// without a result does not.
func TestInterruptedTurnsAreRemembered(t *testing.T) {
	srv := &stub{}
	_, s := open(t, options(t, srv), agenttest.Script{})
	turn := []frames.Payload{
		frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text("I beg")}, Blocks: []int{0}, Partial: true},
		frames.ToolCall{CallID: "c", Name: "list", Input: []byte("{}")},
	}
	if err := s.Info.Background.Emit(t.Context(), turn...); err != nil {
		t.Fatal(err)
	}
	prompt(t, s, "go on")
	if got, want := roles(srv.requests()[0]), "system:|assistant:I beg|user:go on"; got != want {
		t.Errorf("the model saw %s; want %s", got, want)
	}
}

// long makes a conversation of n rounds with about size bytes each.
func long(t *testing.T, srv *stub, s *agenttest.Session, n, size int) {
	t.Helper()
	for i := range n {
		srv.push(step{Text: strings.Repeat("a", size), NoUsage: true})
		prompt(t, s, fmt.Sprintf("round %d", i))
	}
}

// When the prompt would pass the window, what is old becomes a summary that the
// log holds, and the model sees it in place of the rest, after a restart too.
func TestOldMessagesBecomeASummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &stub{}
		o := options(t, srv)
		o.ContextWindow = 5000
		_, s := open(t, o, agenttest.Script{})
		long(t, srv, s, 5, 2200) // with the tools that is more than 4375 tokens
		srv.summary = "THE SUMMARY"
		prompt(t, s, "round 5")
		c := all[frames.SessionCompacted](s)
		if len(c) != 1 || words(c[0].Content) != "THE SUMMARY" {
			t.Fatalf("session/compacted = %+v; want one summary", c)
		}
		if e := s.Events()[c[0].UpTo-1]; e.EventType() != "usage/updated" && e.EventType() != "assistant/message" {
			t.Errorf("compacted up to %d, a %s; want the end of a round", c[0].UpTo, e.EventType())
		}
		seen := srv.requests()
		if q := seen[5]; len(q.Tools) > 0 || !strings.Contains(q.Body, "round 0") {
			t.Errorf("the summary was asked for with %d tools, %s", len(q.Tools), roles(q))
		}
		if got := roles(seen[6]); !strings.HasPrefix(got, "system:|user:What happened so far") || strings.Contains(got, "round 0") ||
			!strings.Contains(seen[6].Body, "THE SUMMARY") || !strings.HasSuffix(got, "|user:round 5") {
			t.Errorf("the model saw %s", got)
		}
		s.Agent = reopen(t, o, s)
		prompt(t, s, "round 6")
		after := srv.requests()[7]
		if got := roles(after); !strings.HasPrefix(got, roles(seen[6])) {
			t.Errorf("after a restart the model saw %s; want it to begin with %s", got, roles(seen[6]))
		}
	})
}

// What the model sees is the surface that clients fold from the log.
func TestModelSeesTheSurface(t *testing.T) {
	srv := &stub{}
	o := options(t, srv)
	o.ContextWindow = 5000
	var answers []int // on the surface when a request begins
	_, s := open(t, o, agenttest.Script{Event: func(s *agenttest.Session, p frames.Payload) error {
		if p.EventType() == "model/start" {
			answers = append(answers, onSurface(t, s))
		}
		return nil
	}})
	long(t, srv, s, 12, 2000)
	if n := len(all[frames.SessionCompacted](s)); n < 2 {
		t.Fatalf("%d summaries; the check needs some", n)
	}
	for i, q := range srv.requests() {
		if got := strings.Count(roles(q), "|assistant:"); len(q.Tools) > 0 && got != answers[i] {
			t.Errorf("request %d holds %d answers, the surface %d", i, got, answers[i])
		}
	}
}

// onSurface counts the answers on the surface of a session's log.
func onSurface(t *testing.T, s *agenttest.Session) (n int) {
	t.Helper()
	events, err := s.Info.History(t.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	v := frames.NewView()
	for _, e := range events {
		if err := v.ApplyEvent(e); err != nil {
			t.Fatal(err)
		}
	}
	seqs := v.Surface().Seqs
	for _, it := range v.Items {
		if it.Kind == frames.ItemAssistant && slices.Contains(seqs, it.Seq) {
			n++
		}
	}
	return n
}

// A turn whose own steps fill the window is shortened in the middle, at the end of
// a step, and the person's words are kept.
func TestLongTurnIsShortened(t *testing.T) {
	d := dir(t)
	put(t, d, "big", strings.Repeat("0123456789\n", 360))
	srv := &stub{}
	o := options(t, srv)
	o.ContextWindow = 6000
	_, s := open(t, o, agenttest.Script{Cwd: d})
	for range 8 {
		srv.push(step{Tools: tool("read", `{"path":"big"}`), NoUsage: true})
	}
	res, err := s.Prompt(t.Context(), "please read it eight times")
	if err != nil || res.Reason != "" {
		t.Fatalf("Prompt = %+v, %v", res, err)
	}
	c := all[frames.SessionCompacted](s)
	if len(c) == 0 || !strings.Contains(words(c[0].Content), "please read it eight times") {
		t.Fatalf("session/compacted = %+v; want summaries that keep the person's words", c)
	}
	for _, q := range srv.requests() {
		if len(q.Body) > 6000*4+8000 {
			t.Errorf("a request has %d bytes", len(q.Body))
		}
		calls := map[string]bool{}
		for _, m := range q.Messages {
			for _, tc := range m.ToolCalls {
				calls[tc.ID] = true
			}
			if m.Role == "tool" && !calls[m.ToolCallID] {
				t.Errorf("the model saw a result without its call: %s", roles(q))
			}
		}
	}
}

// A server that says that the prompt is too long gets a shorter one, once.
func TestServerThatSaysTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &stub{}
		_, s := open(t, options(t, srv), agenttest.Script{})
		long(t, srv, s, 4, 9000)
		tooLong := step{Status: 400, Body: `{"error":{"message":"maximum context length is 8192 tokens","code":"context_length_exceeded"}}`}
		srv.push(tooLong, step{Text: "Fine."})
		if prompt(t, s, "and now"); said(s) != "Fine." || len(all[frames.SessionCompacted](s)) != 1 {
			t.Errorf("said %q after %d summaries; want the answer after one", said(s), len(all[frames.SessionCompacted](s)))
		}
		srv.push(tooLong, tooLong)
		_, err := s.Prompt(t.Context(), "more")
		if err == nil || !strings.Contains(err.Error(), "window") {
			t.Errorf("Prompt = %v; want that it does not fit", err)
		}
	})
}

// What is steered reaches the model at the next step, also after its last answer;
// once the turn is over it is not taken.
func TestSteering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &stub{}
		var wg sync.WaitGroup
		defer wg.Wait()
		steered := false
		_, s := open(t, options(t, srv), agenttest.Script{Streamed: func(s *agenttest.Session) {
			if steered {
				return
			}
			steered = true
			wg.Go(func() {
				if err := s.Steer(t.Context(), "more to the left"); err != nil {
					t.Errorf("Steer = %v", err)
				}
			})
			synctest.Wait() // it waits now
		}})
		srv.push(step{Text: "I go right."}, step{Text: "Left then."})
		prompt(t, s, "go")
		if got, want := roles(srv.requests()[1]), "system:|user:go|assistant:I go right.|user:more to the left"; got != want {
			t.Errorf("the model saw %s; want %s", got, want)
		}
		if err := s.Steer(t.Context(), "late"); err != agent.ErrNotTaken {
			t.Errorf("Steer after the turn = %v; want ErrNotTaken", err)
		}
	})
}

// A steer that waits when its turn is cancelled is not taken: the host decides what
// becomes of it.
func TestSteerOfACancelledTurnIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &stub{}
		srv.push(step{Text: "I go", Hang: true})
		_, s := open(t, options(t, srv), agenttest.Script{})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = s.Prompt(ctx, "go") })
		synctest.Wait()
		wg.Go(func() {
			if err := s.Steer(t.Context(), "left"); err != agent.ErrNotTaken {
				t.Errorf("Steer = %v; want ErrNotTaken", err)
			}
		})
		synctest.Wait()
		cancel()
		wg.Wait()
	})
}

// A model that is chosen later counts from the next turn and the switch is told;
// one that does not exist is refused.
func TestModelsCanBeChosen(t *testing.T) {
	srv := &stub{}
	o := options(t, srv)
	o.Models = []string{"stub", "other"}
	h := agenttest.New(agenttest.Script{Cwd: dir(t)}, llm.New(o))
	defer h.Close()
	s, err := h.Open(t.Context(), json.RawMessage(`{"tools":["read"],"system":"Be kind."}`))
	if err != nil {
		t.Fatal(err)
	}
	prompt(t, s, "one")
	c := s.Agent.(agent.Configurable)
	for _, wrong := range []string{`{"model":"third"}`, `{"mode":"x"}`, `{"model":7}`, `{"tools":["fly"]}`, `{"reasoningEffort":"HIGH!"}`} {
		if err := c.Configure(t.Context(), json.RawMessage(wrong)); err == nil {
			t.Errorf("Configure(%s) succeeded", wrong)
		}
	}
	if err := c.Configure(t.Context(), json.RawMessage(`{"model":"other"}`)); err != nil {
		t.Fatal(err)
	}
	prompt(t, s, "two")
	seen := srv.requests()
	if seen[0].Model != "stub" || seen[1].Model != "other" || len(seen[1].Tools) != 1 || !strings.Contains(seen[1].Messages[0].text(), "Be kind.") {
		t.Errorf("models %q, %q, %d tools, system %q", seen[0].Model, seen[1].Model, len(seen[1].Tools), seen[1].Messages[0].text())
	}
	if sw := all[frames.ModelSwitched](s); len(sw) != 1 || sw[0].From != "stub" || sw[0].To != "other" {
		t.Errorf("model/switched = %+v; want one", sw)
	}
}

// Options that do not hold together are told to whoever opens a session.
func TestWrongOptionsAreTold(t *testing.T) {
	good := llm.Options{BaseURL: "http://localhost:1/v1", Model: "m", Models: []string{"m"}}
	for want, c := range map[string]struct {
		change func(*llm.Options)
		config string
	}{
		"base URL":     {func(o *llm.Options) { o.BaseURL = "localhost:11434" }, ``},
		"no model":     {func(o *llm.Options) { o.Model = "" }, ``},
		"price":        {func(o *llm.Options) { o.Prices = map[string]llm.Price{"m": {Input: "-1"}} }, ``},
		"choose one":   {func(*llm.Options) {}, `{"model":"x"}`},
		"no argument":  {func(*llm.Options) {}, `{"modle":"m"}`},
		"not valid":    {func(*llm.Options) {}, `{"model":`},
		"maxSteps":     {func(*llm.Options) {}, `{"maxSteps":-1}`},
		"no directory": {func(*llm.Options) {}, ``},
	} {
		o := good
		c.change(&o)
		info := agent.Session{Config: json.RawMessage(c.config)}
		if want != "no directory" {
			info.Cwd = "/"
		}
		if _, err := llm.New(o).Open(t.Context(), info); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open = %v; want it to say %q", err, want)
		}
	}
	info := agent.Session{Cwd: "/", Options: json.RawMessage(`{"mode":"plan","model":"m"}`)}
	if _, err := llm.New(good).Open(t.Context(), info); err != nil {
		t.Errorf("Open = %v with an option of somebody else; want it ignored", err)
	}
}

// Images are sent where the model takes them, and named where it does not; context
// comes before the prompt.
func TestImagesAndContext(t *testing.T) {
	for _, images := range []bool{true, false} {
		srv := &stub{}
		o := options(t, srv)
		o.Images = images
		h := agenttest.New(agenttest.Script{Cwd: dir(t)}, llm.New(o))
		s, err := h.Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Agent = withContent{s.Agent, agent.Prompt{
			ID: "p", Context: []frames.ContentBlock{frames.Text("by the way")},
			Content: []frames.ContentBlock{frames.Text("what is it?"), {Type: "image", MimeType: "image/png", Data: "AAAA"}},
		}}
		prompt(t, s, "")
		got := string(srv.requests()[0].Messages[1].Content)
		want := `"by the way\n\nwhat is it?\n\n[An image (image/png) that cannot be shown here.]"`
		if images {
			want = `[{"type":"text","text":"by the way"},{"type":"text","text":"what is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]`
		}
		if got != want {
			t.Errorf("images %v: content = %s; want %s", images, got, want)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// withContent prompts with its own content.
type withContent struct {
	agent.Agent
	p agent.Prompt
}

func (w withContent) Prompt(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
	return w.Agent.Prompt(ctx, t, w.p)
}

// Usage adds up exactly, over steps, turns and restarts.
func TestUsageAddsUpExactly(t *testing.T) {
	srv := &stub{}
	o := options(t, srv)
	o.Prices = map[string]llm.Price{"stub": {Input: "0.1", Output: "0.3"}}
	_, s := open(t, o, agenttest.Script{})
	res := prompt(t, s, script(step{Tools: tool("list", "{}")}, step{Text: "x"}))
	if res.Usage == nil || res.Usage.InputTokens != 2000 || res.Usage.Cost != "0.000212" {
		t.Errorf("usage of the turn = %+v; want two answers of 0.000106", res.Usage)
	}
	s.Agent = reopen(t, o, s)
	prompt(t, s, "again")
	u := agenttest.Last[frames.UsageUpdated](s).Usage
	if u.InputTokens != 3000 || u.OutputTokens != 60 || u.Cost != "0.000318" || u.Currency != "USD" || u.ContextTokens != 1020 {
		t.Errorf("usage of the session = %+v; want three answers", u)
	}
	for _, e := range all[frames.StepEnd](s) {
		if e.Usage == nil || e.Usage.Cost != "0.000106" || e.Usage.InputTokens != 1000 {
			t.Errorf("step/end = %+v; want one answer", e)
		}
	}
}
