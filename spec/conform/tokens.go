package conform

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
)

// scopeWords are the scopes, weakest first.
var scopeWords = []string{"observe", "answer", "operate", "admin"}

// tokens are those of the four scopes, made when they are first needed.
type tokens struct {
	once sync.Once
	why  string            // why there are none
	made map[string]string // secrets by scope
	ids  []string
}

// scoped returns a token of a scope.
func (t *T) scoped(scope string) string {
	t.r.tokens.once.Do(func() { t.r.tokens.make(t.r) })
	if t.r.tokens.why != "" {
		t.fail("tokens from tokens.create", "%s", t.r.tokens.why)
	}
	return t.r.tokens.made[scope]
}

func (k *tokens) make(r *runner) {
	k.made, k.why = map[string]string{}, "no answer to tokens.create"
	r.clean(func() {
		for _, scope := range scopeWords {
			res := r.broom.call("tokens.create", obj{"label": "conform " + scope, "scope": scope})
			if res.err != nil {
				k.why = res.String()
				return
			}
			k.made[scope] = res.obj().str("secret")
			k.ids = append(k.ids, res.obj().str("token.id"))
		}
		k.why = ""
	})
}

// revoke takes the tokens back.
func (k *tokens) revoke(r *runner) {
	for _, id := range k.ids {
		r.clean(func() { r.broom.call("tokens.revoke", obj{"id": id}) })
	}
}

func scopeChecks() []Check {
	var checks []Check
	for _, m := range contractMethods() {
		checks = append(checks, Check{
			ID: m.name, Section: "1, 5", Says: fmt.Sprintf("%s needs the scope %s: weaker ones are forbidden, stronger ones include it.", m.name, m.scope),
			run: func(t *T) { scopeOf(t, m) },
		})
	}
	return append(checks,
		Check{ID: "you", Section: "1", Says: "host.describe tells the scopes that a token has.", run: scopeYou},
		Check{ID: "project-grant", Section: "6.6", Says: "A grant for the project needs operate.", run: scopeProjectGrant},
		Check{ID: "changes-nothing", Section: "7", Says: "A forbidden call changes nothing.", run: scopeChangesNothing},
		Check{ID: "tree-list", Section: "1", Says: "A client limited to a tree lists that tree only.", run: limitList},
		Check{ID: "tree-same-error", Section: "7", Says: "A session that this client may not see gives the same error as one that does not exist.", run: limitSameError},
		Check{ID: "tree-inbox", Section: "1, 6.8", Says: "The inbox of a client limited to a tree shows that tree only.", run: limitInbox},
		Check{ID: "tree-born", Section: "1", Says: "A session born in the tree later is within the limit.", run: limitBorn},
		Check{ID: "tree-pending", Section: "1", Says: "pending.list of a client limited to a tree shows that tree only.", run: limitPending},
		Check{ID: "tree-answer", Section: "1", Says: "A client limited to a tree answers within it, and nowhere else.", run: limitAnswer},
		Check{ID: "tree-grants", Section: "1, 6.6", Says: "A client limited to a tree gives no grant for the project, and neither lists nor revokes those of others.", run: limitGrants},
		Check{ID: "tree-upward", Section: "1, 6.6", Says: "What a client limited to a subtree allows for always is asked above it.", run: limitUpward},
		Check{ID: "tree-create", Section: "1", Says: "A client limited to a tree creates sessions within it only.", run: limitCreate},
	)
}

func scopeOf(t *T, m methodRow) {
	needs := slices.Index(scopeWords, m.scope)
	for i, scope := range scopeWords {
		p := t.dialAs(t.scoped(scope))
		r := p.call(m.name, m.probe)
		if i < needs && r.kind() != "forbidden" {
			t.fail("forbidden with the scope "+scope, "%s", r)
		}
		if i >= needs && (r.kind() == "forbidden" || r.kind() == "-32601") {
			t.fail("anything but forbidden with the scope "+scope, "%s", r)
		}
		p.close()
	}
}

func scopeYou(t *T) {
	for i, scope := range scopeWords {
		p := t.dialAs(t.scoped(scope))
		got := p.ok("host.describe", obj{}).strs("you.scopes")
		t.must(slices.Contains(got, scope) && (i == 3 || !slices.Contains(got, scopeWords[i+1])), "the scope "+scope+" and none above it", got)
	}
}

func scopeProjectGrant(t *T) {
	s, p := t.asking(1)
	card := p.asked(s)
	q := t.dialAs(t.scoped("answer"))
	r := q.respond(card, "allowed-always", obj{"grant": obj{"scope": "project"}})
	if r.kind() != "forbidden" {
		t.fail("forbidden", "%s", r)
	}
	q.allow(card, "rejected")
}

