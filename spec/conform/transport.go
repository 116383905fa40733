package conform

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"github.com/coder/websocket"
)

func transportChecks() []Check {
	checks := []Check{
		{ID: "auth-header", Section: "2", Says: "A bearer token in Authorization opens the socket, and the subprotocol muxhost.v1 is agreed.", run: authHeader},
		{ID: "auth-subprotocol", Section: "2", Says: "The subprotocol muxhost.token.BASE64URL beside muxhost.v1 carries the token and is never echoed.", run: authSubprotocol},
		{ID: "auth-none", Section: "2, 8.6", Says: "Nothing answers without a token.", run: func(t *T) { t.status(t.handshake("/v1/ws", offer), 401) }},
		{ID: "auth-wrong", Section: "2, 8.6", Says: "A wrong token opens nothing.", run: authWrong},
		{ID: "auth-url", Section: "2", Says: "A token is never taken from a URL.", run: authURL},
		{ID: "auth-login", Section: "2", Says: "POST /v1/login exchanges a token for an HttpOnly SameSite=Strict cookie that opens the socket for the host's own pages.", run: authLogin},
		{ID: "auth-login-wrong", Section: "2", Says: "A login with a wrong token gives no cookie.", run: authLoginWrong},
		{ID: "auth-cookie-foreign", Section: "2", Says: "A cookie opens nothing for a page of another origin.", run: authCookieForeign},
		{ID: "subprotocol-missing", Section: "2", Says: "A client that does not offer muxhost.v1 is refused.", run: func(t *T) { t.refusedHandshake(t.bearer()) }},
		{ID: "subprotocol-other", Section: "2", Says: "A client that offers another version only is refused.", run: func(t *T) { t.refusedHandshake(t.bearer(), "Sec-WebSocket-Protocol: muxhost.v0") }},
		{ID: "binary", Section: "2", Says: "A binary message closes the connection with 1003.", run: func(t *T) { t.closesWith(1003, websocket.MessageBinary, "{}") }},
		{ID: "utf8", Section: "2", Says: "Invalid UTF-8 closes the connection with 1007.", run: func(t *T) { t.closesWith(1007, websocket.MessageText, "\"\xff\"") }},
		{ID: "too-large", Section: "2", Says: "A message over 1 MiB closes the connection with 1009.", run: func(t *T) { t.closesWith(1009, websocket.MessageText, strings.Repeat(" ", 1<<20+1)) }},
		{ID: "large-enough", Section: "2", Says: "A message of exactly 1 MiB is answered.", run: largeEnough},
		{ID: "fragments", Section: "2", Says: "A message may come in fragments (RFC 6455).", run: fragments},
		{ID: "ping", Section: "2", Says: "A client's ping is answered with a pong (RFC 6455).", run: pingPong},
		{ID: "close", Section: "2", Says: "A client's close is answered with the same code (RFC 6455).", run: closeEcho},
		{ID: "one-object", Section: "2", Says: "One message holds one JSON-RPC 2.0 object.", run: oneObject},
		{ID: "error-budget", Section: "2", Says: "100 errors within 10 s close the connection with 4029.", run: errorBudget},
		{ID: "error-budget-edge", Section: "2", Says: "Fewer than 100 errors leave the connection open.", run: errorBudgetEdge},
		{ID: "apart", Section: "2", Says: "A connection that is closed for its faults does not touch another.", run: apart},
		{ID: "heartbeat", Section: "2", Says: "An otherwise silent connection gets a mux/heartbeat frame every 15 s.", slow: true, run: heartbeat},
	}
	for _, o := range []string{"http://evil.example", "null", "https://evil.example:443"} {
		checks = append(checks, Check{
			ID: "origin-" + slug(o), Section: "2, 8.6", Says: "A foreign Origin is refused before the upgrade; null always.",
			run: func(t *T) { t.status(t.handshake("/v1/ws", t.bearer(), offer, "Origin: "+o), 403) },
		})
	}
	for _, p := range []string{"/v1/ws", "/v1/rpc", "/v1/events", "/v1/login", "/"} {
		checks = append(checks, Check{
			ID: "host-" + slug(p), Section: "2, 8.6", Says: "A foreign Host gets nothing, on any path, with a token too.",
			run: func(t *T) { t.status(t.handshake(p, t.bearer(), offer, "Host: rebind.example"), 403, 421) },
		})
	}
	for _, p := range []string{"/", "/v1/events", "/v1/ws"} {
		checks = append(checks, Check{
			ID: "token-" + slug(p), Section: "8.6", Says: "No path answers without a token.",
			run: func(t *T) { t.status(t.request(http.MethodGet, p, ""), 401) },
		})
	}
	for value, good := range map[string]bool{"15": true, "120": true, "14": false, "121": false, "-15": false, "15.5": false, "x": false, "": false} {
		checks = append(checks, heartbeatBound(value, good))
	}
	sortChecks(checks[len(checks)-8:])
	return checks
}

