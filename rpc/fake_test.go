package rpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
)

// pipe is an in-memory stream: the test sends messages in and reads what came out,
// in order.
type pipe struct {
	in     chan []byte
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	out  []string // guarded by mu
	code int      // guarded by mu
	more chan struct{}
	room func(context.Context) error
}

func newPipe() *pipe {
	return &pipe{in: make(chan []byte), closed: make(chan struct{}), more: make(chan struct{}, 1)}
}

func (p *pipe) Read(ctx context.Context) ([]byte, error) {
	select {
	case m, ok := <-p.in:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-p.closed:
		return nil, errors.New("closed by the host")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipe) Send(msg []byte) error {
	p.mu.Lock()
	p.out = append(p.out, string(msg))
	p.mu.Unlock()
	select {
	case p.more <- struct{}{}:
	default:
	}
	return nil
}

func (p *pipe) Room(ctx context.Context) error {
	if p.room == nil {
		return nil
	}
	return p.room(ctx)
}

func (p *pipe) Close(code int, _ string) {
	p.once.Do(func() {
		p.mu.Lock()
		p.code = code
		p.mu.Unlock()
		close(p.closed)
	})
}

// sent returns everything that was sent so far.
func (p *pipe) sent() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.out...)
}

func (p *pipe) closeCode() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.code
}

// wait blocks until n messages were sent, and returns them.
func (p *pipe) wait(t testing.TB, n int) []string {
	t.Helper()
	for {
		if got := p.sent(); len(got) >= n {
			return got
		}
		select {
		case <-p.more:
		case <-t.Context().Done():
			t.Fatalf("got %d messages, want %d", len(p.sent()), n)
		}
	}
}

// serve runs Serve over a pipe until the test ends or stop is called.
func serve(t testing.TB, api rpc.API, opt rpc.Options) (p *pipe, stop func() error) {
	t.Helper()
	p = newPipe()
	return p, serveOn(t, p, api, opt)
}

func serveOn(t testing.TB, p *pipe, api rpc.API, opt rpc.Options) (stop func() error) {
	t.Helper()
	if opt.Scopes == nil {
		opt.Scopes = []rpc.Scope{rpc.ScopeAdmin}
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	done := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { done <- rpc.Serve(t.Context(), p, api, opt) })
	stop = sync.OnceValue(func() error { close(p.in); wg.Wait(); return <-done })
	t.Cleanup(func() { _ = stop() })
	return stop
}

// send gives the host messages, in order.
func (p *pipe) send(msgs ...string) {
	for _, m := range msgs {
		select {
		case p.in <- []byte(m):
		case <-p.closed:
		}
	}
}

// ask sends one message and returns the one answer.
func (p *pipe) ask(t testing.TB, msg string) answer {
	t.Helper()
	n := len(p.sent())
	p.send(msg)
	return parse(t, p.wait(t, n+1)[n])
}

// answer is a parsed response.
type answer struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result"`
	Error   *rpc.WireError  `json:"error"`
}

func parse(t testing.TB, msg string) answer {
	t.Helper()
	var a answer
	if err := json.Unmarshal([]byte(msg), &a); err != nil || a.JSONRPC != "2.0" || (a.Result == nil) == (a.Error == nil) {
		t.Fatalf("not a response: %s (%v)", msg, err)
	}
	return a
}

func (a answer) code() int64 {
	if a.Error == nil {
		return 0
	}
	return a.Error.Code
}

func (a answer) kind() rpc.Kind {
	var data struct{ Kind rpc.Kind }
	if a.Error == nil || json.Unmarshal(a.Error.Data, &data) != nil {
		return ""
	}
	return data.Kind
}

