package conform

import (
	"fmt"
	"strings"
)

func paramsChecks() []Check {
	var checks []Check
	for _, m := range contractMethods() {
		row := func(name, says string, run func(*T, method)) {
			checks = append(checks, Check{
				ID: m.name + "-" + name, Section: "1, 2", Says: says,
				run: func(t *T) { run(t, t.method(m.name)) },
			})
		}
		row("unknown", "Unknown keys in params are -32602: silently dropping one would fail open.", unknownKey)
		row("array", "Params that are an array are -32602.", func(t *T, m method) { t.badParams(t.dial(), m, list{}) })
		if len(m.required) > 0 {
			row("missing", "A missing param is -32602.", missingKey)
		}
		if len(m.required)+len(m.optional) > 0 {
			row("type", "A param of the wrong type is -32602.", wrongTypes)
			row("case", "A param whose name differs only in case is -32602.", otherCase)
		}
	}
	return append(checks,
		Check{ID: "nested-policy", Section: "1", Says: "Unknown keys deep in params are -32602 too.", run: nested32602("session.create", "policy", obj{"mode": "deny", "modes": "ask"})},
		Check{ID: "nested-rule", Section: "1", Says: "Unknown keys deep in params are -32602 too.", run: nested32602("session.create", "policy", obj{"rules": list{obj{"tool": "a", "decision": "deny", "when": "always"}}})},
		Check{ID: "nested-budget", Section: "1", Says: "Unknown keys deep in params are -32602 too.", run: nested32602("session.create", "budget", obj{"tokens": 1, "hours": 1})},
		Check{ID: "rule-decision", Section: "5", Says: "A rule decides allow, deny or ask, nothing else.", run: nested32602("session.create", "policy", obj{"rules": list{obj{"tool": "a", "decision": "maybe"}}})},
		Check{ID: "policy-mode", Section: "5", Says: "A policy's mode is ask or deny, nothing else.", run: nested32602("session.create", "policy", obj{"mode": "allow"})},
		Check{ID: "budget-money", Section: "1", Says: "Money is a decimal string.", run: nested32602("session.create", "budget", obj{"cost": 1.5})},
		Check{ID: "nested-delivery", Section: "1", Says: "Unknown keys deep in params are -32602 too.", run: nested32602("mux.subscribe", "delivery", obj{"text": "stream", "images": "off"})},
		Check{ID: "delivery-word", Section: "5", Says: "delivery.text is stream or final, nothing else.", run: nested32602("mux.subscribe", "delivery", obj{"text": "off"})},
		Check{ID: "nested-entry", Section: "1", Says: "Unknown keys deep in params are -32602 too.", run: nested32602("mux.subscribe", "sessions", list{obj{"sessionId": "x", "from": 1}})},
		Check{ID: "nested-grant", Section: "1", Says: "Unknown keys deep in params are -32602 too.", run: nested32602("approval.respond", "grant", obj{"scope": "session", "prefix": true})},
		Check{ID: "nested-block", Section: "1", Says: "Unknown keys deep in params are -32602 too.", run: nested32602("session.prompt", "content", list{obj{"type": "text", "text": "x", "role": "system"}})},
		Check{ID: "block-type", Section: "5", Says: "Content is text, image, resource or resource link.", run: nested32602("session.prompt", "content", list{obj{"type": "video", "text": "x"}})},
		Check{ID: "block-none", Section: "5", Says: "A prompt has content.", run: nested32602("session.prompt", "content", list{})},
		Check{ID: "prompt-mode", Section: "5", Says: "A prompt's mode is queue, steer or inject.", run: nested32602("session.prompt", "mode", "now")},
		Check{ID: "outcome", Section: "5, 6.4", Says: "An answer that does not parse settles nothing: unavailable is no answer.", run: nested32602("approval.respond", "outcome", "unavailable")},
		Check{ID: "history-both", Section: "5", Says: "session.history takes after or before, not both.", run: bothEnds},
		Check{ID: "big-integer", Section: "1", Says: "Every integer stays below 2^53.", run: nested32602("session.history", "after", bigInteger)},
		Check{ID: "fraction", Section: "1", Says: "A seq is an integer.", run: nested32602("session.history", "after", 1.5)},
		Check{ID: "negative", Section: "1", Says: "A seq is not negative.", run: nested32602("session.history", "after", -1)},
	)
}

// bigInteger is 2^53.
const bigInteger = 1 << 53

// method is a method as the server's OpenRPC document describes it.
type method struct {
	name   string
	params []obj
	doc    obj
}

