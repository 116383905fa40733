package rpc_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/rpc"
)

// raw is a row of the guard's table: a message and its one answer. ok is a result;
// every other code must leave the method unrun.
type raw struct {
	name string
	msg  string
	code int64
	id   string // of the answer; "" means null
}

const okParams = `"params":{"sessionId":"s"}`

var guardRows = []raw{
	// Not JSON.
	{"empty message", "", rpc.CodeParse, ""},
	{"blank message", " \n\t", rpc.CodeParse, ""},
	{"byte order mark", "\ufeff" + call(1, "session.get", `{"sessionId":"s"}`), rpc.CodeParse, ""},
	{"trailing garbage", call(1, "session.get", `{"sessionId":"s"}`) + "x", rpc.CodeParse, ""},
	{"two objects", call(1, "host.describe", "") + call(2, "host.describe", ""), rpc.CodeParse, ""},
	{"broken object", `{"jsonrpc":"2.0","id":1,"method":"session.close",`, rpc.CodeParse, ""},
	{"broken value", `{"jsonrpc":"2.0","id":1,"method":"session.close","params":{"sessionId":s}}`, rpc.CodeParse, ""},
	{"single quotes", `{'jsonrpc':'2.0'}`, rpc.CodeParse, ""},
	{"comment", `{"jsonrpc":"2.0",/**/"id":1}`, rpc.CodeParse, ""},
	{"trailing comma", `{"jsonrpc":"2.0","id":1,"method":"host.describe",}`, rpc.CodeParse, ""},
	{"bad escape", `{"jsonrpc":"2.0","id":"\x","method":"host.describe"}`, rpc.CodeParse, ""},
	{"control character", "{\"jsonrpc\":\"2.0\",\"id\":\"a\nb\",\"method\":\"host.describe\"}", rpc.CodeParse, ""},
	{"leading zero", `{"jsonrpc":"2.0","id":01,"method":"host.describe"}`, rpc.CodeParse, ""},
	{"plus sign", `{"jsonrpc":"2.0","id":+1,"method":"host.describe"}`, rpc.CodeParse, ""},
	{"NaN", `{"jsonrpc":"2.0","id":NaN,"method":"host.describe"}`, rpc.CodeParse, ""},
	{"HTTP", "GET / HTTP/1.1\r\n", rpc.CodeParse, ""},
	{"broken batch", `[{"jsonrpc":"2.0","method":"host.describe","id":1},{"jsonrpc":"2.0","method"]`, rpc.CodeParse, ""},
	// JSON, but no request.
	{"batch", "[" + call(1, "host.describe", "") + "]", rpc.CodeInvalidRequest, ""},
	{"batch after space", "  [" + call(1, "host.describe", "") + "]", rpc.CodeInvalidRequest, ""},
	{"batch of notifications", `[{"jsonrpc":"2.0","method":"host.describe"}]`, rpc.CodeInvalidRequest, ""},
	{"mixed batch", `[1,` + call(1, "host.describe", "") + `]`, rpc.CodeInvalidRequest, ""},
	{"empty batch", `[]`, rpc.CodeInvalidRequest, ""},
	{"batch of a number", `[1]`, rpc.CodeInvalidRequest, ""},
	{"null", `null`, rpc.CodeInvalidRequest, ""},
	{"number", `17`, rpc.CodeInvalidRequest, ""},
	{"string", `"host.describe"`, rpc.CodeInvalidRequest, ""},
	{"boolean", `true`, rpc.CodeInvalidRequest, ""},
	{"empty object", `{}`, rpc.CodeInvalidRequest, ""},
	{"method missing", `{"jsonrpc":"2.0","id":1}`, rpc.CodeInvalidRequest, ""},
	{"method a number", `{"jsonrpc":"2.0","id":1,"method":1}`, rpc.CodeInvalidRequest, ""},
	{"method null", `{"jsonrpc":"2.0","id":1,"method":null}`, rpc.CodeInvalidRequest, ""},
	{"Method in another case", `{"jsonrpc":"2.0","id":1,"Method":"host.describe"}`, rpc.CodeInvalidRequest, ""},
	{"method in two cases", `{"jsonrpc":"2.0","id":1,"method":"host.describe","METHOD":"session.close"}`, rpc.CodeInvalidRequest, ""},
	{"method twice", `{"jsonrpc":"2.0","id":1,"method":"host.describe","method":"session.close"}`, rpc.CodeInvalidRequest, ""},
	{"method twice, escaped", `{"jsonrpc":"2.0","id":1,"method":"host.describe","m\u0065thod":"session.close"}`, rpc.CodeInvalidRequest, ""},
	{"version missing", `{"id":1,"method":"host.describe"}`, rpc.CodeInvalidRequest, ""},
	{"version 1.0", `{"jsonrpc":"1.0","id":1,"method":"host.describe"}`, rpc.CodeInvalidRequest, ""},
	{"version a number", `{"jsonrpc":2.0,"id":1,"method":"host.describe"}`, rpc.CodeInvalidRequest, ""},
	{"version null", `{"jsonrpc":null,"id":1,"method":"host.describe"}`, rpc.CodeInvalidRequest, ""},
	{"request with result", `{"jsonrpc":"2.0","id":1,"method":"host.describe","result":1}`, rpc.CodeInvalidRequest, ""},
	{"request with null result", `{"jsonrpc":"2.0","id":1,"method":"host.describe","result":null}`, rpc.CodeInvalidRequest, ""},
	{"request with null error", `{"jsonrpc":"2.0","id":1,"method":"host.describe","error":null}`, rpc.CodeInvalidRequest, ""},
	{"extra member", `{"jsonrpc":"2.0","id":1,"method":"host.describe","meta":{}}`, rpc.CodeInvalidRequest, ""},
	{"response", `{"jsonrpc":"2.0","id":1,"result":{}}`, rpc.CodeInvalidRequest, ""},
	{"error response", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}`, rpc.CodeInvalidRequest, ""},
	{"response with id null", `{"jsonrpc":"2.0","id":null,"result":{}}`, rpc.CodeInvalidRequest, ""},
	{"notification", `{"jsonrpc":"2.0","method":"session.close","params":{"sessionId":"s"}}`, rpc.CodeInvalidRequest, ""},
	{"id in another case", `{"jsonrpc":"2.0","ID":1,"method":"host.describe"}`, rpc.CodeInvalidRequest, ""},
	{"Params in another case", `{"jsonrpc":"2.0","id":1,"method":"session.close","Params":{"sessionId":"s"}}`, rpc.CodeInvalidRequest, ""},
	{"params with a long s", `{"jsonrpc":"2.0","id":1,"method":"session.close","param\u017f":{"sessionId":"s"}}`, rpc.CodeInvalidRequest, ""},
	{"key with a zero byte", `{"jsonrpc":"2.0","id":1,"method\u0000":"session.close"}`, rpc.CodeInvalidRequest, ""},
	{"duplicate key in params", `{"jsonrpc":"2.0","id":1,"method":"session.get","params":{"sessionId":"a","sessionId":"b"}}`, rpc.CodeInvalidRequest, ""},
	{"duplicate key deep down", `{"jsonrpc":"2.0","id":1,"method":"session.create","params":{"cwd":"/","config":{"a":{"b":1,"b":2}}}}`, rpc.CodeInvalidRequest, ""},
	{"id twice", `{"jsonrpc":"2.0","id":1,"id":2,"method":"host.describe"}`, rpc.CodeInvalidRequest, ""},
	{"nesting of 65", `{"jsonrpc":"2.0","id":1,"method":"session.create","params":{"cwd":"/","config":` + nested(63) + `}}`, rpc.CodeInvalidRequest, ""},
	{"nesting of 20000", `{"jsonrpc":"2.0","id":1,"method":"session.create","params":` + nested(20000) + `}`, rpc.CodeInvalidRequest, ""},
	{"too many tokens", `{"jsonrpc":"2.0","id":1,"method":"session.create","params":[` + strings.Repeat("0,", 100_000) + `0]}`, rpc.CodeInvalidRequest, ""},
	// Ids.
	{"id 0", withID(`0`), 0, `0`},
	{"id empty string", withID(`""`), 0, `""`},
	{"id 2^53-1", withID(`9007199254740991`), 0, `9007199254740991`},
	{"id 2^53", withID(`9007199254740992`), rpc.CodeInvalidRequest, ""},
	{"id 2^53+1", withID(`9007199254740993`), rpc.CodeInvalidRequest, ""},
	{"id 2^63-1", withID(`9223372036854775807`), rpc.CodeInvalidRequest, ""},
	{"id 2^63", withID(`9223372036854775808`), rpc.CodeInvalidRequest, ""},
	{"id of 30 digits", withID(strings.Repeat("9", 30)), rpc.CodeInvalidRequest, ""},
	{"id -1", withID(`-1`), rpc.CodeInvalidRequest, ""},
	{"id -0", withID(`-0`), rpc.CodeInvalidRequest, ""},
	{"id 1.5", withID(`1.5`), rpc.CodeInvalidRequest, ""},
	{"id 1.0", withID(`1.0`), rpc.CodeInvalidRequest, ""},
	{"id 1e3", withID(`1e3`), rpc.CodeInvalidRequest, ""},
	{"id null", withID(`null`), rpc.CodeInvalidRequest, ""},
	{"id true", withID(`true`), rpc.CodeInvalidRequest, ""},
	{"id an object", withID(`{}`), rpc.CodeInvalidRequest, ""},
	{"id an array", withID(`[1]`), rpc.CodeInvalidRequest, ""},
	{"id of 128 bytes", withID(`"` + strings.Repeat("x", 128) + `"`), 0, `"` + strings.Repeat("x", 128) + `"`},
	{"id of 129 bytes", withID(`"` + strings.Repeat("x", 129) + `"`), rpc.CodeInvalidRequest, ""},
	{"id of 100 KB", withID(`"` + strings.Repeat("x", 100_000) + `"`), rpc.CodeInvalidRequest, ""},
	{"id half a surrogate pair", withID(`"\ud800"`), rpc.CodeInvalidRequest, ""},
	{"id with escapes", withID(`"a\u0022<\ud83d\ude00"`), 0, `"a\u0022<\ud83d\ude00"`},
	// Methods and params.
	{"unknown method", call(1, "session.explode", "{}"), rpc.CodeMethodNotFound, "1"},
	{"empty method", call(1, "", "{}"), rpc.CodeMethodNotFound, "1"},
	{"method in another case", call(1, "Session.Get", "{}"), rpc.CodeMethodNotFound, "1"},
	{"library's own method", call(1, "rpc.ping", "{}"), rpc.CodeMethodNotFound, "1"},
	{"method with an escape", `{"jsonrpc":"2.0","id":1,"method":"session\u002eget",` + okParams + `}`, 0, "1"},
	{"member with an escape", `{"jsonrpc":"2.0","id":1,"m\u0065thod":"session.get",` + okParams + `}`, 0, "1"},
	{"params a string", call(1, "session.get", `"s"`), rpc.CodeInvalidParams, "1"},
	{"params a number", call(1, "session.get", `1`), rpc.CodeInvalidParams, "1"},
	{"params null", call(1, "host.describe", `null`), rpc.CodeInvalidParams, "1"},
	{"params an array", call(1, "session.get", `["s"]`), rpc.CodeInvalidParams, "1"},
	{"params absent", call(1, "host.describe", ""), 0, "1"},
	{"params absent but needed", call(1, "session.get", ""), rpc.CodeInvalidParams, "1"},
	{"white space everywhere", " {\n\t\"jsonrpc\" : \"2.0\" , \"id\" : 1 , \"method\" : \"session.get\" , \"params\" : { \"sessionId\" : \"s\" } } \r\n", 0, "1"},
	{"members in another order", `{"params":{"sessionId":"s"},"method":"session.get","id":1,"jsonrpc":"2.0"}`, 0, "1"},
}

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func withID(id string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"session.get",` + okParams + `}`
}

