package llm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/llm"
)

// step is what the stub does for one request.
type step struct {
	Text    string        `json:"text,omitempty"`
	Think   string        `json:"think,omitempty"`
	Tools   []stubTool    `json:"tools,omitempty"`
	Status  int           `json:"status,omitempty"`
	Body    string        `json:"body,omitempty"`    // of an error
	Raw     string        `json:"raw,omitempty"`     // the stream itself
	Header  http.Header   `json:"header,omitempty"`  // of the answer
	Delay   time.Duration `json:"delay,omitempty"`   // between pieces of text
	Hang    bool          `json:"hang,omitempty"`    // after the text, until the client goes
	Finish  string        `json:"finish,omitempty"`  // default stop, or tool_calls
	Prompt  int           `json:"prompt,omitempty"`  // prompt tokens, default 1000
	NoUsage bool          `json:"noUsage,omitempty"` // tell none
}

type stubTool struct {
	Name string `json:"name"`
	Args string `json:"args"`
}

func tool(name, args string) []stubTool { return []stubTool{{name, args}} }

// script is a prompt that tells the stub what to do in its turn.
func script(steps ...step) string {
	b, err := json.Marshal(steps)
	if err != nil {
		panic(err)
	}
	return "SCRIPT" + string(b)
}

// seen is one request as the stub got it.
type seen struct {
	Model    string        `json:"model"`
	Messages []seenMessage `json:"messages"`
	Tools    []any         `json:"tools"`
	Header   http.Header   `json:"-"`
	Body     string        `json:"-"`
	At       time.Time     `json:"-"`
}

type seenMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string                           `json:"id"`
		Function struct{ Name, Arguments string } `json:"function"`
	} `json:"tool_calls"`
}

func (m seenMessage) text() string {
	var s string
	if json.Unmarshal(m.Content, &s) != nil {
		return string(m.Content)
	}
	return s
}

// stub is a model server whose answers are scripted: by queue first, then by the
// newest scripted prompt in the conversation.
type stub struct {
	mu    sync.Mutex
	queue []step
	seen  []seen
	gone  int // clients that went away in the middle
	// summary is the answer to requests without tools.
	summary string
}

func (s *stub) push(steps ...step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, steps...)
}

func (s *stub) requests() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

func (s *stub) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

func (s *stub) next(q seen) step {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, q)
	if len(q.Tools) == 0 && s.summary != "" {
		return step{Text: s.summary}
	}
	if len(s.queue) > 0 && len(q.Tools) > 0 {
		st := s.queue[0]
		s.queue = s.queue[1:]
		return st
	}
	if len(q.Tools) == 0 {
		return step{Text: "Stub summary"}
	}
	var steps []step
	n := 0
	for _, m := range q.Messages {
		if i := strings.LastIndex(m.text(), "SCRIPT["); m.Role == "user" && i >= 0 {
			steps, n = nil, 0
			if json.NewDecoder(strings.NewReader(m.text()[i+6:])).Decode(&steps) != nil {
				return step{Status: 400, Body: "bad script"}
			}
		}
		if m.Role == "assistant" {
			n++
		}
	}
	if len(steps) == 0 {
		return step{Text: "Stub answer"}
	}
	return steps[min(n, len(steps)-1)]
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	q := seen{Header: r.Header, Body: string(body), At: time.Now()}
	if err := json.Unmarshal(body, &q); err != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	s.play(w, r, s.next(q))
}

func (s *stub) play(w http.ResponseWriter, r *http.Request, st step) {
	maps.Copy(w.Header(), st.Header)
	if st.Status != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(st.Status)
		_, _ = io.WriteString(w, st.Body)
		return
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	out := http.NewResponseController(w)
	if st.Raw != "" {
		_, _ = io.WriteString(w, st.Raw)
		_ = out.Flush()
	} else {
		s.stream(w, out, r, st)
	}
	if st.Hang {
		<-r.Context().Done()
		s.mu.Lock()
		s.gone++
		s.mu.Unlock()
	}
}

