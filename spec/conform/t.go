package conform

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"
)

// T is one check under way. A failed expectation ends the check.
type T struct {
	r     *runner
	check *Check
	ctx   context.Context //nolint:containedctx // the check's deadline

	sent     string // the last thing sent
	peers    []*peer
	sessions []string
	after    []func() // run when the check ends, last first
	granted  bool     // something was allowed for always: grants outlive sessions
}

// failure ends a check that failed, skipped one that cannot be made here.
type (
	failure struct{ sent, came, want string }
	skipped struct{ why string }
)

// fail ends the check: what came is not what was wanted.
func (t *T) fail(want, came string, args ...any) {
	panic(failure{sent: t.sent, came: clip(fmt.Sprintf(came, args...)), want: want})
}

// must fails unless ok.
func (t *T) must(ok bool, want string, came any) {
	if !ok {
		if s, is := came.(string); is {
			t.fail(want, "%s", s)
		}
		t.fail(want, "%s", text(came))
	}
}

// equal fails unless got is want, as JSON.
func (t *T) equal(what string, got, want any) {
	if !same(got, want) {
		t.fail(what+" = "+text(want), "%s = %s", what, text(got))
	}
}

// skip ends the check: it cannot be made here.
func (t *T) skip(why string, args ...any) { panic(skipped{fmt.Sprintf(why, args...)}) }

// finish closes what the check opened and removes its sessions.
func (t *T) finish() {
	for _, p := range t.peers {
		p.close()
	}
	for _, f := range slices.Backward(t.after) {
		f()
	}
	if t.granted {
		t.r.revokeGrants(t.sessions)
	}
	t.r.sweep(t.sessions)
}

// unique returns a text that no other check uses.
func unique() string { return strings.ToLower(rand.Text()) }

// session is a session that a check made.
type session struct {
	id, epoch string
	summary   obj
}

// roles of the test agent, as configs; see the package's doc.
var (
	echoes = obj{"speed": 0}
	holds  = obj{"role": "stream", "chunks": 2, "size": 8, "everyMs": 3_600_000}
)

func asks(count, parallel int) obj {
	return obj{"role": "asks", "count": count, "parallel": parallel}
}

func spawns(count, depth int) obj { return obj{"role": "spawns", "count": count, "depth": depth} }

func streams(chunks, size int) obj { return obj{"role": "stream", "chunks": chunks, "size": size} }

// create returns the params of a session.create.
func (t *T) create(config obj) obj {
	return obj{"agent": t.r.opt.Agent, "cwd": t.r.cwd, "config": config}
}

// session makes a session with a config, and more params; it goes with the check.
func (t *T) session(p *peer, config obj, more ...obj) session {
	params := t.create(config)
	for _, m := range more {
		params = params.with(m)
	}
	return t.made(p.ok("session.create", params))
}

// made notes the session of a result, so that it goes with the check.
func (t *T) made(res obj) session {
	s := res.obj("session")
	t.must(s.str("sessionId") != "", "a result with session.sessionId", res)
	t.sessions = append(t.sessions, s.str("sessionId"))
	return session{s.str("sessionId"), s.str("epoch"), s}
}

// say is the content of a prompt.
func say(s string) list { return list{obj{"type": "text", "text": s}} }

// prompt sends a prompt and returns the result.
func (p *peer) prompt(s session, words string, more ...obj) obj {
	params := obj{"sessionId": s.id, "content": say(words)}
	for _, m := range more {
		params = params.with(m)
	}
	return p.ok("session.prompt", params)
}

// subscribe subscribes a session from everything on.
func (p *peer) subscribe(s session, more ...obj) reply {
	entry := obj{"sessionId": s.id, "since": 0}
	for _, m := range more {
		entry = entry.with(m)
	}
	return p.answered("mux.subscribe", obj{"sessions": list{entry}})
}

// turn makes a turn run from start to end, and returns its events. p must be
// subscribed.
func (p *peer) turn(s session, words string) []obj {
	from := p.mark()
	p.prompt(s, words)
	p.event(s, "turn/end")
	return p.eventsOf(s, from)
}

// card waits for the next approval that is asked for in a session.
func (p *peer) card(s session) obj { return p.frame("approval/requested", s).params }

// respond answers an approval and returns the reply.
func (p *peer) respond(card obj, outcome string, more ...obj) reply {
	params := obj{"sessionId": card.str("sessionId"), "id": card.str("id"), "outcome": outcome}
	for _, m := range more {
		params = params.with(m)
	}
	if outcome == "allowed-always" {
		p.t.granted = true
	}
	return p.call("approval.respond", params)
}

// allow answers an approval, which must be accepted.
func (p *peer) allow(card obj, outcome string, more ...obj) {
	r := p.respond(card, outcome, more...)
	p.t.must(r.err == nil && r.obj().flag("accepted"), "accepted: true", r.String())
}

// deadline is how long one message is waited for.
func (t *T) deadline() time.Duration { return t.r.opt.Wait }
