package rpc_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/rpc"
)

// Bad params are -32602, say where and what, and run nothing.
func TestBadParamsSayWhereAndWhat(t *testing.T) {
	api := &fakeAPI{}
	p, _ := serve(t, api, rpc.Options{ErrorBudget: 1000})
	for _, row := range []struct{ method, params, want string }{
		// Names.
		{"approval.respond", `{"sessionId":"s","id":"r","outcome":"rejected","OUTCOME":"allowed-once"}`, `params: unknown field "OUTCOME"; did you mean "outcome"?`},
		{"approval.respond", `{"sessionId":"s","id":"r","Outcome":"allowed-once"}`, `params: unknown field "Outcome"; did you mean "outcome"?`},
		{"approval.respond", `{"ſessionId":"s","id":"r","outcome":"rejected"}`, `did you mean "sessionId"?`},
		{"session.create", `{"cwd":"/","polciy":{"mode":"deny"}}`, `params: unknown field "polciy"`},
		{"session.create", `{"cwd":"/","policy":{"Mode":"deny"}}`, `params.policy: unknown field "Mode"; did you mean "mode"?`},
		{"session.create", `{"cwd":"/","policy":{"rules":[{"tool":"a","decision":"deny"},{"tool":"a","decision":"deny","Input":{}}]}}`, `params.policy.rules[1]: unknown field "Input"`},
		{"session.prompt", `{"sessionId":"s","content":[{"type":"text","Text":"x"}]}`, `params.content[0]: unknown field "Text"`},
		{"question.respond", `{"sessionId":"s","id":"r","answers":[{"id":"q","label":"x"}]}`, `params.answers[0]: unknown field "label"`},
		{"host.describe", `{"x":1}`, `params: unknown field "x"`},
		{"host.describe", `{"` + strings.Repeat("x", 1000) + `":1}`, strings.Repeat("x", 64) + `"…`},
		// Types.
		{"session.get", `{"sessionId":1}`, `params.sessionId: expected a string, got a number`},
		{"session.get", `{"sessionId":null}`, `params.sessionId: expected a string, got null`},
		{"session.get", `{"sessionId":"s","view":1}`, `params.view: expected a boolean, got a number`},
		{"session.get", `{"sessionId":"s","view":null}`, `params.view: expected a boolean, got null`},
		{"session.create", `{"cwd":"/","labels":{"a":1}}`, `params.labels["a"]: expected a string, got a number`},
		{"session.create", `{"cwd":"/","labels":[]}`, `params.labels: expected an object, got an array`},
		{"session.create", `{"cwd":"/","policy":"deny"}`, `params.policy: expected an object, got a string`},
		{"session.create", `{"cwd":"/","policy":{"rules":null}}`, `params.policy.rules: expected an array, got null`},
		{"session.prompt", `{"sessionId":"s","content":"hi"}`, `params.content: expected an array, got a string`},
		{"session.configure", `{"sessionId":"s","options":"fast"}`, `params.options: expected an object, got a string`},
		{"mux.subscribe", `{"sessions":[{"sessionId":"s"},{"sessionId":"t","since":"1"}]}`, `params.sessions[1].since: expected an integer, got a string`},
		{"session.get", `{"sessionId":"\ud800"}`, `params.sessionId: the string holds half a surrogate pair`},
		// Integers.
		{"mux.subscribe", `{"sessions":[{"sessionId":"s","since":-1}]}`, `since: expected an integer from 0 to 2^53-1, got -1`},
		{"mux.subscribe", `{"sessions":[{"sessionId":"s","since":1.5}]}`, `since: expected an integer from 0 to 2^53-1, got 1.5`},
		{"mux.subscribe", `{"sessions":[{"sessionId":"s","since":9007199254740992}]}`, `since: expected an integer from 0 to 2^53-1`},
		{"sessions.list", `{"limit":1e2}`, `params.limit: expected an integer between -2^53 and 2^53, got 1e2`},
		{"session.create", `{"cwd":"/","budget":{"tokens":9007199254740992}}`, `params.budget.tokens: expected an integer between`},
		// Missing.
		{"session.get", `{}`, `params.sessionId: is required`},
		{"session.get", `{"sessionId":""}`, `params.sessionId: must not be empty`},
		{"session.create", `{}`, `params.cwd: is required`},
		{"session.create", `{"cwd":"/","policy":{"rules":[{"tool":"a"}]}}`, `params.policy.rules[0].decision: is required`},
		{"session.create", `{"cwd":"/","policy":{"rules":[{"decision":"deny"}]}}`, `params.policy.rules[0].tool: is required`},
		{"session.prompt", `{"sessionId":"s"}`, `params.content: is required`},
		{"session.prompt", `{"sessionId":"s","content":[{"text":"x"}]}`, `params.content[0].type: is required`},
		{"session.prompt", `{"sessionId":"s","content":[{"type":"text","text":""},{"type":"text"}]}`, `params.content[1].text: is required in a block of type "text"; it may be empty`},
		{"question.respond", `{"sessionId":"s","id":"r","answers":[{}]}`, `params.answers[0].id: is required`},
		{"approval.respond", `{"sessionId":"s","id":"r"}`, `params.outcome: is required`},
		{"blob.read", `{}`, `params.blob: is required`},
		// Words and ranges.
		{"approval.respond", `{"sessionId":"s","id":"r","outcome":"allowed"}`, `params.outcome: expected one of "allowed-once", "allowed-always", "rejected", got "allowed"`},
		{"approval.respond", `{"sessionId":"s","id":"r","outcome":"cancelled"}`, `params.outcome: expected one of`},
		{"approval.respond", `{"sessionId":"s","id":"r","outcome":"rejected","grant":{}}`, `params.grant: only with the outcome "allowed-always"`},
		{"approval.respond", `{"sessionId":"s","id":"r","outcome":"allowed-always","grant":{"scope":"world"}}`, `params.grant.scope: expected one of "session", "project"`},
		{"approval.respond", `{"sessionId":"s","id":"r","outcome":"allowed-always","grant":{"forMs":-1}}`, `params.grant.forMs: expected 1 to`},
		{"approval.respond", `{"sessionId":"s","id":"r","outcome":"allowed-always","grant":{"forMs":0}}`, `params.grant.forMs: expected 1 to`},
		{"approval.respond", `{"sessionId":"s","id":"r","outcome":"allowed-once","inputHash":""}`, `params.inputHash: expected 64 hex digits`},
		{"question.respond", `{"sessionId":"s","id":"r"}`, `either "answers", at least one, or "cancel"`},
		{"question.respond", `{"sessionId":"s","id":"r","cancel":true,"answers":[{"id":"q"}]}`, `either "answers"`},
		{"session.prompt", `{"sessionId":"s","content":[]}`, `params.content: at least one block`},
		{"session.prompt", `{"sessionId":"s","content":[{"type":"video"}]}`, `params.content[0].type: expected one of "text", "image", "resource", "resource_link", got "video"`},
		{"session.prompt", `{"sessionId":"s","content":[{"type":"image"}]}`, `params.content[0]: an image needs`},
		{"session.prompt", `{"sessionId":"s","content":[{"type":"image","data":"!!"}]}`, `params.content[0].data: expected standard base64`},
		{"session.prompt", `{"sessionId":"s","content":[{"type":"resource_link"}]}`, `params.content[0]: a resource_link needs "uri"`},
		{"session.prompt", `{"sessionId":"s","content":[{"type":"text","text":"x"}],"mode":"now"}`, `params.mode: expected one of "queue", "steer", "inject"`},
		{"session.create", `{"cwd":"/","policy":{"mode":"allow"}}`, `params.policy.mode: expected one of "ask", "deny"`},
		{"session.create", `{"cwd":"/","policy":{"rules":[{"tool":"a","decision":"maybe"}]}}`, `params.policy.rules[0].decision: expected one of`},
		{"session.create", `{"cwd":"/","policy":{"askTimeoutMs":-5}}`, `params.policy.askTimeoutMs: expected 0 to`},
		{"session.create", `{"cwd":"/","budget":{"cost":"1,5"}}`, `params.budget.cost: expected a decimal number`},
		{"session.configure", `{"sessionId":"s","budget":{"action":"stop"}}`, `params.budget.action: expected one of "block", "warn"`},
		{"session.history", `{"sessionId":"s","after":1,"before":2}`, `"after" and "before" exclude each other`},
		{"session.history", `{"sessionId":"s","limit":1001}`, `params.limit: expected 0 to 1000, got 1001`},
		{"session.history", `{"sessionId":"s","maxBytes":196609}`, `params.maxBytes: expected 0 to 196608`},
		{"sessions.list", `{"limit":501}`, `params.limit: expected 0 to 500, got 501`},
		{"sessions.list", `{"limit":-1}`, `params.limit: expected 0 to 500, got -1`},
		{"sessions.list", `{"state":"dead"}`, `params.state: expected one of "idle", "running", "requires-action"`},
		{"blob.read", `{"blob":"b","limit":131073}`, `params.limit: expected 0 to 131072`},
		{"blob.read", `{"blob":"b","offset":-1}`, `params.offset: expected 0 to`},
		{"mux.subscribe", `{}`, `nothing to subscribe`},
		{"mux.subscribe", `{"sessions":[{"sessionId":"s"},{"sessionId":"s","since":3}]}`, `params.sessions[1]: the session is named twice`},
		{"mux.subscribe", `{"host":true,"delivery":{"reasoning":"on"}}`, `params.delivery.reasoning: expected one of "stream", "final", "off"`},
		{"mux.subscribe", `{"host":true,"delivery":{"text":"off"}}`, `params.delivery.text: expected one of "stream", "final"`},
		{"mux.unsubscribe", `{}`, `nothing to unsubscribe`},
	} {
		a := p.ask(t, call(1, row.method, row.params))
		if a.code() != rpc.CodeInvalidParams || !strings.Contains(a.Error.Message, row.want) {
			t.Errorf("%s %s\n got %+v\nwant -32602 …%s", row.method, row.params, a.Error, row.want)
		}
	}
	if got := api.ran(); len(got) != 0 {
		t.Errorf("with bad params ran %v", got)
	}
}