// call writes a request.
func call(id any, method, params string) string {
	raw, err := json.Marshal(id)
	if err != nil {
		panic(err)
	}
	if params == "" {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q}`, raw, method)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, raw, method, params)
}

// fakeAPI does every method by calling on, when it is set, and succeeding.
type fakeAPI struct {
	// on is told of each call; reply answers a change early. It runs on the
	// call's goroutine.
	on func(ctx context.Context, method string, params any, reply func()) error

	mu    sync.Mutex
	calls []string // guarded by mu: the methods that ran
}

func (f *fakeAPI) ran() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

func (f *fakeAPI) do(ctx context.Context, method string, params any, reply func()) error {
	f.mu.Lock()
	f.calls = append(f.calls, method)
	f.mu.Unlock()
	if f.on == nil {
		return nil
	}
	return f.on(ctx, method, params, reply)
}

// read and write do a query and a change.
func read[R any](ctx context.Context, f *fakeAPI, method string, params any, r R) (R, error) {
	return r, f.do(ctx, method, params, func() {})
}

func write[R any](ctx context.Context, f *fakeAPI, method string, params any, reply rpc.Reply[R], r R) error {
	replied := false
	once := func() { replied = true; reply(r) }
	if err := f.do(ctx, method, params, once); err != nil {
		return err
	}
	if !replied {
		reply(r)
	}
	return nil
}

func (f *fakeAPI) HostDescribe(ctx context.Context, p rpc.Empty) (rpc.DescribeResult, error) {
	return read(ctx, f, "host.describe", p, rpc.DescribeResult{HostID: "h"})
}

func (f *fakeAPI) Subscribe(ctx context.Context, p rpc.SubscribeParams, respond func(rpc.SubscribeResult) []byte) error {
	return f.do(ctx, "mux.subscribe", p, func() {})
}

func (f *fakeAPI) Unsubscribe(ctx context.Context, p rpc.UnsubscribeParams, respond func(rpc.Empty) []byte) error {
	return f.do(ctx, "mux.unsubscribe", p, func() {})
}

func (f *fakeAPI) SessionsList(ctx context.Context, p rpc.ListParams) (rpc.ListResult, error) {
	return read(ctx, f, "sessions.list", p, rpc.ListResult{})
}

func (f *fakeAPI) SessionCreate(ctx context.Context, p rpc.CreateParams, r rpc.Reply[rpc.SessionResult]) error {
	return write(ctx, f, "session.create", p, r, rpc.SessionResult{Session: frames.Session{SessionID: "s1"}})
}

func (f *fakeAPI) SessionGet(ctx context.Context, p rpc.GetParams) (rpc.GetResult, error) {
	return read(ctx, f, "session.get", p, rpc.GetResult{View: json.RawMessage(`{"a":"<b>"}`), Seq: 7})
}

func (f *fakeAPI) SessionHistory(ctx context.Context, p rpc.HistoryParams) (rpc.HistoryResult, error) {
	return read(ctx, f, "session.history", p, rpc.HistoryResult{Events: []json.RawMessage{json.RawMessage(`{"seq":1}`), json.RawMessage(`{"seq":2}`)}, First: 1, Head: 2})
}

func (f *fakeAPI) SessionPrompt(ctx context.Context, p rpc.PromptParams, r rpc.Reply[rpc.PromptResult]) error {
	return write(ctx, f, "session.prompt", p, r, rpc.PromptResult{Accepted: true, PromptID: "p1", TurnID: "t1"})
}

func (f *fakeAPI) SessionCancel(ctx context.Context, p rpc.CancelParams, r rpc.Reply[rpc.CancelResult]) error {
	return write(ctx, f, "session.cancel", p, r, rpc.CancelResult{Cancelled: true})
}

func (f *fakeAPI) SessionConfigure(ctx context.Context, p rpc.ConfigureParams, r rpc.Reply[rpc.SessionResult]) error {
	return write(ctx, f, "session.configure", p, r, rpc.SessionResult{})
}

func (f *fakeAPI) SessionClose(ctx context.Context, p rpc.CloseParams, r rpc.Reply[rpc.Empty]) error {
	return write(ctx, f, "session.close", p, r, rpc.Empty{})
}

func (f *fakeAPI) SessionDelete(ctx context.Context, p rpc.DeleteParams, r rpc.Reply[rpc.Empty]) error {
	return write(ctx, f, "session.delete", p, r, rpc.Empty{})
}

func (f *fakeAPI) ApprovalRespond(ctx context.Context, p rpc.ApprovalParams, r rpc.Reply[rpc.Accepted]) error {
	return write(ctx, f, "approval.respond", p, r, rpc.Accepted{Accepted: true})
}

func (f *fakeAPI) QuestionRespond(ctx context.Context, p rpc.QuestionParams, r rpc.Reply[rpc.Accepted]) error {
	return write(ctx, f, "question.respond", p, r, rpc.Accepted{Accepted: true})
}

func (f *fakeAPI) PendingList(ctx context.Context, p rpc.PendingParams) (rpc.PendingResult, error) {
	return read(ctx, f, "pending.list", p, rpc.PendingResult{})
}

func (f *fakeAPI) GrantsList(ctx context.Context, p rpc.Empty) (rpc.GrantsResult, error) {
	return read(ctx, f, "grants.list", p, rpc.GrantsResult{})
}

func (f *fakeAPI) GrantsRevoke(ctx context.Context, p rpc.RevokeParams, r rpc.Reply[rpc.Empty]) error {
	return write(ctx, f, "grants.revoke", p, r, rpc.Empty{})
}

func (f *fakeAPI) RPCDiscover(ctx context.Context, p rpc.Empty) (rpc.DiscoverResult, error) {
	return read(ctx, f, "rpc.discover", p, rpc.DiscoverResult{Document: []byte(`{"openrpc":"1.3.2"}`)})
}

func (f *fakeAPI) SessionExport(ctx context.Context, p rpc.ExportParams) (rpc.ExportResult, error) {
	return read(ctx, f, "session.export", p, rpc.ExportResult{Blob: "sha256-00"})
}

func (f *fakeAPI) SessionFork(ctx context.Context, p rpc.ForkParams, r rpc.Reply[rpc.SessionResult]) error {
	return write(ctx, f, "session.fork", p, r, rpc.SessionResult{})
}

func (f *fakeAPI) TasksList(ctx context.Context, p rpc.TasksListParams) (rpc.TasksResult, error) {
	return read(ctx, f, "tasks.list", p, rpc.TasksResult{})
}

func (f *fakeAPI) TasksGet(ctx context.Context, p rpc.TaskParams) (rpc.TaskResult, error) {
	return read(ctx, f, "tasks.get", p, rpc.TaskResult{})
}

func (f *fakeAPI) TasksWait(ctx context.Context, p rpc.TaskWaitParams) (rpc.TaskWaitResult, error) {
	return read(ctx, f, "tasks.wait", p, rpc.TaskWaitResult{})
}

func (f *fakeAPI) TasksCancel(ctx context.Context, p rpc.TaskParams, r rpc.Reply[rpc.CancelResult]) error {
	return write(ctx, f, "tasks.cancel", p, r, rpc.CancelResult{Cancelled: true})
}

func (f *fakeAPI) BlobWrite(ctx context.Context, p rpc.BlobWriteParams, r rpc.Reply[rpc.BlobWriteResult]) error {
	return write(ctx, f, "blob.write", p, r, rpc.BlobWriteResult{Upload: "u"})
}

func (f *fakeAPI) ClientsList(ctx context.Context, p rpc.Empty) (rpc.ClientsResult, error) {
	return read(ctx, f, "clients.list", p, rpc.ClientsResult{})
}

func (f *fakeAPI) TokensList(ctx context.Context, p rpc.Empty) (rpc.TokensResult, error) {
	return read(ctx, f, "tokens.list", p, rpc.TokensResult{})
}

func (f *fakeAPI) TokensCreate(ctx context.Context, p rpc.TokenCreateParams, r rpc.Reply[rpc.TokenCreateResult]) error {
	return write(ctx, f, "tokens.create", p, r, rpc.TokenCreateResult{Secret: "s"})
}

func (f *fakeAPI) TokensRevoke(ctx context.Context, p rpc.TokenRevokeParams, r rpc.Reply[rpc.Empty]) error {
	return write(ctx, f, "tokens.revoke", p, r, rpc.Empty{})
}

func (f *fakeAPI) BlobRead(ctx context.Context, p rpc.BlobReadParams) (rpc.BlobReadResult, error) {
	return read(ctx, f, "blob.read", p, rpc.BlobReadResult{Data: []byte("x"), Bytes: 1})
}

// goodParams has proper params for every method.
var goodParams = map[string]string{
	"host.describe":     `{}`,
	"mux.subscribe":     `{"sessions":[{"sessionId":"s","since":0}]}`,
	"mux.unsubscribe":   `{"sessions":["s"]}`,
	"sessions.list":     `{"limit":10}`,
	"session.create":    `{"cwd":"/w","policy":{"mode":"ask","rules":[{"tool":"*","input":{"b":1},"decision":"deny"}]},"labels":{"k":"v"}}`,
	"session.get":       `{"sessionId":"s","view":true}`,
	"session.history":   `{"sessionId":"s","after":3}`,
	"session.prompt":    `{"sessionId":"s","content":[{"type":"text","text":"hi"}]}`,
	"session.cancel":    `{"sessionId":"s","tree":false}`,
	"session.configure": `{"sessionId":"s","title":"t"}`,
	"session.close":     `{"sessionId":"s"}`,
	"session.delete":    `{"sessionId":"s"}`,
	"approval.respond":  `{"sessionId":"s","id":"r","outcome":"rejected"}`,
	"question.respond":  `{"sessionId":"s","id":"r","answers":[{"id":"q","labels":["a"]}]}`,
	"pending.list":      `{}`,
	"grants.list":       `{}`,
	"grants.revoke":     `{"id":"g"}`,
	"blob.read":         `{"blob":"sha256-00"}`,
	"rpc.discover":      `{}`,
	"session.export":    `{"sessionId":"s","format":"jsonl"}`,
	"session.fork":      `{"sessionId":"s","at":4}`,
	"tasks.list":        `{}`,
	"tasks.get":         `{"sessionId":"s","taskId":"t"}`,
	"tasks.wait":        `{"sessionId":"s","taskId":"t","timeoutMs":0}`,
	"tasks.cancel":      `{"sessionId":"s","taskId":"t"}`,
	"blob.write":        `{"data":"aGk="}`,
	"clients.list":      `{}`,
	"tokens.list":       `{}`,
	"tokens.create":     `{"label":"l","scope":"answer"}`,
	"tokens.revoke":     `{"id":"t"}`,
}

// placingAPI places the responses of subscriptions on a stream, as a hub does.
type placingAPI struct {
	fakeAPI
	stream *pipe
}

func (f *placingAPI) Subscribe(ctx context.Context, p rpc.SubscribeParams, respond func(rpc.SubscribeResult) []byte) error {
	if err := f.do(ctx, "mux.subscribe", p, func() {}); err != nil {
		return err
	}
	return f.stream.Send(respond(nil))
}

func (f *placingAPI) Unsubscribe(ctx context.Context, p rpc.UnsubscribeParams, respond func(rpc.Empty) []byte) error {
	if err := f.do(ctx, "mux.unsubscribe", p, func() {}); err != nil {
		return err
	}
	return f.stream.Send(respond(rpc.Empty{}))
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// compact encodes v without HTML escaping.
func compact(t testing.TB, v any) string {
	t.Helper()
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}