// Every kind of bad message gets the answer that the contract gives it, and
// nothing runs; after all of them the connection still works.
func TestBadMessagesAreAnsweredAndTheConnectionGoesOn(t *testing.T) {
	api := &fakeAPI{}
	p, _ := serve(t, api, rpc.Options{ErrorBudget: 1000})
	good := 0
	for _, row := range guardRows {
		a := p.ask(t, row.msg)
		id := row.id
		if id == "" {
			id = "null"
		}
		if a.code() != row.code || string(a.ID) != id {
			t.Errorf("%s: got code %d id %s, want %d id %s", row.name, a.code(), a.ID, row.code, id)
		}
		if row.code == 0 {
			good++
		}
		if got := len(api.ran()); got != good {
			t.Fatalf("%s: %d methods ran, want %d", row.name, got, good)
		}
	}
	if a := p.ask(t, call("end", "host.describe", "")); a.Error != nil {
		t.Errorf("after %d bad messages the connection answers %+v", len(guardRows), a.Error)
	}
}

// The examples of the JSON-RPC 2.0 specification, as this host answers them: by
// object only, with named params only.
func TestExamplesOfTheSpecification(t *testing.T) {
	p, _ := serve(t, &fakeAPI{}, rpc.Options{})
	for _, row := range []struct{ msg, want string }{
		{`{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}`, `"id":1,"error":{"code":-32601`},
		{`{"jsonrpc": "2.0", "method": "session.get", "params": ["s"], "id": 2}`, `"id":2,"error":{"code":-32602`},
		{`{"jsonrpc": "2.0", "method": "session.cancel", "params": {"sessionId": "s"}, "id": 3}`, `"id":3,"result":{"cancelled":true}`},
		{`{"jsonrpc": "2.0", "method": "session.cancel", "params": {"tree": true, "sessionId": "s"}, "id": 4}`, `"id":4,"result":{"cancelled":true}`},
		{`{"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]}`, `"id":null,"error":{"code":-32600`},
		{`{"jsonrpc": "2.0", "method": "foobar"}`, `"id":null,"error":{"code":-32600`},
		{`{"jsonrpc": "2.0", "method": "foobar", "id": "1"}`, `"id":"1","error":{"code":-32601`},
		{`{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]`, `"id":null,"error":{"code":-32700`},
		{`{"jsonrpc": "2.0", "method": 1, "params": "bar"}`, `"id":null,"error":{"code":-32600`},
		{`[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},{"jsonrpc": "2.0", "method"]`, `"id":null,"error":{"code":-32700`},
		{`[]`, `"id":null,"error":{"code":-32600`},
		{`[1,2,3]`, `"id":null,"error":{"code":-32600`},
	} {
		n := len(p.sent())
		p.send(row.msg)
		got := p.wait(t, n+1)[n]
		if want := `{"jsonrpc":"2.0",` + row.want; !strings.HasPrefix(got, want) {
			t.Errorf("%s\n got %s\nwant %s…", row.msg, got, want)
		}
	}
}