func scopeChangesNothing(t *T) {
	s, p := t.asking(1)
	q := t.dialAs(t.scoped("observe"))
	for _, c := range []struct {
		method string
		params obj
	}{
		{"session.cancel", obj{"sessionId": s.id}},
		{"session.close", obj{"sessionId": s.id}},
		{"session.delete", obj{"sessionId": s.id}},
		{"session.configure", obj{"sessionId": s.id, "policy": obj{"mode": "deny"}}},
		{"approval.respond", obj{"sessionId": s.id, "id": p.asked(s).str("id"), "outcome": "rejected"}},
	} {
		q.refused(c.method, c.params, "forbidden")
	}
	p.stillPending(p.asked(s))
}

// token makes a token of the check's own, and returns its secret and id.
func (t *T) token(p *peer, more obj) (secret, id string) {
	res := p.ok("tokens.create", obj{"label": "conform", "scope": "operate"}.with(more))
	id = res.str("token.id")
	t.must(res.str("secret") != "" && id != "", "secret and token.id", res.without("secret"))
	t.after = append(t.after, func() { t.r.clean(func() { t.r.broom.call("tokens.revoke", obj{"id": id}) }) })
	return res.str("secret"), id
}

// limited connects with a token for one tree.
func (t *T) limited(p *peer, root session) *peer {
	secret, _ := t.token(p, obj{"trees": list{root.id}})
	return t.dialAs(secret)
}

func limitList(t *T) {
	p := t.dial()
	root, child, below := t.family(p)
	t.session(p, echoes)
	got := idsOf(t.limited(p, child).ok("sessions.list", obj{}))
	t.equal("sessions", got, []string{below.id, child.id})
	_ = root
}

func limitSameError(t *T) {
	p := t.dial()
	root, other := t.session(p, echoes), t.session(p, echoes)
	q := t.limited(p, root)
	for _, m := range []struct {
		name string
		more obj
	}{
		{"session.get", nil},
		{"session.history", nil},
		{"session.prompt", obj{"content": say("hi")}},
		{"session.cancel", nil},
		{"session.configure", obj{"title": "x"}},
		{"session.export", obj{"format": "jsonl"}},
		{"session.fork", nil},
		{"tasks.list", nil},
		{"tasks.get", obj{"taskId": "x"}},
		{"tasks.wait", obj{"taskId": "x"}},
		{"tasks.cancel", obj{"taskId": "x"}},
		{"session.close", nil},
		{"session.delete", nil},
	} {
		a, b := q.call(m.name, obj{"sessionId": other.id}.with(m.more)), q.call(m.name, obj{"sessionId": nobodyID}.with(m.more))
		t.must(a.kind() == "session-not-found" && b.kind() == "session-not-found", "session-not-found for both", m.name+": "+a.String())
		t.equal("the message", strings.ReplaceAll(a.err.message, other.id, "ID"), strings.ReplaceAll(b.err.message, nobodyID, "ID"))
	}
	q.refused("mux.subscribe", obj{"sessions": list{obj{"sessionId": other.id}}}, "session-not-found")
	p.ok("session.get", obj{"sessionId": other.id})
}

func limitInbox(t *T) {
	p := t.dial()
	root := t.session(p, echoes)
	other, _ := t.asking(1)
	q := t.limited(p, root)
	q.inbox()
	late := t.session(p, echoes)
	kid := t.session(p, echoes, obj{"parentSessionId": root.id})
	q.frame("host/session-added", kid)
	for _, m := range q.since(0) {
		id := m.params.str("sessionId")
		t.must(id != other.id && id != late.id, "no frame of another tree", string(m.raw))
	}
}

func limitBorn(t *T) {
	p := t.dial()
	root := t.session(p, echoes)
	q := t.limited(p, root)
	kid := t.session(p, echoes, obj{"parentSessionId": root.id})
	q.subscribe(kid)
	q.turn(kid, "hi")
}

func limitPending(t *T) {
	s, p := t.asking(1)
	t.asking(1)
	all := t.limited(p, s).ok("pending.list", obj{}).objs("pending")
	t.must(len(all) == 1 && all[0].str("approval.sessionId") == s.id, "one approval of the tree", all)
}

func limitAnswer(t *T) {
	s, p := t.asking(1)
	other, o := t.asking(1)
	q := t.limited(p, s)
	if r := q.respond(o.asked(other), "allowed-once"); r.kind() != "session-not-found" {
		t.fail("session-not-found", "%s", r)
	}
	q.allow(p.asked(s), "allowed-once")
	o.stillPending(o.asked(other))
}

func limitCreate(t *T) {
	p := t.dial()
	root, other := t.session(p, echoes), t.session(p, echoes)
	q := t.limited(p, root)
	q.refused("session.create", t.create(echoes), "forbidden")
	q.refused("session.create", t.create(echoes).with(obj{"parentSessionId": other.id}), "session-not-found")
	t.session(q, echoes, obj{"parentSessionId": root.id})
}

