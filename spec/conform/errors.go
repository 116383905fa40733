package conform

import "strings"

func errorChecks() []Check {
	return []Check{
		{ID: "kind", Section: "7", Says: "Beyond protocol faults the code is -32000, with data.kind.", run: errorKind},
		{ID: "message", Section: "7", Says: "Messages say what was wrong.", run: errorMessages},
		{ID: "details-cursor", Section: "7", Says: "cursor-expired and cursor-ahead tell first, head and epoch, or head.", run: errorCursor},
		{ID: "names-param", Section: "7", Says: "A message about params names the one that is wrong.", run: errorNamesParam},
		{ID: "no-secrets", Section: "7", Says: "An error does not repeat the token.", run: errorNoToken},
		{ID: "no-change", Section: "7", Says: "A refused call changes nothing: neither events nor summaries.", run: errorNoChange},
		{ID: "known-kinds", Section: "7", Says: "Kinds are those of the contract.", run: errorKnown},
		{ID: "goes-on", Section: "2", Says: "After an error the next call is answered.", run: errorGoesOn},
	}
}

// kinds are those of contract section 7.
var kinds = strings.Fields(`session-not-found session-closed agent-unavailable agent-unsupported agent-failed approval-not-pending
	question-not-pending input-hash-mismatch cursor-expired cursor-ahead fork-not-at-turn-end prompt-blocked budget-exceeded queue-full
	too-large rate-limited unauthenticated forbidden blob-not-found task-not-found grant-not-found storage-failed draining request-id-conflict`)

// faults makes every method fail that can, and returns the errors.
func (t *T) faults(p *peer) []*fault {
	var out []*fault
	for _, m := range contractMethods() {
		if r := p.call(m.name, m.probe); r.err != nil {
			out = append(out, r.err)
		}
	}
	t.must(len(out) > 10, "errors", len(out))
	return out
}

func errorKind(t *T) {
	for _, f := range t.faults(t.dial()) {
		if f.code <= -32600 && f.code >= -32700 {
			continue
		}
		t.must(f.code == -32000 && f.data.str("kind") != "", "-32000 with data.kind", reply{err: f}.String())
	}
}

func errorKnown(t *T) {
	for _, f := range t.faults(t.dial()) {
		if k := f.data.str("kind"); k != "" {
			t.must(strings.Contains(" "+strings.Join(kinds, " ")+" ", " "+k+" "), "a kind of section 7", k)
		}
	}
}

func errorMessages(t *T) {
	for _, f := range t.faults(t.dial()) {
		t.must(len(strings.Fields(f.message)) >= 2, "a message of some words", reply{err: f}.String())
	}
}

func errorCursor(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	d := p.refused("mux.subscribe", obj{"sessions": list{obj{"sessionId": s.id, "since": 1, "epoch": "x"}}}, "cursor-expired")
	t.must(d.num("first") == 1 && d.num("head") == 1 && d.str("epoch") == s.epoch, "first, head, epoch", d)
	d = p.refused("mux.subscribe", obj{"sessions": list{obj{"sessionId": s.id, "since": 7}}}, "cursor-ahead")
	t.equal("head", d.num("head"), 1)
}

func errorNamesParam(t *T) {
	p := t.dial()
	for params, name := range map[string]string{
		`{"sessionId":1}`:                 "sessionId",
		`{"sessionId":"x","view":"yes"}`:  "view",
		`{"sessionId":"x","unheard":"x"}`: "unheard",
	} {
		var o obj
		_ = decode([]byte(params), &o)
		r := p.call("session.get", o)
		t.must(r.err != nil && strings.Contains(r.err.message, name), "a message that names "+name, r.String())
	}
}

func errorNoToken(t *T) {
	p := t.dial()
	for _, f := range t.faults(p) {
		t.must(!strings.Contains(f.message+text(f.data), t.r.opt.Token), "no token in an error", "the token")
	}
	a := t.request("GET", "/v1/ws", "", "Authorization: Bearer "+t.r.opt.Token+"x")
	t.must(!strings.Contains(a.body, t.r.opt.Token), "no token in a refusal", "the token")
}

func errorNoChange(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	before := p.ok("session.get", obj{"sessionId": s.id})
	for method, params := range map[string]obj{
		"session.prompt":    {"content": say("x"), "mode": "later"},
		"session.configure": {"title": "x", "unheard": 1},
		"session.cancel":    {"turnId": 1},
		"session.close":     {"now": true},
		"session.delete":    {"tree": "yes"},
	} {
		p.refused(method, obj{"sessionId": s.id}.with(params), "-32602")
	}
	t.equal("the summary", p.ok("session.get", obj{"sessionId": s.id}), before)
}

func errorGoesOn(t *T) {
	p := t.dial()
	for _, kind := range []string{"session-not-found", "session-not-found"} {
		p.refused("session.get", obj{"sessionId": nobodyID}, kind)
		p.fence()
	}
}
