package editor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/editor"
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
	"github.com/muxhost/muxhost/store/mem"
)

const token = "a-token-of-tests-0123456789-0123456789"

// script is an agent that does what its prompt says, a command a line.
type script struct{ kind string }

func (s script) Info() agent.Info {
	return agent.Info{Name: "script", Kind: s.kind, Capabilities: []string{"questions", "subagents"}}
}

func (script) Open(context.Context, agent.Session) (agent.Agent, error) { return script{}, nil } // kind is the driver's
func (script) Steer(context.Context, agent.Prompt) error                { return agent.ErrNotTaken }
func (script) Close(context.Context) error                              { return nil }

func (s script) Prompt(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
	for i, line := range strings.Split(p.Text(), ";") {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		res, err := s.do(ctx, t, fmt.Sprintf("c%d", i), verb, rest)
		if err != nil || res.Reason != "" {
			return res, err
		}
	}
	return agent.Result{}, nil
}

// do does one command: raw, say and think TEXT, slowly, run INPUT, ask, wait, large KIB, back TEXT,
// plan, spawn PROMPT, both TEXT, trouble TEXT, fail, end REASON.
func (script) do(ctx context.Context, t agent.Turn, call, verb, rest string) (agent.Result, error) {
	switch verb {
	case "say", "think", "slowly", "back":
		return agent.Result{}, speak(ctx, t, verb, rest)
	case "run":
		return agent.Result{}, run(ctx, t, frames.CallID(call), rest)
	case "ask":
		a, err := t.Question(ctx, frames.Question{
			ID: "q", Question: "Which?", Options: []frames.QuestionOption{{Label: "a"}, {Label: "b"}}, AllowText: true,
		})
		if err == nil {
			err = speak(ctx, t, "say", fmt.Sprint(a.Outcome, a.Answers))
		}
		return agent.Result{}, err
	case "large":
		n, _ := strconv.Atoi(rest)
		d, err := t.Ask(ctx, agent.Approval{Call: frames.CallID(call), Tool: frames.Tool{Name: "sh"}, Input: json.RawMessage(`{"cmd":"` + strings.Repeat("x", n<<10) + `"}`)})
		if err == nil {
			err = speak(ctx, t, "say", string(d.Outcome))
		}
		return agent.Result{}, err
	case "wait":
		<-ctx.Done()
		return agent.Result{}, context.Cause(ctx)
	case "plan":
		return agent.Result{}, t.Emit(ctx, frames.TodoWrite{Todos: []frames.Todo{{Content: rest, Status: "pending"}}},
			frames.UsageUpdated{Usage: frames.Usage{ContextTokens: 10, ContextWindow: 100, Cost: "0.5"}})
	case "spawn":
		c, err := t.Spawn(ctx, agent.Spawn{Title: "child", Prompt: []frames.ContentBlock{frames.Text(rest)}})
		if err == nil {
			_, err = c.Wait(ctx)
		}
		return agent.Result{}, err
	case "both":
		return agent.Result{}, both(ctx, t, rest)
	case "trouble":
		return agent.Result{}, t.Emit(ctx, frames.ErrorReported{Code: "trouble", Message: rest})
	case "raw":
		return agent.Result{}, t.Emit(ctx, raw(call)...)
	case "end":
		return agent.Result{Reason: frames.TurnEndReason(rest)}, nil
	}
	return agent.Result{}, errors.New("it failed: " + rest)
}