// What params mean arrives: absent and null pointers, escapes, raw values as sent.
func TestParamsArriveAsSent(t *testing.T) {
	var got any
	api := &fakeAPI{}
	api.on = func(_ context.Context, _ string, params any, _ func()) error { got = params; return nil }
	p, _ := serve(t, api, rpc.Options{})
	for _, row := range []struct{ method, params, want string }{
		{
			"session.create", `{"cwd":"/a\u002fb","config":{"b":1.50,"a":"\u003c"},"policy":null}`,
			`{"cwd":"/a/b","config":{"b":1.50,"a":"\u003c"}}`,
		},
		{"session.cancel", `{"sessionId":"s","tree":false}`, `{"sessionId":"s","tree":false}`},
		{"session.cancel", `{"sessionId":"s","tree":null}`, `{"sessionId":"s"}`},
		{"session.history", `{"sessionId":"s","after":0}`, `{"sessionId":"s","after":0}`},
		{"session.configure", `{"sessionId":"s","labels":{"k":"v"},"options":{"a":[1]}}`, `{"sessionId":"s","labels":{"k":"v"},"options":{"a":[1]}}`},
		{
			"session.create", `{"cwd":"/","policy":{"mode":"deny","rules":[{"tool":"t","input":null,"decision":"deny"}]}}`,
			`{"cwd":"/","policy":{"mode":"deny","rules":[{"tool":"t","input":null,"decision":"deny"}]}}`,
		},
	} {
		if a := p.ask(t, call(1, row.method, row.params)); a.Error != nil {
			t.Errorf("%s %s: %+v", row.method, row.params, a.Error)
			continue
		}
		if s := compact(t, got); s != row.want {
			t.Errorf("%s %s: arrived %s, want %s", row.method, row.params, s, row.want)
		}
	}
}

// Message and id never make an answer that is not one line of JSON.
func TestPeersWordsAreCutInAnswers(t *testing.T) {
	p, _ := serve(t, &fakeAPI{}, rpc.Options{})
	for _, name := range []string{strings.Repeat("é", 5000), "a\n\x1b[31m", `"quotes"`} {
		n := len(p.sent())
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%s}`, mustJSON(t, name)))
		got := p.wait(t, n+1)[n]
		if parse(t, got).code() != rpc.CodeMethodNotFound || len(got) > 500 || strings.ContainsAny(got, "\n\x1b") {
			t.Errorf("method %.20q: answered %d bytes: %.200q", name, len(got), got)
		}
	}
}
