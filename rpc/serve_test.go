package rpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/rpc"
)

// Every method of the table answers a proper call with a result under its id.
func TestEveryMethodAnswers(t *testing.T) {
	api := &placingAPI{}
	p, _ := serve(t, api, rpc.Options{})
	api.stream = p
	for i, m := range rpc.Methods() {
		params, ok := goodParams[m.Name]
		if !ok {
			t.Fatalf("%s has no params in goodParams", m.Name)
		}
		a := p.ask(t, call(i, m.Name, params))
		if a.Error != nil || string(a.ID) != fmt.Sprint(i) {
			t.Errorf("%s: id %s error %+v, want a result for id %d", m.Name, a.ID, a.Error, i)
		}
		if strings.Contains(string(a.Result), "null") {
			t.Errorf("%s: result %s has a null where a list or an object belongs", m.Name, a.Result)
		}
	}
}

// Every method of API has exactly one row of the table, with a doc.
func TestEveryMethodOfTheAPIHasARow(t *testing.T) {
	api := reflect.TypeFor[rpc.API]()
	rows := map[reflect.Type]int{}
	for _, m := range rpc.Methods() {
		if m.Doc == "" || m.Params == nil || m.Result == nil {
			t.Errorf("%s: row %+v lacks a doc or a type", m.Name, m)
		}
		rows[m.Params]++
	}
	want := map[reflect.Type]int{}
	for method := range api.Methods() {
		want[method.Type.In(1)]++
	}
	if !reflect.DeepEqual(rows, want) || len(rpc.Methods()) != api.NumMethod() {
		t.Errorf("the table has rows for %v, API has methods with %v", rows, want)
	}
}

// A method runs for the scopes that the contract gives it, and for no lesser one.
func TestScopes(t *testing.T) {
	contract := map[rpc.Scope]string{
		rpc.ScopeObserve: "host.describe mux.subscribe mux.unsubscribe sessions.list session.get session.history pending.list grants.list blob.read " +
			"rpc.discover session.export tasks.list tasks.get tasks.wait",
		rpc.ScopeAnswer: "approval.respond question.respond",
		rpc.ScopeOperate: "session.create session.prompt session.cancel session.configure session.close session.delete grants.revoke " +
			"session.fork tasks.cancel blob.write",
		rpc.ScopeAdmin: "clients.list tokens.list tokens.create tokens.revoke",
	}
	order := []rpc.Scope{rpc.ScopeObserve, rpc.ScopeAnswer, rpc.ScopeOperate, rpc.ScopeAdmin}
	need := map[string]int{}
	for i, s := range order {
		for name := range strings.FieldsSeq(contract[s]) {
			need[name] = i
		}
	}
	for granted, scopes := range [][]rpc.Scope{{}, {"root"}, {rpc.ScopeObserve}, {rpc.ScopeAnswer}, {rpc.ScopeObserve, rpc.ScopeOperate}, {rpc.ScopeAdmin}} {
		api := &placingAPI{}
		p := newPipe()
		api.stream = p
		serveOn(t, p, api, rpc.Options{Scopes: scopes})
		for _, m := range rpc.Methods() {
			n := len(api.ran())
			a := p.ask(t, call(1, m.Name, goodParams[m.Name]))
			allowed := granted-2 >= need[m.Name]
			if got := len(api.ran()) > n; got != allowed || allowed != (a.Error == nil) || !allowed && a.kind() != rpc.KindForbidden {
				t.Errorf("%v: %s ran %v, answered %+v; want allowed %v", scopes, m.Name, got, a.Error, allowed)
			}
		}
		if len(need) != len(rpc.Methods()) {
			t.Errorf("the contract's table has %d methods, the host %d", len(need), len(rpc.Methods()))
		}
	}
}

// Errors travel by their kind with details; what is not meant for the client
// becomes "internal" with a log id, and its text only goes to the log.
func TestErrorsOfMethods(t *testing.T) {
	var log strings.Builder
	for _, row := range []struct {
		err  error
		want string
	}{
		{rpc.Errorf(rpc.KindCursorExpired, "gone <1>").With(map[string]int{"first": 9}), `{"code":-32000,"message":"gone <1>","data":{"kind":"cursor-expired","details":{"first":9}}}`},
		{fmt.Errorf("host: %w", rpc.Errorf(rpc.KindDraining, "later")), `{"code":-32000,"message":"later","data":{"kind":"draining"}}`},
		{rpc.Paramsf("no such agent"), `{"code":-32602,"message":"invalid params: no such agent"}`},
		{errors.New("open /home/me/secret.db"), `{"code":-32603,"message":"internal error (log id `},
		{rpc.Errorf(rpc.KindTooLarge, "x").With(func() {}), `{"code":-32603,"message":"internal error (log id `},
	} {
		api := &fakeAPI{on: func(context.Context, string, any, func()) error { return row.err }}
		p := newPipe()
		stop := serveOn(t, p, api, rpc.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for _, m := range []string{"session.close", "session.get", "mux.subscribe"} {
			n := len(p.sent())
			p.send(call(1, m, goodParams[m]))
			got := p.wait(t, n+1)[n]
			if !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":1,"error":`+row.want) || strings.Contains(got, "secret") {
				t.Errorf("%s, %v: answered %s, want error %s", m, row.err, got, row.want)
			}
		}
		_ = stop()
	}
	if !strings.Contains(log.String(), "secret.db") {
		t.Errorf("the log does not say what was internal: %s", log.String())
	}
}