// raw is a call with all that an agent of the protocol says of it.
func raw(call string) []frames.Payload {
	return []frames.Payload{
		frames.ToolCall{CallID: frames.CallID(call), Name: "edit", Kind: "edit", Title: "Edit f", Input: json.RawMessage(`{"path":"f"}`)},
		frames.ToolResult{
			CallID: frames.CallID(call), Content: []frames.ContentBlock{frames.Text("done"), frames.Text("from a terminal")},
			Details: json.RawMessage(`{"content":[{"type":"diff","path":"/f","oldText":"a","newText":"b"},{"type":"content","content":{"type":"text","text":"done"}},` +
				`{"type":"terminal","terminalId":"t"}],"rawOutput":{"n":1},"locations":[{"path":"/f","line":3}],"_meta":{"vendor":{"k":"v"}}}`),
		},
		agent.Raw{Type: "acp.agentclientprotocol.com/tool_call_update", Data: json.RawMessage(`{"sessionUpdate":"tool_call_update","toolCallId":"late","future":[1]}`)},
		agent.Raw{Type: "acp.agentclientprotocol.com/tool_call_update", Data: json.RawMessage(`{"sessionUpdate":"tool_call_update","toolCallId":"later","content":[{"type":"terminal","terminalId":"t"},{"type":"diff","path":"/late"}]}`)},
		agent.Raw{Type: "acp.agentclientprotocol.com/agent_message_chunk", Data: json.RawMessage(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"twice"},"extra":1}`)},
		agent.Raw{Type: "acp.agentclientprotocol.com/future_kind", Data: json.RawMessage(`{"sessionUpdate":"future_kind","x":1}`)},
		agent.Raw{Type: "acp.agentclientprotocol.com/notice", Data: json.RawMessage(`{"sessionUpdate":"notice","severity":"info","title":"A word"}`)},
	}
}

func speak(ctx context.Context, t agent.Turn, verb, text string) error {
	b := t.NewBlock()
	stream := t.Text
	if verb == "think" {
		stream = t.Reasoning
	}
	for word := range strings.SplitAfterSeq(text, " ") {
		if err := stream(ctx, b, word); err != nil {
			return err
		}
		if verb == "slowly" {
			<-time.After(time.Second)
		}
	}
	content := []frames.ContentBlock{frames.Text(text)}
	switch verb {
	case "think":
		return t.Emit(ctx, frames.ReasoningMessage{Content: content, Blocks: []int{b}})
	case "back":
		return t.Emit(ctx, frames.AssistantRetracted{Blocks: []int{b}, Reason: "a guess"})
	}
	return t.Emit(ctx, frames.AssistantMessage{Content: content, Blocks: []int{b}})
}

// both thinks and says a text at once, a word a second.
func both(ctx context.Context, t agent.Turn, text string) error {
	thought, said := t.NewBlock(), t.NewBlock()
	for word := range strings.SplitAfterSeq(text, " ") {
		if err := errors.Join(t.Reasoning(ctx, thought, word), t.Text(ctx, said, word)); err != nil {
			return err
		}
		<-time.After(time.Second)
	}
	content := []frames.ContentBlock{frames.Text(text)}
	return t.Emit(ctx, frames.ReasoningMessage{Content: content, Blocks: []int{thought}}, frames.AssistantMessage{Content: content, Blocks: []int{said}})
}

// run asks for a call, and says how it went.
func run(ctx context.Context, t agent.Turn, id frames.CallID, input string) error {
	in := json.RawMessage(input)
	tool := frames.Tool{Name: "sh", Kind: "execute", Title: "a command"}
	if err := t.Emit(ctx, frames.ToolCall{CallID: id, Name: tool.Name, Kind: tool.Kind, Title: tool.Title, Input: in}); err != nil {
		return err
	}
	d, err := t.Ask(ctx, agent.Approval{Call: id, Tool: tool, Input: in})
	if err != nil {
		return err
	}
	res := frames.ToolResult{CallID: id, Content: []frames.ContentBlock{frames.Text(fmt.Sprintf("%s by %s", d.Outcome, d.Cause))}, IsError: !d.Allowed()}
	if d.Allowed() {
		if err := t.Progress(ctx, id, "working"); err != nil {
			return err
		}
		<-time.After(time.Second)
	}
	return t.Emit(context.WithoutCancel(ctx), res)
}

// rig is a host inside the program, in virtual time.
type rig struct {
	t    *testing.T
	host *host.Host
	cwd  string

	slow  bool // editors read slowly
	mu    sync.Mutex
	conns []net.Conn // of everybody
	dark  bool       // nobody gets a new one
}

// virtual runs a test on a rig.
func virtual(t *testing.T, test func(t *testing.T, r *rig), edit ...func(*host.Config)) {
	t.Helper()
	cwd := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := host.Config{Store: mem.New(), Drivers: []agent.Driver{script{"test"}}, Token: token}
		for _, f := range edit {
			f(&cfg)
		}
		h, err := host.New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := h.Shutdown(context.WithoutCancel(t.Context())); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			h.Local().CloseIdleConnections()
		})
		test(t, &rig{t: t, host: h, cwd: cwd})
	})
}

// dial connects to the host, over connections that the rig can cut.
func (r *rig) dial(ctx context.Context, label string, onState func(client.State)) (*client.Client, error) {
	inner := r.host.Local().Transport.(*http.Transport)
	tr := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		r.mu.Lock()
		dark := r.dark
		r.mu.Unlock()
		if dark {
			return nil, errors.New("dark")
		}
		c, err := inner.DialContext(ctx, network, addr)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.conns = append(r.conns, c)
		return c, err
	}}
	return client.Dial(ctx, client.Options{URL: host.LocalURL, HTTPClient: &http.Client{Transport: tr}, Token: token, Label: label, OnState: onState})
}

// cut ends all connections that were made by [rig.dial]; with dark no new ones can be.
func (r *rig) cut(dark bool) {
	r.mu.Lock()
	conns := r.conns
	r.conns, r.dark = nil, dark
	r.mu.Unlock()
	for _, c := range conns {
		if c != nil {
			_ = c.Close()
		}
	}
}

// other is a client that is no editor, over a connection that is not cut.
func (r *rig) other() *client.Client {
	r.t.Helper()
	c, err := client.Dial(r.t.Context(), client.Options{URL: host.LocalURL, HTTPClient: r.host.Local(), Token: token, Label: "other"})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// update is a session/update as the editor got it.
type update struct {
	Session string
	Kind    string `json:"sessionUpdate"`
	Message string `json:"messageId"`
	Call    string `json:"toolCallId"`
	Child   string `json:"sessionId"`
	Status  string `json:"status"`
	Title   string `json:"title"`
	Mode    string `json:"currentModeId"`
	State   struct {
		State string `json:"state"`
		Stop  string `json:"stopReason"`
	} `json:"state"`
	Content json.RawMessage `json:"content"`
	Raw     json.RawMessage `json:"-"`
}

func (u update) text() string {
	var one struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(u.Content, &one) == nil {
		return one.Text
	}
	var many []struct {
		Content struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	_ = json.Unmarshal(u.Content, &many)
	var out strings.Builder
	for _, m := range many {
		out.WriteString(m.Content.Text)
	}
	return out.String()
}

// fake is an editor.
type fake struct {
	t    *testing.T
	conn *acprpc.Conn
	in   *io.PipeWriter // what the program reads
	out  *io.PipeReader // what it writes
	done chan error     // holds what Serve returned

	mu      sync.Mutex
	updates []update
	asked   []acprpc.Inbound // requests of the program
	taken   map[string]bool  // those that were withdrawn
}

// edit starts an editor with the program behind it.
func (r *rig) edit(capabilities string, options ...func(*editor.Options)) *fake {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	f := &fake{t: r.t, in: inW, out: outR, done: make(chan error, 1), taken: map[string]bool{}}
	o := editor.Options{In: inR, Out: outW, Dial: r.dial}
	for _, option := range options {
		option(&o)
	}
	var wg sync.WaitGroup
	wg.Go(func() { f.done <- editor.Serve(context.WithoutCancel(r.t.Context()), o) })
	var reads io.Reader = outR
	if r.slow {
		reads = slowReader{outR}
	}
	f.conn = acprpc.New(reads, inW, acprpc.Options{Peer: "the program", Unanswered: func(acprpc.Inbound) any { return map[string]string{} }})
	f.conn.Run(f.take)
	r.t.Cleanup(func() { f.leave(); wg.Wait() })
	if capabilities == "" {
		capabilities = "{}"
	}
	f.must("initialize", map[string]any{
		"protocolVersion": 1, "clientCapabilities": json.RawMessage(capabilities), "clientInfo": map[string]string{"name": "an-editor", "version": "1"},
	})
	return f
}

// slowReader reads a little every millisecond.
type slowReader struct{ io.Reader }

func (s slowReader) Read(p []byte) (int, error) {
	<-time.After(time.Millisecond)
	return s.Reader.Read(p[:min(len(p), 100)])
}

// leave ends the editor, and waits for the program.
func (f *fake) leave() {
	f.conn.End(acprpc.ErrGone)
	f.conn.Wait()
}

func (f *fake) take(in acprpc.Inbound) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if in.Method != "session/update" {
		f.asked = append(f.asked, in)
		f.conn.Attend(in.ID, func() { f.withdrawn(string(in.ID)) })
		return
	}
	var p struct {
		Session string          `json:"sessionId"`
		Update  json.RawMessage `json:"update"`
	}
	var u update
	if err := errors.Join(json.Unmarshal(in.Params, &p), json.Unmarshal(p.Update, &u)); err != nil {
		f.t.Errorf("%s: %v", in.Params, err)
	}
	u.Session, u.Raw = p.Session, p.Update
	f.updates = append(f.updates, u)
}

func (f *fake) withdrawn(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken[id] = true
}

func (f *fake) call(method string, params any) (json.RawMessage, error) {
	_, ch := f.conn.Start(method, params)
	r := <-ch
	return r.Result, r.Err
}

func (f *fake) must(method string, params any) json.RawMessage {
	f.t.Helper()
	got, err := f.call(method, params)
	if err != nil {
		f.t.Fatalf("%s: %v", method, err)
	}
	return got
}

// open makes a session.
func (f *fake) open(r *rig) string {
	f.t.Helper()
	return id(f.must("session/new", map[string]any{"cwd": r.cwd, "mcpServers": []int{}}))
}

func id(raw json.RawMessage) string {
	var s struct {
		ID string `json:"sessionId"`
	}
	_ = json.Unmarshal(raw, &s)
	return s.ID
}

// say starts a prompt.
func (f *fake) say(session, text string) <-chan acprpc.Response {
	_, ch := f.conn.Start("session/prompt", map[string]any{"sessionId": session, "prompt": []any{map[string]string{"type": "text", "text": text}}})
	return ch
}

// stop waits for a prompt's end.
func (f *fake) stop(ch <-chan acprpc.Response) string {
	r := <-ch
	if r.Err != nil {
		return r.Err.Error()
	}
	var s struct {
		Reason string `json:"stopReason"`
	}
	_ = json.Unmarshal(r.Result, &s)
	return s.Reason
}

// seen are the updates of a session, of these kinds or of all.
func (f *fake) seen(session string, kinds ...string) []update {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []update
	for _, u := range f.updates {
		if u.Session == session && (len(kinds) == 0 || slices.Contains(kinds, u.Kind)) {
			out = append(out, u)
		}
	}
	return out
}

// text is what was said in a session.
func (f *fake) text(session, kind string) string {
	var b strings.Builder
	for _, u := range f.seen(session, kind) {
		b.WriteString(u.text())
	}
	return b.String()
}

// requests are those of the program so far, and how many were withdrawn.
func (f *fake) requests() (all []acprpc.Inbound, withdrawn int) {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked), len(f.taken)
}

// only is the one request that the program made.
func (f *fake) only() acprpc.Inbound {
	f.t.Helper()
	all, _ := f.requests()
	if len(all) != 1 {
		f.t.Fatalf("%d requests, want 1", len(all))
	}
	return all[0]
}

// choose answers a permission request.
func (f *fake) choose(in acprpc.Inbound, option string) {
	f.conn.Reply(in.ID, map[string]any{"outcome": map[string]string{"outcome": "selected", "optionId": option}})
}

// pending are the ids of what waits in the host.
func pending(t *testing.T, c *client.Client) []frames.RequestID {
	t.Helper()
	list, err := c.Pending(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var out []frames.RequestID
	for _, p := range list {
		if p.Approval != nil {
			out = append(out, p.Approval.ID)
		} else {
			out = append(out, p.Question.ID)
		}
	}
	return out
}

// view is the host's fold of a session.
func view(t *testing.T, c *client.Client, session string) *frames.View {
	t.Helper()
	got, err := c.Get(t.Context(), rpc.GetParams{SessionID: frames.SessionID(session), View: true})
	if err != nil {
		t.Fatal(err)
	}
	v := frames.NewView()
	if err := v.UnmarshalJSON(got.View); err != nil {
		t.Fatal(err)
	}
	return v
}

// prompt prompts as somebody who is no editor.
func prompt(t *testing.T, c *client.Client, session, text string) rpc.PromptResult {
	t.Helper()
	res, err := c.Prompt(t.Context(), rpc.PromptParams{SessionID: frames.SessionID(session), Content: []frames.ContentBlock{frames.Text(text)}})
	if err != nil {
		t.Fatal(err)
	}
	return res
}
