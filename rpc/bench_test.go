package rpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/rpc"
)

// loop is a stream that feeds one message again and again, each after the answer
// to the one before.
type loop struct {
	msg    []byte
	left   int
	ready  chan struct{}
	answer []byte
}

func (l *loop) Read(context.Context) ([]byte, error) {
	<-l.ready
	if l.left--; l.left < 0 {
		return nil, io.EOF
	}
	return l.msg, nil
}

func (l *loop) Send(msg []byte) error      { l.answer = msg; l.ready <- struct{}{}; return nil }
func (l *loop) Room(context.Context) error { return nil }
func (l *loop) Close(int, string)          {}

// run makes n calls, one at a time.
func run(api rpc.API, msg string, n int) []byte {
	l := &loop{msg: []byte(msg), left: n, ready: make(chan struct{}, 1)}
	l.ready <- struct{}{}
	_ = rpc.Serve(context.Background(), l, api, rpc.Options{Scopes: []rpc.Scope{rpc.ScopeAdmin}})
	return l.answer
}

// quick answers without keeping anything.
type quick struct {
	fakeAPI
	page []json.RawMessage
}

func (q *quick) SessionPrompt(_ context.Context, _ rpc.PromptParams, r rpc.Reply[rpc.PromptResult]) error {
	r(rpc.PromptResult{Accepted: true, PromptID: "p1", TurnID: "t1"})
	return nil
}

func (q *quick) SessionHistory(context.Context, rpc.HistoryParams) (rpc.HistoryResult, error) {
	return rpc.HistoryResult{Events: q.page, First: 1, Head: 100}, nil
}

func newQuick() *quick {
	q := &quick{}
	for range 60 {
		q.page = append(q.page, json.RawMessage(`{"type":"assistant/message","data":"`+strings.Repeat("x", 260)+`"}`))
	}
	return q
}

// A small call costs at most 20 allocations from message to response.
func TestSmallCallAllocations(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates too; the plain run is the gate")
	}
	q, msg := newQuick(), call(1, "session.prompt", goodParams["session.prompt"])
	const calls = 1000
	per := testing.AllocsPerRun(5, func() { run(q, msg, calls) }) / calls
	if per > 20 && !raceEnabled {
		t.Errorf("%.1f allocations per session.prompt, want at most 20", per)
	}
}

// A page of history is copied once: its cost is that of one allocation its size.
func TestHistoryIsCopiedOnce(t *testing.T) {
	q := newQuick()
	size := 0
	for _, e := range q.page {
		size += len(e)
	}
	msg := call(1, "session.history", goodParams["session.history"])
	res := testing.Benchmark(func(b *testing.B) { run(q, msg, b.N) })
	if got := res.AllocedBytesPerOp(); got > int64(size)+8<<10 && !raceEnabled {
		t.Errorf("%d bytes allocated for a page of %d", got, size)
	}
	if out := run(q, msg, 1); !bytes.Contains(out, q.page[0]) {
		t.Errorf("the page is not in the answer")
	}
}

func BenchmarkServe(b *testing.B) {
	q := newQuick()
	for name, msg := range map[string]string{
		"prompt":     call(1, "session.prompt", goodParams["session.prompt"]),
		"history18k": call(1, "session.history", goodParams["session.history"]),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			run(q, msg, b.N)
		})
	}
}