// A method answers once: the second reply panics and is not sent, a missing one is
// internal, and an error after the reply changes nothing for the client.
func TestOneAnswerPerCall(t *testing.T) {
	var second any
	for name, on := range map[string]func(context.Context, string, any, func()) error{
		"twice": func(_ context.Context, _ string, _ any, reply func()) (err error) {
			reply()
			defer func() { second = recover(); panic(second) }()
			reply()
			return nil
		},
		"error after": func(_ context.Context, _ string, _ any, reply func()) error {
			reply()
			return errors.New("too late")
		},
	} {
		p, stop := serve(t, &fakeAPI{on: on}, rpc.Options{})
		if a := p.ask(t, call(1, "session.close", goodParams["session.close"])); a.Error != nil {
			t.Errorf("%s: %+v, want the first reply", name, a.Error)
		}
		_ = stop()
		if got := p.sent(); len(got) != 1 {
			t.Errorf("%s: sent %v, want one answer", name, got)
		}
	}
	if second == nil {
		t.Error("the second reply did not panic")
	}
	p, _ := serve(t, &fakeAPI{}, rpc.Options{}) // its Subscribe never responds
	if a := p.ask(t, call(1, "mux.subscribe", goodParams["mux.subscribe"])); a.code() != rpc.CodeInternal {
		t.Errorf("no reply: answered %+v, want -32603", a.Error)
	}
}

// Results that hold JSON are copied byte for byte, in the form of encoding/json.
func TestResultsThatHoldJSONAreCopied(t *testing.T) {
	p, _ := serve(t, &fakeAPI{}, rpc.Options{})
	for method, want := range map[string]string{
		"session.history": `{"events":[{"seq":1},{"seq":2}],"first":1,"head":2,"more":false}`,
		"session.get":     `"view":{"a":"<b>"},"seq":7}`,
	} {
		a := p.ask(t, call(1, method, goodParams[method]))
		if !strings.HasSuffix(string(a.Result), want) {
			t.Errorf("%s: result %s, want …%s", method, a.Result, want)
		}
	}
	h := rpc.HistoryResult{Events: []json.RawMessage{[]byte(`{"a":1}`)}, First: 3, Head: 9, More: true}
	if got, want := string(h.AppendJSON(nil)), string(mustJSON(t, h)); got != want {
		t.Errorf("AppendJSON = %s, encoding/json says %s", got, want)
	}
	g := rpc.GetResult{View: []byte(`{}`), Seq: 4}
	if got, want := string(g.AppendJSON(nil)), string(mustJSON(t, g)); got != want {
		t.Errorf("AppendJSON = %s, encoding/json says %s", got, want)
	}
}

// Serve returns what Read returned, and nothing at the peer's end of stream.
func TestServeReturnsWhyTheStreamEnded(t *testing.T) {
	_, stop := serve(t, &fakeAPI{}, rpc.Options{})
	if err := stop(); err != nil {
		t.Errorf("at io.EOF Serve = %v, want nil", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := rpc.Serve(ctx, newPipe(), &fakeAPI{}, rpc.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Serve = %v, want context.Canceled", err)
	}
	if err := rpc.Serve(t.Context(), brokenStream{newPipe()}, &fakeAPI{}, rpc.Options{}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Serve = %v, want the error of Read", err)
	}
}

type brokenStream struct{ *pipe }

func (brokenStream) Read(context.Context) ([]byte, error) { return nil, io.ErrUnexpectedEOF }

// One message without a connection gets one answer; subscriptions need one.
func TestOnceAnswersOneMessage(t *testing.T) {
	opt := rpc.Options{Scopes: []rpc.Scope{rpc.ScopeOperate}}
	for msg, want := range map[string]string{
		call(1, "session.prompt", goodParams["session.prompt"]): `"id":1,"result":{"accepted":true`,
		call(2, "mux.subscribe", goodParams["mux.subscribe"]):   `"id":2,"error":{"code":-32601`,
		call(3, "session.get", `{}`):                            `"id":3,"error":{"code":-32602`,
		``:                                                      `"id":null,"error":{"code":-32700`,
	} {
		if got := string(rpc.Once(t.Context(), []byte(msg), &fakeAPI{}, opt)); !strings.HasPrefix(got, `{"jsonrpc":"2.0",`+want) {
			t.Errorf("%s: answered %s, want %s", msg, got, want)
		}
	}
}