// method finds a method in the document of the server.
func (t *T) method(name string) method {
	if t.r.doc == nil {
		t.fail("an OpenRPC document from rpc.discover", "none")
	}
	for _, m := range t.r.doc.objs("methods") {
		if m.str("name") == name {
			return method{name, m.objs("params"), t.r.doc}
		}
	}
	t.fail("the method "+name+" in the OpenRPC document", "methods without it")
	return method{}
}

// resolve follows references of a schema.
func (m method) resolve(schema obj) obj {
	for range 16 {
		ref, ok := strings.CutPrefix(schema.str("$ref"), "#/")
		if !ok {
			return schema
		}
		schema = m.doc.obj(strings.ReplaceAll(ref, "/", "."))
	}
	return schema
}

// value is a value that a schema allows, by its type alone.
func (m method) value(schema obj) any {
	s := m.resolve(schema)
	if words := s.list("enum"); len(words) > 0 {
		return words[0]
	}
	switch s.str("type") {
	case "integer", "number":
		return max(0, s.num("minimum"))
	case "boolean":
		return false
	case "array":
		if items := s.obj("items"); items != nil {
			return list{m.value(items)}
		}
		return list{}
	case "object":
		out := obj{}
		for _, name := range s.strs("required") {
			out[name] = m.value(s.obj("properties").obj(name))
		}
		return out
	}
	return "x"
}

// wrong are values that a schema does not allow, by their type.
func (m method) wrong(schema obj) []any {
	s := m.resolve(schema)
	switch s.str("type") {
	case "string":
		return []any{7, true, list{}, obj{}}
	case "integer", "number":
		return []any{"7", true, list{}}
	case "boolean":
		return []any{"true", 1}
	case "array":
		return []any{"x", obj{}, 1}
	case "object":
		return []any{"x", list{}, 1}
	}
	return nil
}

// proper are params that have what is required, and change nothing.
func (m method) proper() obj {
	out := obj{}
	for _, p := range m.params {
		if p.flag("required") {
			out[p.str("name")] = m.value(p.obj("schema"))
		}
	}
	for _, row := range contractMethods() {
		for k, v := range row.probe {
			if row.name == m.name && m.param(k) != nil {
				out[k] = v
			}
		}
	}
	return out
}

// badParams makes a call that must be refused with -32602.
func (t *T) badParams(p *peer, m method, params any) {
	if r := p.call(m.name, params); r.kind() != "-32602" {
		t.fail("error -32602", "%s", r)
	}
}

func unknownKey(t *T, m method) {
	p := t.dial()
	if m.name != "tokens.revoke" { // an unknown token has no kind of its own
		r := p.call(m.name, m.proper())
		t.must(r.kind() != "-32602", "anything but -32602 for proper params", r.String())
	}
	for _, key := range []string{"xUnknown", "_meta"} {
		t.badParams(p, m, m.proper().with(obj{key: 1}))
	}
}

func missingKey(t *T, m method) {
	p := t.dial()
	for _, param := range m.params {
		if key := param.str("name"); param.flag("required") {
			t.badParams(p, m, m.proper().without(key))
			t.badParams(p, m, m.proper().with(obj{key: nil}))
		}
	}
}

func wrongTypes(t *T, m method) {
	p := t.dial()
	for _, param := range m.params {
		for _, v := range m.wrong(param.obj("schema")) {
			t.badParams(p, m, m.proper().with(obj{param.str("name"): v}))
		}
	}
}

func otherCase(t *T, m method) {
	p := t.dial()
	for _, param := range m.params {
		name := param.str("name")
		other := strings.ToUpper(name[:1]) + name[1:]
		t.badParams(p, m, m.proper().without(name).with(obj{other: m.value(param.obj("schema"))}))
	}
}

// nested32602 checks one bad value of one param.
func nested32602(name, param string, value any) func(*T) {
	return func(t *T) {
		m := t.method(name)
		t.badParams(t.dial(), m, m.proper().with(obj{param: value}))
	}
}

func bothEnds(t *T) {
	m := t.method("session.history")
	t.badParams(t.dial(), m, m.proper().with(obj{"after": 1, "before": 5}))
}