func limitGrants(t *T) {
	other, o, g := t.always()
	s, p := t.asking(1)
	q := t.limited(p, s)
	if r := q.respond(p.asked(s), "allowed-always", obj{"grant": obj{"scope": "project"}}); r.kind() != "forbidden" {
		t.fail("forbidden", "%s", r)
	}
	for _, x := range q.ok("grants.list", obj{}).objs("grants") {
		t.must(x.str("rootSessionId") != other.id, "no grant of another tree", x)
	}
	q.refused("grants.revoke", obj{"id": g.str("id")}, "grant-not-found")
	t.must(slices.ContainsFunc(o.ok("grants.list", obj{}).objs("grants"), func(x obj) bool { return x.str("id") == g.str("id") }), "the grant, still", g)
	p.allow(p.asked(s), "rejected")
}

func limitUpward(t *T) {
	p := t.dial()
	root := t.session(p, asks(1, 1))
	child := t.session(p, asks(1, 1), obj{"parentSessionId": root.id})
	q := t.limited(p, child)
	p.subscribe(root)
	q.subscribe(child)
	q.prompt(child, "go")
	q.allow(q.card(child), "allowed-always")
	q.event(child, "turn/end")
	p.prompt(root, "go")
	p.allow(p.card(root), "rejected")
}

func tokenChecks() []Check {
	return []Check{
		{ID: "create", Section: "1, 5", Says: "A token that was made connects, with its label and scope.", run: tokenCreate},
		{ID: "secret", Section: "5", Says: "The secret of a token is not listed.", run: tokenSecret},
		{ID: "revoke", Section: "2, 5", Says: "Revoking a token closes its connections with 4001.", run: tokenRevoke},
		{ID: "revoked", Section: "2", Says: "A revoked token opens nothing.", run: tokenRevoked},
		{ID: "revoke-made", Section: "5", Says: "Revoking a token revokes those that it made.", run: tokenRevokeMade},
		{ID: "expired", Section: "2", Says: "When a token expires its connections are closed with 4001.", run: tokenExpired},
		{ID: "scope", Section: "1", Says: "A token has one of the four scopes.", run: func(t *T) { t.dial().refused("tokens.create", obj{"label": "x", "scope": "root"}, "-32602") }},
		{ID: "exceed-time", Section: "5", Says: "A token never exceeds its maker: one that expires makes none that lasts longer.", run: tokenExceedTime},
		{ID: "revoke-stream", Section: "2, 5", Says: "Revoking a token ends its event streams.", run: tokenRevokeStream},
		{ID: "revoke-login", Section: "2, 5", Says: "Revoking a token ends the cookies that it was exchanged for.", run: tokenRevokeLogin},
		{ID: "trees", Section: "1", Says: "A token may be limited to session trees, and says so.", run: tokenTrees},
		{ID: "exceed", Section: "5", Says: "A token never exceeds its maker: one limited to a tree makes none for another.", run: tokenExceed},
		{ID: "clients", Section: "5", Says: "clients.list tells who is connected: clientId, label, scopes, since when.", run: tokenClients},
		{ID: "clients-gone", Section: "5", Says: "Who has disconnected is not listed.", run: tokenClientsGone},
		{ID: "apart", Section: "2", Says: "Revoking a token leaves the connections of others.", run: tokenApart},
	}
}

func tokenCreate(t *T) {
	p := t.dial()
	secret, id := t.token(p, obj{"label": "my phone", "scope": "answer"})
	you := t.dialAs(secret).ok("host.describe", obj{}).obj("you")
	t.must(you.str("label") == "my phone" && slices.Contains(you.strs("scopes"), "answer") && !slices.Contains(you.strs("scopes"), "operate"), "the label and the scope answer", you)
	info := p.tokenInfo(id)
	t.must(info.str("label") == "my phone" && isTime(info.str("createdAt")), "the token in tokens.list", info)
}

// tokenInfo finds a token in tokens.list.
func (p *peer) tokenInfo(id string) obj {
	for _, k := range p.ok("tokens.list", obj{}).objs("tokens") {
		if k.str("id") == id {
			return k
		}
	}
	return nil
}

func tokenSecret(t *T) {
	p := t.dial()
	secret, _ := t.token(p, nil)
	t.must(!strings.Contains(text(p.ok("tokens.list", obj{})), secret), "no secret in tokens.list", "the secret")
}

func tokenRevoke(t *T) {
	p := t.dial()
	secret, id := t.token(p, nil)
	q := t.dialAs(secret)
	q.fence()
	p.ok("tokens.revoke", obj{"id": id})
	t.equal("the close code", q.closed(), 4001)
}