func (s *stub) stream(w io.Writer, out *http.ResponseController, r *http.Request, st step) {
	send := func(v any) {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(w, "data: %s\n\n", b)
		_ = out.Flush()
	}
	piece := func(delta any, finish any) {
		send(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}})
	}
	type obj = map[string]any
	piece(obj{"role": "assistant", "content": ""}, nil)
	if st.Think != "" {
		piece(obj{"reasoning_content": st.Think}, nil)
	}
	for _, word := range strings.SplitAfter(st.Text, " ") {
		if word == "" {
			continue
		}
		piece(obj{"content": word}, nil)
		if st.Delay > 0 {
			select {
			case <-time.After(st.Delay):
			case <-r.Context().Done():
				return
			}
		}
	}
	if st.Hang {
		return
	}
	for i, t := range st.Tools {
		h := len(t.Args) / 2
		piece(obj{"tool_calls": []any{obj{"index": i, "id": fmt.Sprintf("call_%d", i), "type": "function", "function": obj{"name": t.Name, "arguments": ""}}}}, nil)
		piece(obj{"tool_calls": []any{obj{"index": i, "function": obj{"arguments": t.Args[:h]}}}}, nil)
		piece(obj{"tool_calls": []any{obj{"index": i, "function": obj{"arguments": t.Args[h:]}}}}, nil)
	}
	finish := st.Finish
	if finish == "" && len(st.Tools) > 0 {
		finish = "tool_calls"
	}
	if finish == "" {
		finish = "stop"
	}
	piece(obj{}, finish)
	if !st.NoUsage {
		prompt := st.Prompt
		if prompt == 0 {
			prompt = 1000
		}
		send(obj{"choices": []any{}, "usage": obj{"prompt_tokens": prompt, "completion_tokens": 20}})
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// pipes is a listener in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.done) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// serve serves h in memory until the test ends, and returns a client of it.
func serve(t *testing.T, h http.Handler) *http.Client {
	t.Helper()
	p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: h}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(p) })
	tr := &http.Transport{DialContext: p.dial}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		_ = srv.Close()
		wg.Wait()
	})
	return &http.Client{Transport: tr}
}

func options(t *testing.T, s http.Handler) llm.Options {
	t.Helper()
	return llm.Options{BaseURL: "http://model.test/v1", Model: "stub", HTTPClient: serve(t, s)}
}

// open opens a session on a fake host that is closed when the test ends. The
// driver is made to say what a host's log has of people.
func open(t *testing.T, o llm.Options, sc agenttest.Script) (*agenttest.Host, *agenttest.Session) {
	t.Helper()
	if sc.Cwd == "" {
		sc.Cwd = dir(t)
	}
	h := agenttest.New(sc, logged{llm.New(o)})
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	s, err := h.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return h, s
}

func dir(t *testing.T) string {
	t.Helper()
	d, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// logged adds to the log what a real host says of turns and people.
type logged struct{ agent.Driver }

func (d logged) Open(ctx context.Context, s agent.Session) (agent.Agent, error) {
	a, err := d.Driver.Open(ctx, s)
	if err != nil {
		return nil, err
	}
	return loggedAgent{a}, nil
}

type loggedAgent struct{ agent.Agent }

func (a loggedAgent) Prompt(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
	err := t.Emit(ctx, frames.TurnStart{Trigger: "prompt", PromptID: p.ID}, frames.UserMessage{PromptID: p.ID, Content: p.Content})
	if err != nil {
		return agent.Result{}, err
	}
	res, err := a.Agent.Prompt(ctx, t, p)
	reason := res.Reason
	if reason == "" {
		reason = frames.TurnCompleted
	}
	if err != nil {
		reason = frames.TurnError
	}
	_ = t.Emit(context.WithoutCancel(ctx), frames.TurnEnd{Reason: reason, Usage: res.Usage})
	return res, err
}

// prompt runs one turn to its completed end.
func prompt(t *testing.T, s *agenttest.Session, text string) agent.Result {
	t.Helper()
	res, err := s.Prompt(t.Context(), text)
	if err != nil || res.Reason != "" {
		t.Fatalf("Prompt(%.200q) = %+v, %v; want a completed turn", text, res, err)
	}
	return res
}

// said is the text of the assistant's last message.
func said(s *agenttest.Session) string {
	return words(agenttest.Last[frames.AssistantMessage](s).Content)
}

func words(blocks []frames.ContentBlock) string {
	var all []string
	for _, b := range blocks {
		all = append(all, b.Text)
	}
	return strings.Join(all, "\n")
}

// all returns the events of type P, in order.
func all[P frames.Payload](s *agenttest.Session) []P {
	var out []P
	for _, e := range s.Events() {
		if p, ok := e.(P); ok {
			out = append(out, p)
		}
	}
	return out
}