func (t *T) refusedHandshake(headers ...string) {
	a := t.handshake("/v1/ws", headers...)
	t.must(a.status >= 400 && a.status < 500, "an HTTP status from 400 to 499", fmt.Sprint("HTTP ", a.status))
}

func authHeader(t *T) {
	a := t.handshake("/v1/ws", t.bearer(), offer)
	t.status(a, 101)
	t.equal("Sec-WebSocket-Protocol", a.header.Get("Sec-WebSocket-Protocol"), subprotocol)
}

func authSubprotocol(t *T) {
	a := t.handshake("/v1/ws", "Sec-WebSocket-Protocol: muxhost.token."+base64.RawURLEncoding.EncodeToString([]byte(t.r.opt.Token))+", "+subprotocol)
	t.status(a, 101)
	t.equal("Sec-WebSocket-Protocol", a.header.Values("Sec-WebSocket-Protocol"), []string{subprotocol})
}

func authWrong(t *T) {
	t.status(t.handshake("/v1/ws", offer, "Authorization: Bearer "+unique()+unique()), 401, 429)
	a := t.handshake("/v1/ws", offer+", muxhost.token."+base64.RawURLEncoding.EncodeToString([]byte(unique()+unique())))
	t.status(a, 401, 429)
}

func authURL(t *T) {
	for _, name := range []string{"token", "access_token"} {
		t.status(t.handshake("/v1/ws?"+name+"="+t.r.opt.Token, offer), 400, 401)
	}
}

// login logs in and returns the answer and the cookie, as a header line.
func (t *T) login(token string) (answer, string) {
	a := t.request(http.MethodPost, "/v1/login", text(obj{"token": token}), "Content-Type: application/json", "Origin: "+t.origin())
	for _, c := range (&http.Response{Header: a.header}).Cookies() {
		if c.Value != "" {
			return a, "Cookie: " + c.Name + "=" + c.Value
		}
	}
	return a, ""
}

func authLogin(t *T) {
	a, cookie := t.login(t.r.opt.Token)
	t.must(a.status >= 200 && a.status < 300 && cookie != "", "a 2xx status and a cookie", fmt.Sprint("HTTP ", a.status, " ", a.header))
	set := strings.ToLower(a.header.Get("Set-Cookie"))
	t.must(strings.Contains(set, "httponly") && strings.Contains(set, "samesite=strict"), "HttpOnly and SameSite=Strict", "attributes: "+attributes(set))
	t.status(t.handshake("/v1/ws", offer, cookie, "Origin: "+t.origin()), 101)
}

// attributes are those of a Set-Cookie header, without the secret.
func attributes(set string) string {
	_, rest, _ := strings.Cut(set, ";")
	return rest
}

func authLoginWrong(t *T) {
	a, cookie := t.login(unique() + unique())
	t.status(a, 401, 429)
	t.must(cookie == "", "no cookie", "a cookie")
}

