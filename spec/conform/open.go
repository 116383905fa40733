package conform

func openChecks() []Check {
	return []Check{
		{ID: "vendor-event", Section: "1, 3", Says: "An agent's event of a type outside the table is stored, numbered and passed on untouched.", run: openVendor},
		{ID: "vendor-view", Section: "1", Says: "A session with events of unknown types still has a view.", run: openVendorView},
		{ID: "config", Section: "5", Says: "An agent's config is carried as it was given.", run: openConfig},
		{ID: "labels", Section: "5", Says: "Labels have any keys and values.", run: openLabels},
		{ID: "prompt-fields", Section: "1", Says: "Names and URIs of a prompt's blocks are carried, whatever they say.", run: openBlocks},
		{ID: "replayed", Section: "8.4", Says: "A vendor's event comes to who joins late as it came to who was there.", run: openReplayed},
	}
}

// vendorEvent is what the role wide emits.
const vendorEvent = "conform.example/note"

func vendorData() obj {
	return obj{"text": "é \"x\"", "n": 1.5, "deep": obj{"a": list{1, nil, true, "\u2028"}}, "seq": 7, "type": "turn/end"}
}

func openVendor(t *T) {
	s, p := t.wide(1000)
	p.stillPending(p.asked(s))
	p.event(s, "turn/end")
	found := only(p.eventsOf(s, 0), vendorEvent)
	t.must(len(found) == 1 && found[0].num("seq") > 0, "one "+vendorEvent+" with a seq", p.names(s, 0))
	t.equal("data", found[0].get("data"), vendorData())
}

func openVendorView(t *T) {
	s, p := t.wide(1000)
	p.stillPending(p.asked(s))
	p.event(s, "turn/end")
	g := p.ok("session.get", obj{"sessionId": s.id, "view": true})
	t.must(g.obj("view") != nil && g.num("seq") == g.num("session.head"), "a view up to the head", clip(text(g)))
}

func openReplayed(t *T) {
	s, p := t.wide(1000)
	p.stillPending(p.asked(s))
	p.event(s, "turn/end")
	q, _ := t.replay(s)
	t.equal("the replayed event", only(q.eventsOf(s, 0), vendorEvent), only(p.eventsOf(s, 0), vendorEvent))
}

func openConfig(t *T) {
	p := t.dial()
	config := asks(3, 2)
	s := t.session(p, config)
	h := p.ok("session.history", obj{"sessionId": s.id, "after": 0})
	t.equal("config of session/created", h.get("events.0.data.config"), config)
}

func openLabels(t *T) {
	p := t.dial()
	labels := obj{"": "empty", "a.b/c": "x", "é": "😀", "long": "value with spaces", "__proto__": "x"}
	s := t.session(p, echoes, obj{"labels": labels})
	t.equal("labels", p.ok("session.get", obj{"sessionId": s.id}).get("session.labels"), labels)
}

func openBlocks(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	content := list{obj{"type": "resource_link", "uri": "vendor:é?x=1#y", "name": "__proto__", "mimeType": "application/x-vendor"}, obj{"type": "text", "text": ""}}
	p.ok("session.prompt", obj{"sessionId": s.id, "content": content})
	t.equal("content", p.event(s, "user/message").get("data.content"), content)
}
