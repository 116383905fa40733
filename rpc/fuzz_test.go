package rpc_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/muxhost/muxhost/rpc"
)

// Whatever bytes come, a message gets exactly one answer, which is one JSON-RPC
// response, and a method runs only for a result or an error under a given id.
func FuzzGuard(f *testing.F) {
	for _, row := range guardRows {
		if len(row.msg) < 1000 {
			f.Add([]byte(row.msg))
		}
	}
	for name, params := range goodParams {
		f.Add([]byte(call(1, name, params)))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		api := &fakeAPI{}
		out := rpc.Once(t.Context(), bytes.Clone(msg), api, rpc.Options{Scopes: []rpc.Scope{rpc.ScopeAdmin}})
		a := parse(t, string(out))
		ran := api.ran()
		if len(ran) > 1 || len(ran) == 1 && a.Error != nil || len(ran) == 0 && a.Error == nil {
			t.Errorf("%q ran %v and was answered %s", msg, ran, out)
		}
		if a.Error == nil && (!json.Valid(msg) || !isCall(msg, ran[0])) {
			t.Errorf("%q is no call of %v, but was answered %s", msg, ran, out)
		}
		if a.code() == rpc.CodeParse && json.Valid(msg) {
			t.Errorf("%q is JSON, but was answered %s", msg, out)
		}
	})
}

// isCall reports whether msg says in exactly these names that method is called.
func isCall(msg []byte, method string) bool {
	var m map[string]json.RawMessage
	if json.Unmarshal(msg, &m) != nil || len(m) > 4 {
		return false
	}
	var got, version string
	return json.Unmarshal(m["method"], &got) == nil && got == method &&
		json.Unmarshal(m["jsonrpc"], &version) == nil && version == "2.0" && m["id"] != nil
}

// What the strict decoder accepts, encoding/json accepts without unknown fields,
// and both read the same.
func FuzzDecodeParams(f *testing.F) {
	for _, params := range goodParams {
		f.Add([]byte(params))
	}
	f.Add([]byte(`{"sessionId":"s","after":null,"limit":-0,"id":"a","outcome":"rejected","OUTCOME":"x"}`))
	f.Add([]byte(`{"cwd":"/","labels":{"a\u0062":"\ud83d\ude00"},"config": [1 , {"x" : null}] }`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !rpc.Decodable(raw) || bytes.TrimLeft(raw, " \t\r\n")[0] != '{' {
			return
		}
		raw = bytes.TrimSpace(raw)
		agree[rpc.SubscribeParams](t, raw)
		agree[rpc.ListParams](t, raw)
		agree[rpc.CreateParams](t, raw)
		agree[rpc.HistoryParams](t, raw)
		agree[rpc.PromptParams](t, raw)
		agree[rpc.CancelParams](t, raw)
		agree[rpc.ConfigureParams](t, raw)
		agree[rpc.ApprovalParams](t, raw)
		agree[rpc.QuestionParams](t, raw)
	})
}

func agree[P any](t *testing.T, raw []byte) {
	t.Helper()
	got, err := rpc.DecodeFields[P](raw)
	if _, strict := rpc.DecodeParams[P](raw); err != nil && strict == nil {
		t.Errorf("%s: accepted as params but not as fields: %v", raw, err)
	}
	if err != nil {
		return
	}
	var want P
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&want); err != nil {
		t.Errorf("%T accepts %s, encoding/json says %v", got, raw, err)
	} else if !reflect.DeepEqual(got, want) {
		t.Errorf("%T of %s\n got %+v\nwant %+v", got, raw, got, want)
	}
}