func authCookieForeign(t *T) {
	_, cookie := t.login(t.r.opt.Token)
	t.status(t.handshake("/v1/ws", offer, cookie, "Origin: http://evil.example"), 403)
}

func (t *T) closesWith(code int, kind websocket.MessageType, msg string) {
	p := t.dial()
	p.write(kind, []byte(msg))
	if got := p.closed(); got != code {
		t.fail(fmt.Sprint("the close code ", code), "%d; %s", got, p.recent())
	}
}

func largeEnough(t *T) {
	p := t.dial()
	call := `{"jsonrpc":"2.0","id":1,"method":"host.describe"}`
	p.sendRaw(strings.Repeat(" ", 1<<20-len(call)) + call)
	t.must(p.response("1").err == nil, "a result", p.recent())
}

func fragments(t *T) {
	p := t.dial()
	w, err := p.ws.Writer(t.ctx, websocket.MessageText)
	for _, part := range []string{`{"jsonrpc":"2.0",`, `"id":"é`, `","method":"host.describe"}`} {
		if err == nil {
			_, err = w.Write([]byte(part))
		}
	}
	if err == nil {
		err = w.Close()
	}
	t.sent = "a call in fragments"
	t.must(err == nil && p.response(`"é"`).err == nil, "a result", p.recent())
}

func pingPong(t *T) {
	p := t.dial()
	if err := p.ws.Ping(t.ctx); err != nil {
		t.fail("a pong", "%v", err)
	}
}

func closeEcho(t *T) {
	p := t.dial()
	p.fence()
	_ = p.ws.Close(websocket.StatusNormalClosure, "")
	if got := p.closed(); got != 1000 {
		t.fail("the close code 1000", "%d; %s", got, p.recent())
	}
}

func oneObject(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	p.turn(s, "hi")
	for _, m := range p.since(0) {
		var all obj
		if err := decode(m.raw, &all); err != nil {
			t.fail("one JSON object in a message", "%s", m.raw)
		}
		t.must(all.str("jsonrpc") == "2.0", `"jsonrpc":"2.0" in every message`, string(m.raw))
		isFrame, isReply := all.str("method") != "", all.has("id")
		t.must(isFrame != isReply, "either a response with an id or a notification with a method", string(m.raw))
		t.must(isReply || all.obj("params") != nil, "params that are an object", string(m.raw))
		t.must(isFrame || all.has("result") != all.has("error"), "either result or error", string(m.raw))
	}
}

func errorBudget(t *T) {
	p := t.dial()
	for range 100 {
		p.sendRaw("{")
	}
	if got := p.closed(); got != 4029 {
		t.fail("the close code 4029 after 100 errors", "%d; %s", got, p.recent())
	}
}

func errorBudgetEdge(t *T) {
	p := t.dial()
	for range 90 {
		p.sendRaw("{")
	}
	p.fence()
}

func apart(t *T) {
	good, bad := t.dial(), t.dial()
	good.fence()
	bad.write(websocket.MessageBinary, []byte("x"))
	bad.closed()
	good.fence()
}

func heartbeat(t *T) {
	p := t.dialAs(t.r.opt.Token, "heartbeat=15")
	m, ok := p.find(0, 2*t.deadline()+17e9, func(m message) bool { return m.method == "mux/heartbeat" })
	t.must(ok, "mux/heartbeat within 17 s of silence", p.recent())
	t.must(isTime(m.params.str("ts")), "ts in RFC 3339 UTC with milliseconds", string(m.raw))
}

func heartbeatBound(value string, good bool) Check {
	c := Check{ID: "heartbeat-" + slug(value), Section: "2", Says: "heartbeat=SECONDS takes 15 to 120; anything else is refused before the upgrade."}
	c.run = func(t *T) {
		a := t.handshake("/v1/ws?heartbeat="+value, t.bearer(), offer)
		if good {
			t.status(a, 101)
			return
		}
		t.status(a, 400)
	}
	return c
}
