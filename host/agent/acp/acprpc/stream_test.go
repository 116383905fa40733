package acprpc_test

import (
	"encoding/json"
	"testing"

	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

// Whatever a line holds, it is shown to the connection as one well-formed message, or
// not at all and with a reason.
func FuzzLine(f *testing.F) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":0,"method":"m","params":{"a":1}}`, `{"id":-1.5,"method":"m"}`, `{"id":null,"method":"m"}`,
		`{"id":1,"result":null,"error":null}`, `{"id":"2","error":"text"}`, `{"id":1,"error":{"code":"x","data":[]}}`,
		`{"id":true,"result":1}`, `[]`, `{}`, `null`, ` `, "{\"method\":\"\xff\"}", `{"id":1e3,"result":1}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		shown, method, why := acprpc.DecodeLine(line)
		if shown != nil && why != "" {
			t.Errorf("%q is shown as %s, and refused: %s", line, shown, why)
		}
		if shown == nil {
			return
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal(shown, &m); err != nil {
			t.Fatalf("%q is shown as %s: %v", line, shown, err)
		}
		_, answers := m["id"]
		if answers == (method != "") {
			t.Errorf("%q is shown as %s with the method %q; want a call or an answer", line, shown, method)
		}
	})
}
