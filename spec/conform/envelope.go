package conform

import (
	"fmt"
	"strings"
)

// badMessage is a message that is no proper call.
type badMessage struct{ name, text string }

// notJSON are texts that are not JSON: -32700.
func notJSON() []badMessage {
	return []badMessage{
		{"empty", ``},
		{"blank", ` `},
		{"open-object", `{`},
		{"open-array", `[`},
		{"word", `nope`},
		{"open-string", `{"jsonrpc":"2.0`},
		{"trailing-text", `{"jsonrpc":"2.0","id":1,"method":"host.describe"} x`},
		{"two-objects", `{"jsonrpc":"2.0","id":1,"method":"host.describe"}{"jsonrpc":"2.0","id":2,"method":"host.describe"}`},
		{"trailing-comma", `{"jsonrpc":"2.0","id":1,"method":"host.describe",}`},
		{"single-quotes", `{'jsonrpc':'2.0'}`},
		{"comment", `{/**/"jsonrpc":"2.0","id":1,"method":"host.describe"}`},
		{"leading-zero", `{"jsonrpc":"2.0","id":01,"method":"host.describe"}`},
		{"plus", `{"jsonrpc":"2.0","id":+1,"method":"host.describe"}`},
		{"nan", `{"jsonrpc":"2.0","id":1,"method":"host.describe","params":{"a":NaN}}`},
		{"newline-in-string", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"host.\ndescribe\"}"},
		{"bad-escape", `{"jsonrpc":"2.0","id":1,"method":"host\.describe"}`},
		{"unquoted-key", `{jsonrpc:"2.0","id":1,"method":"host.describe"}`},
		{"bom", "\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"host.describe"}`},
	}
}

// notRequests are JSON texts that are no proper call: -32600.
func notRequests() []badMessage {
	call := func(members string) string { return `{"jsonrpc":"2.0","method":"host.describe",` + members + `}` }
	return []badMessage{
		{"batch", `[{"jsonrpc":"2.0","id":1,"method":"host.describe"}]`},
		{"batch-empty", `[]`},
		{"batch-numbers", `[1,2]`},
		{"null", `null`},
		{"number", `7`},
		{"string", `"host.describe"`},
		{"true", `true`},
		{"empty-object", `{}`},
		{"id-missing", `{"jsonrpc":"2.0","method":"host.describe"}`},
		{"id-null", call(`"id":null`)},
		{"id-fraction", call(`"id":1.5`)},
		{"id-negative", call(`"id":-1`)},
		{"id-too-large", call(`"id":9007199254740992`)},
		{"id-true", call(`"id":true`)},
		{"id-object", call(`"id":{}`)},
		{"id-array", call(`"id":[1]`)},
		{"version-missing", `{"id":1,"method":"host.describe"}`},
		{"version-1", `{"jsonrpc":"1.0","id":1,"method":"host.describe"}`},
		{"version-number", `{"jsonrpc":2.0,"id":1,"method":"host.describe"}`},
		{"version-null", `{"jsonrpc":null,"id":1,"method":"host.describe"}`},
		{"method-missing", `{"jsonrpc":"2.0","id":1}`},
		{"method-number", `{"jsonrpc":"2.0","id":1,"method":1}`},
		{"method-null", `{"jsonrpc":"2.0","id":1,"method":null}`},
		{"case-id", `{"jsonrpc":"2.0","ID":1,"method":"host.describe"}`},
		{"case-method", `{"jsonrpc":"2.0","id":1,"Method":"host.describe"}`},
		{"case-version", `{"JSONRPC":"2.0","id":1,"method":"host.describe"}`},
		{"case-params", call(`"id":1,"Params":{}`)},
		{"case-twice", call(`"id":1,"Id":2`)},
		{"duplicate-id", call(`"id":1,"id":2`)},
		{"duplicate-method", call(`"id":1,"method":"rpc.discover"`)},
		{"duplicate-escaped", call(`"id":1,"\u0069d":2`)},
		{"duplicate-params", call(`"id":1,"params":{},"params":{}`)},
		{"duplicate-in-params", call(`"id":1,"params":{"a":1,"a":2}`)},
		{"duplicate-deep", call(`"id":1,"params":{"a":[{"b":{"c":[0,{"d":1,"d":2}]}}]}`)},
		{"nesting-65", nested(65)},
		{"nesting-1000", nested(1000)},
	}
}

// nested is a call whose JSON is so many levels deep.
func nested(levels int) string {
	return `{"jsonrpc":"2.0","id":1,"method":"host.describe","params":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
}

func envelopeChecks() []Check {
	var checks []Check
	for _, m := range notJSON() {
		checks = append(checks, Check{
			ID: "parse-" + m.name, Section: "2", Says: "What is not JSON, also an empty message, gets -32700 with id null, and the connection stays open.",
			run: func(t *T) { t.badEnvelope(m.text, -32700) },
		})
	}
	for _, m := range notRequests() {
		checks = append(checks, Check{
			ID: "invalid-" + m.name, Section: "2", Says: "Any other bad envelope gets -32600 with id null, and the connection stays open.",
			run: func(t *T) { t.badEnvelope(m.text, -32600) },
		})
	}
	for _, id := range []string{`0`, `9007199254740991`, `""`, `"a b"`, `"é€😀"`, `"1"`} {
		checks = append(checks, Check{
			ID: "id-" + slug(id) + fmt.Sprint("-", len(id)), Section: "2", Says: "Ids are strings or integers from 0, and come back as they were.",
			run: func(t *T) { t.idEchoed(id) },
		})
	}
	return append(checks,
		Check{ID: "nesting-64", Section: "2", Says: "Nesting of 64 is accepted.", run: func(t *T) { t.good(nested(64), "-32602") }},
		Check{ID: "params-absent", Section: "2", Says: "A call without params is one with none.", run: func(t *T) { t.good(`{"jsonrpc":"2.0","id":1,"method":"host.describe"}`, "ok") }},
		Check{ID: "member-order", Section: "2", Says: "The order of members and the space between them mean nothing.", run: func(t *T) {
			t.good(" {\n\t\"method\" : \"host.describe\" , \"params\" : {} , \"id\" : 1 ,\"jsonrpc\":\"2.0\"}\r\n", "ok")
		}},
		Check{ID: "escaped-names", Section: "2", Says: "Names may be written with escapes.", run: func(t *T) { t.good(`{"jsonrpc":"2.0","\u0069d":1,"m\u0065thod":"host.\u0064escribe"}`, "ok") }},
		Check{ID: "unknown-method", Section: "7", Says: "A method that does not exist gets -32601 with the call's id.", run: func(t *T) { t.good(`{"jsonrpc":"2.0","id":1,"method":"no.such"}`, "-32601") }},
		Check{ID: "empty-method", Section: "7", Says: "A method that does not exist gets -32601.", run: func(t *T) { t.good(`{"jsonrpc":"2.0","id":1,"method":""}`, "-32601") }},
		Check{ID: "method-case", Section: "7", Says: "Method names are exact.", run: func(t *T) { t.good(`{"jsonrpc":"2.0","id":1,"method":"Host.Describe"}`, "-32601") }},
		Check{ID: "method-slash", Section: "1", Says: "Frames use a slash, methods a dot.", run: func(t *T) { t.good(`{"jsonrpc":"2.0","id":1,"method":"host/describe"}`, "-32601") }},
		Check{ID: "params-array", Section: "2", Says: "Params are by name: an array is -32602.", run: func(t *T) { t.good(`{"jsonrpc":"2.0","id":1,"method":"host.describe","params":[]}`, "-32602") }},
		Check{ID: "params-string", Section: "2", Says: "Params that are a string are -32602.", run: func(t *T) { t.good(`{"jsonrpc":"2.0","id":1,"method":"host.describe","params":"x"}`, "-32602") }},
		Check{ID: "runs-nothing", Section: "2, 7", Says: "A refused call changes nothing.", run: runsNothing},
		Check{ID: "many", Section: "2", Says: "Every message gets exactly one answer, in whatever mix of good and bad.", run: manyMessages},
	)
}

// badEnvelope sends a message that must be refused with a null id, and a good one.
func (t *T) badEnvelope(msg string, code int64) {
	p := t.dial()
	p.sendRaw(msg)
	m := p.wait("a response", func(m message) bool { return m.method == "" })
	if m.reply.err == nil || m.reply.err.code != code || m.id != "null" {
		t.fail(fmt.Sprintf("error %d with id null", code), "%s", m.raw)
	}
	t.must(m.reply.err.message != "", "a message that says what was wrong", string(m.raw))
	p.fence()
}

// good sends a proper call with the id 1 and checks how it is answered.
func (t *T) good(msg, kind string) {
	p := t.dial()
	p.next = 1
	p.sendRaw(msg)
	if r := p.response("1"); r.kind() != kind {
		t.fail(kind, "%s", r)
	}
	p.fence()
}

func (t *T) idEchoed(id string) {
	p := t.dial()
	p.sendRaw(`{"jsonrpc":"2.0","id":` + id + `,"method":"host.describe"}`)
	m := p.wait("a response", func(m message) bool { return m.method == "" })
	var got, want any
	_ = decode([]byte(m.id), &got)
	_ = decode([]byte(id), &want)
	t.must(m.reply.err == nil && same(got, want), "a result with the id "+id, string(m.raw))
}

func runsNothing(t *T) {
	p := t.dial()
	title := unique()
	params := text(t.create(echoes).with(obj{"title": title}))
	p.sendRaw(`{"jsonrpc":"2.0","id":1,"id":2,"method":"session.create","params":` + params + `}`)
	p.sendRaw(`{"jsonrpc":"2.0","id":3,"method":"session.create","params":` + strings.TrimSuffix(params, "}") + `,"title":"x"}}`)
	p.next = 10
	res := p.ok("sessions.list", obj{"text": title})
	t.must(len(res.list("sessions")) == 0, "no session", res)
}

func manyMessages(t *T) {
	p := t.dial()
	const n = 60
	var calls []string
	for i := range n {
		if i%3 == 0 {
			p.sendRaw(`[`)
			continue
		}
		calls = append(calls, p.send("host.describe", obj{}))
	}
	for _, id := range calls {
		p.response(id)
	}
	for range n / 3 {
		p.wait("a response with id null", func(m message) bool { return m.id == "null" })
	}
	p.fence()
	t.equal("answers", len(p.since(0)), n+1)
}