// A call whose id is in flight is refused and does not run; once answered, the id
// may be used again.
func TestIDInFlightIsRefused(t *testing.T) {
	for _, ids := range [][2]string{{`7`, `7`}, {`"a"`, `"\u0061"`}} {
		hold := make(chan struct{})
		api := &fakeAPI{}
		p, _ := serve(t, api, rpc.Options{})
		api.on = holdFirst(hold)
		first := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"session.close",%s}`, ids[0], okParams)
		second := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"session.delete",%s}`, ids[1], okParams)
		p.send(first, second)
		a := parse(t, p.wait(t, 1)[0])
		if a.code() != rpc.CodeInvalidRequest || string(a.ID) != "null" {
			t.Errorf("ids %v: got %d id %s, want -32600 id null", ids, a.code(), a.ID)
		}
		close(hold)
		if a := parse(t, p.wait(t, 2)[1]); a.Error != nil || string(a.ID) != ids[0] {
			t.Errorf("ids %v: the first call got %+v id %s, want a result", ids, a.Error, a.ID)
		}
		if a := p.ask(t, second); a.Error != nil || string(a.ID) != ids[1] {
			t.Errorf("ids %v: used again after the answer: %+v id %s, want a result", ids, a.Error, a.ID)
		}
		if got := api.ran(); len(got) != 2 {
			t.Errorf("ids %v: ran %v, want two calls", ids, got)
		}
	}
}

// Faults of the client are counted: the hundredth within ten seconds closes the
// connection with 4029, after its answer.
func TestErrorBudgetClosesWith4029(t *testing.T) {
	for _, msg := range []string{"", "[]", call(1, "nope", ""), call(1, "session.get", "{}")} {
		p, stop := serve(t, &fakeAPI{}, rpc.Options{})
		for range 99 {
			p.ask(t, msg)
		}
		if code := p.closeCode(); code != 0 {
			t.Fatalf("%q: closed with %d after 99 errors", msg, code)
		}
		p.ask(t, msg)
		if err := stop(); err != rpc.ErrTooManyErrors || p.closeCode() != rpc.CloseTooManyErrors {
			t.Errorf("%q: after 100 errors Serve = %v, close code %d; want ErrTooManyErrors, 4029", msg, err, p.closeCode())
		}
	}
}