func describeChecks() []Check {
	checks := []Check{
		{ID: "host", Section: "1, 5", Says: "host.describe tells hostId (a UUID), name, version and protocolVersion 1.0.", run: describeHost},
		{ID: "agents", Section: "5", Says: "host.describe tells the agents with name, kind and capabilities.", run: describeAgents},
		{ID: "limits", Section: "5", Says: "host.describe tells limits; integers stay below 2^53.", run: describeLimits},
		{ID: "you", Section: "1, 5", Says: "host.describe tells who you are: clientId, label, scopes.", run: describeYou},
		{ID: "openrpc", Section: "5", Says: "rpc.discover returns an OpenRPC document.", run: discoverVersion},
		{ID: "schemas", Section: "5", Says: "Every reference in the OpenRPC document leads somewhere.", run: discoverReferences},
		{ID: "features", Section: "1, 5", Says: "Features and the document name the same methods.", run: discoverFeatures},
	}
	for _, m := range contractMethods() {
		checks = append(checks, Check{
			ID: "method-" + m.name, Section: "5", Says: "The document describes " + m.name + " with the contract's params.",
			run: func(t *T) { discoverMethod(t, m) },
		})
	}
	return checks
}

func describeHost(t *T) {
	d := t.dial().ok("host.describe", obj{})
	t.must(len(d.str("hostId")) == 36, "hostId, a UUID", d)
	t.must(d.str("name") != "" && d.str("version") != "", "name and version", d)
	t.equal("protocolVersion", d.str("protocolVersion"), "1.0")
	t.equal("hostId on another connection", t.dial().ok("host.describe", obj{}).str("hostId"), d.str("hostId"))
}

func describeAgents(t *T) {
	d := t.dial().ok("host.describe", obj{})
	found := false
	for _, a := range d.objs("agents") {
		t.must(a.str("name") != "" && a.str("kind") != "" && a.has("capabilities"), "name, kind and capabilities", a)
		found = found || a.str("name") == t.r.opt.Agent
	}
	t.must(found, "the test agent "+t.r.opt.Agent, d.get("agents"))
}

func describeLimits(t *T) {
	limits := t.dial().ok("host.describe", obj{}).obj("limits")
	t.must(len(limits) > 0, "limits", limits)
	for k := range limits {
		n := limits.num(k)
		t.must(n >= 0 && n < bigInteger, "integers from 0 to 2^53-1", limits)
	}
}

func describeYou(t *T) {
	a, b := t.dial().ok("host.describe", obj{}).obj("you"), t.dial().ok("host.describe", obj{}).obj("you")
	t.must(a.str("clientId") != "" && a.str("label") != "" && len(a.list("scopes")) > 0, "clientId, label and scopes", a)
	t.must(a.str("clientId") != b.str("clientId"), "a clientId of its own for each connection", b)
	t.must(strings.Contains(text(a.list("scopes")), `"admin"`), "the scope admin", a)
}

func discoverVersion(t *T) {
	d := t.dial().ok("rpc.discover", obj{})
	t.must(d.str("openrpc") != "" && d.str("info.version") != "" && len(d.list("methods")) > 0, "openrpc, info.version, methods", clip(text(d)))
}

func discoverReferences(t *T) {
	d := t.dial().ok("rpc.discover", obj{})
	walk(map[string]any(d), func(o obj) {
		ref, ok := strings.CutPrefix(o.str("$ref"), "#/")
		if ok && d.get(strings.ReplaceAll(ref, "/", ".")) == nil {
			t.fail("a document without dead references", "%s", text(o))
		}
	})
}

// walk visits every object in a JSON value.
func walk(v any, visit func(obj)) {
	switch x := v.(type) {
	case map[string]any:
		visit(x)
		for _, inner := range x {
			walk(inner, visit)
		}
	case []any:
		for _, inner := range x {
			walk(inner, visit)
		}
	}
}

func discoverFeatures(t *T) {
	p := t.dial()
	features := map[string]bool{}
	for _, f := range p.ok("host.describe", obj{}).strs("features") {
		features[f] = true
	}
	for _, m := range p.ok("rpc.discover", obj{}).objs("methods") {
		t.must(features[m.str("name")], "every method of the document among the features", m.str("name"))
	}
}

func discoverMethod(t *T, row methodRow) {
	m := t.method(row.name)
	for i, names := range [][]string{row.required, row.optional} {
		for _, name := range names {
			p := m.param(name)
			t.must(p != nil, "the param "+name, m.params)
			t.must(p.flag("required") == (i == 0), fmt.Sprintf("required = %t of %s", i == 0, name), p)
			t.must(p.has("schema"), "a schema of "+name, p)
		}
	}
}

// param finds a param by its name.
func (m method) param(name string) obj {
	for _, p := range m.params {
		if p.str("name") == name {
			return p
		}
	}
	return nil
}