func tokenRevoked(t *T) {
	p := t.dial()
	secret, id := t.token(p, nil)
	p.ok("tokens.revoke", obj{"id": id})
	t.status(t.handshake("/v1/ws", offer, "Authorization: Bearer "+secret), 401, 429)
	t.must(p.tokenInfo(id) == nil, "no revoked token in tokens.list", p.tokenInfo(id))
}

func tokenRevokeMade(t *T) {
	p := t.dial()
	secret, id := t.token(p, obj{"scope": "admin"})
	maker := t.dialAs(secret)
	made, _ := t.token(maker, obj{"scope": "observe"})
	q := t.dialAs(made)
	q.fence()
	p.ok("tokens.revoke", obj{"id": id})
	t.equal("the close code", q.closed(), 4001)
}

func tokenExpired(t *T) {
	p := t.dial()
	secret, _ := t.token(p, obj{"forMs": 1500})
	q := t.dialAs(secret)
	q.fence()
	t.equal("the close code", q.closed(), 4001)
}

func tokenTrees(t *T) {
	p := t.dial()
	root := t.session(p, echoes)
	_, id := t.token(p, obj{"trees": list{root.id}})
	t.equal("trees", p.tokenInfo(id).get("trees"), list{root.id})
}

func tokenExceed(t *T) {
	p := t.dial()
	root, other := t.session(p, echoes), t.session(p, echoes)
	secret, _ := t.token(p, obj{"scope": "admin", "trees": list{root.id}})
	q := t.dialAs(secret)
	for _, bad := range []obj{{}, {"trees": list{other.id}}} {
		r := q.call("tokens.create", obj{"label": "x", "scope": "observe"}.with(bad))
		t.must(r.err != nil, "a refusal of a token beyond its maker", "a token")
	}
	t.token(q, obj{"scope": "observe", "trees": list{root.id}})
}

func tokenExceedTime(t *T) {
	p := t.dial()
	secret, _ := t.token(p, obj{"scope": "admin", "forMs": 600_000})
	q := t.dialAs(secret)
	r := q.call("tokens.create", obj{"label": "x", "scope": "observe", "forMs": 1_200_000})
	t.must(r.err != nil, "a refusal of a token that lasts longer than its maker", "a token")
	_, id := t.token(q, obj{"scope": "observe"})
	t.must(isTime(q.tokenInfo(id).str("expiresAt")), "expiresAt, no later than the maker's", q.tokenInfo(id))
}

func tokenRevokeStream(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	secret, id := t.token(p, nil)
	resp := t.open(http.MethodGet, "/v1/events?session="+s.id, "", "Authorization: Bearer "+secret, "Accept: text/event-stream")
	t.must(resp.StatusCode == http.StatusOK, "HTTP status 200", resp.Status)
	p.ok("tokens.revoke", obj{"id": id})
	_, err := io.Copy(io.Discard, resp.Body)
	t.must(!errors.Is(err, os.ErrDeadlineExceeded), "the end of the stream", fmt.Sprint(err))
}

func tokenRevokeLogin(t *T) {
	p := t.dial()
	secret, id := t.token(p, nil)
	_, cookie := t.login(secret)
	own := []string{offer, cookie, "Origin: " + t.origin()}
	t.status(t.handshake("/v1/ws", own...), 101)
	p.ok("tokens.revoke", obj{"id": id})
	t.status(t.handshake("/v1/ws", own...), 401, 429)
}

func tokenClients(t *T) {
	p := t.dial()
	secret, _ := t.token(p, obj{"label": "conform clients", "scope": "observe"})
	q := t.dialAs(secret)
	id := q.ok("host.describe", obj{}).str("you.clientId")
	c := p.client(id)
	t.must(c.str("label") == "conform clients" && len(c.list("scopes")) > 0 && isTime(c.str("connectedAt")), "label, scopes, connectedAt", c)
}

// client finds a connection in clients.list.
func (p *peer) client(id string) obj {
	for _, c := range p.ok("clients.list", obj{}).objs("clients") {
		if c.str("clientId") == id {
			return c
		}
	}
	return nil
}

func tokenClientsGone(t *T) {
	p, q := t.dial(), t.dial()
	id := q.ok("host.describe", obj{}).str("you.clientId")
	t.must(p.client(id) != nil, "the client in clients.list", "none")
	_ = q.ws.Close(1000, "")
	q.close()
	for range 1000 {
		if p.client(id) == nil {
			return
		}
	}
	t.fail("no client that has disconnected", "%s is listed", id)
}

func tokenApart(t *T) {
	p := t.dial()
	a, id := t.token(p, nil)
	b, _ := t.token(p, nil)
	q, r := t.dialAs(a), t.dialAs(b)
	p.ok("tokens.revoke", obj{"id": id})
	q.closed()
	r.fence()
	p.fence()
}
