package conform

import "slices"

func treeChecks() []Check {
	return []Check{
		{ID: "tree-result", Section: "5", Says: "With tree the result lists all descendants.", run: treeResult},
		{ID: "tree-added", Section: "4", Says: "A tree's subscriber gets host/session-added for each descendant before its session/subscribed.", run: treeAdded},
		{ID: "tree-born", Section: "5", Says: "Descendants born later are subscribed from 0.", run: treeBorn},
		{ID: "tree-since", Section: "5", Says: "Descendants that are not named start at 0 if the root gave since.", run: treeSince},
		{ID: "tree-head", Section: "5", Says: "Descendants that are not named start at head if the root gave no since.", run: treeHead},
		{ID: "tree-named", Section: "5", Says: "Descendants named in the call use their own since.", run: treeNamed},
		{ID: "tree-leave-one", Section: "5", Says: "mux.unsubscribe of one descendant leaves that one out.", run: treeLeaveOne},
		{ID: "tree-end", Section: "5", Says: "mux.unsubscribe of a tree's root ends its tree.", run: treeEnd},
		{ID: "tree-deep", Section: "6.8", Says: "A tree reaches every depth: a grandchild's events come.", run: treeDeep},
	}
}

// family makes a root, a child and a grandchild.
func (t *T) family(p *peer) (root, child, below session) {
	root = t.session(p, echoes)
	child = t.session(p, echoes, obj{"parentSessionId": root.id})
	return root, child, t.session(p, echoes, obj{"parentSessionId": child.id})
}

func treeResult(t *T) {
	p := t.dial()
	root, child, below := t.family(p)
	r := p.subscribe(root, obj{"tree": true})
	var got []string
	for _, e := range (obj{"r": r.result}).objs("r") {
		got = append(got, e.str("sessionId"))
	}
	t.equal("the first of the result", got[:min(1, len(got))], []string{root.id})
	slices.Sort(got)
	want := []string{root.id, child.id, below.id}
	slices.Sort(want)
	t.equal("sessions of the result", got, want)
}

func treeAdded(t *T) {
	p := t.dial()
	root, child, below := t.family(p)
	p.subscribe(root, obj{"tree": true})
	for _, s := range []session{child, below} {
		p.find(0, t.deadline(), func(m message) bool { return m.method == "session/live" && m.params.str("sessionId") == s.id })
		names := p.names(s, 0)
		a, b := slices.Index(names, "host/session-added"), slices.Index(names, "session/subscribed")
		t.must(a >= 0 && b > a, "host/session-added, then session/subscribed", names)
		added := firstOf(p, s, "host/session-added", 0)
		t.equal("session.rootSessionId", added.str("session.rootSessionId"), root.id)
	}
}

func treeBorn(t *T) {
	p := t.dial()
	root := t.session(p, spawns(2, 1))
	p.subscribe(root, obj{"tree": true})
	p.prompt(root, "go")
	for range 2 {
		kid := session{id: p.event(root, "agent/spawned").str("data.childSessionId")}
		end, ok := p.find(0, t.deadline(), func(m message) bool {
			return m.event.str("type") == "turn/end" && m.params.str("sessionId") == kid.id
		})
		t.must(ok, "the child's turn/end", p.recent())
		got := seqs(p.eventsOf(kid, 0))
		t.equal("the child's first seqs", got[:end.event.num("seq")], upTo(1, end.event.num("seq")))
		t.equal("the child's first frame", p.names(kid, 0)[0], "host/session-added")
	}
}

// treeReplay returns the seqs of the child that a tree's subscription replays.
func treeReplay(t *T, rootSince any, childEntry obj) []int64 {
	p := t.dial()
	root, child, _ := t.family(p)
	p.ok("session.configure", obj{"sessionId": child.id, "title": "a"})
	p.ok("session.configure", obj{"sessionId": child.id, "title": "b"})
	entry := obj{"sessionId": root.id, "tree": true}
	if rootSince != nil {
		entry["since"] = rootSince
	}
	entries := list{entry}
	if childEntry != nil {
		entries = append(entries, childEntry.with(obj{"sessionId": child.id}))
	}
	q := t.dial()
	q.answered("mux.subscribe", obj{"sessions": entries})
	q.frame("session/live", child)
	return seqs(q.eventsOf(child, 0))
}

func treeSince(t *T) { t.equal("the child's seqs", treeReplay(t, 1, nil), upTo(1, 3)) }

func treeHead(t *T) { t.equal("the child's seqs", treeReplay(t, nil, nil), []int64{}) }

func treeNamed(t *T) { t.equal("the child's seqs", treeReplay(t, 0, obj{"since": 2}), upTo(3, 3)) }

func treeLeaveOne(t *T) {
	p, other := t.dial(), t.dial()
	root, child, below := t.family(other)
	p.subscribe(root, obj{"tree": true})
	p.answered("mux.unsubscribe", obj{"sessions": list{child.id}})
	p.frame("session/unsubscribed", child)
	from := p.mark()
	for _, s := range []session{child, below, root} {
		other.ok("session.configure", obj{"sessionId": s.id, "title": "new"})
	}
	p.event(below, "session/renamed")
	p.event(root, "session/renamed")
	t.must(len(p.eventsOf(child, from)) == 0, "no events of the descendant that was left out", p.names(child, from))
}

func treeEnd(t *T) {
	p, other := t.dial(), t.dial()
	root, child, below := t.family(other)
	p.subscribe(root, obj{"tree": true})
	p.answered("mux.unsubscribe", obj{"sessions": list{root.id}})
	for _, s := range []session{root, child, below} {
		_, ok := p.find(0, t.deadline(), func(m message) bool {
			return m.method == "session/unsubscribed" && m.params.str("sessionId") == s.id
		})
		t.must(ok, "session/unsubscribed of each session of the tree", p.recent())
	}
	from := p.mark()
	other.ok("session.configure", obj{"sessionId": below.id, "title": "new"})
	t.session(other, echoes, obj{"parentSessionId": root.id})
	p.fence()
	t.must(len(p.eventsOf(below, from)) == 0, "no more events of the tree", p.names(below, from))
}

func treeDeep(t *T) {
	p, other := t.dial(), t.dial()
	root, _, below := t.family(other)
	p.subscribe(root, obj{"tree": true})
	p.frame("session/live", below)
	other.ok("session.configure", obj{"sessionId": below.id, "title": "new"})
	p.event(below, "session/renamed")
}
