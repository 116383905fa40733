package auth_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/host/internal/auth"
)

const (
	good  = "good-0123456789-abcdefghijklmnopqrstuvw"
	other = "other-0123456789-abcdefghijklmnopqrstuv"
)

// fixture is a gate with two tokens in front of a handler that names its caller.
func fixture(t *testing.T) (*auth.Gate, http.Handler) {
	t.Helper()
	g, err := auth.New(auth.Config{
		Tokens: []auth.Token{
			{Secret: good, Principal: auth.Principal{TokenID: "t1", Label: "mine", Scopes: []string{"admin"}}},
			{Secret: other, Principal: auth.Principal{TokenID: "t2", Label: "guest", Scopes: []string{"observe"}}},
		},
		AllowHosts:   []string{"mux.example.com", "box:8443"},
		AllowOrigins: []string{"https://app.example.com"},
	})
	must(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/login", g.Login)
	mux.Handle("/", g.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := auth.From(r.Context())
		_, _ = w.Write([]byte(p.TokenID))
	})))
	return g, g.Perimeter(mux)
}

// request is one that came in on 127.0.0.1:7717.
func request(method, target string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.Host = "127.0.0.1:7717"
	return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7717})))
}

func do(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Only the exact names of the listener and of the list are taken for Host.
func TestHostListIsExact(t *testing.T) {
	_, h := fixture(t)
	rows := map[string]bool{
		"127.0.0.1:7717": true, "localhost:7717": true, "[::1]:7717": true, "mux.example.com": true, "box:8443": true,
		"": false, "127.0.0.1": false, "localhost": false, "127.0.0.1:7718": false, "127.evil.com:7717": false,
		"localhost.evil.com:7717": false, "127.0.0.1.evil.com:7717": false, "localhost.:7717": false, "127.0.0.1.:7717": false,
		"LOCALHOST:7717": false, "user@localhost:7717": false, "localhost:7717@evil.com": false, "evil.com": false,
		"mux.example.com:443": false, "mux.example.com.": false, "MUX.example.com": false, "box": false, "box:08443": false,
		"localhost:07717": false, "localhost:7717/": false, " localhost:7717": false, "0.0.0.0:7717": false,
		"[::1%lo]:7717": false, "[0:0:0:0:0:0:0:1]:7717": false, "127.1:7717": false, "2130706433:7717": false, "localhost:7717:7717": false,
	}
	for host, want := range rows {
		r := request("GET", "/x")
		r.Host = host
		r.Header.Set("Authorization", "Bearer "+good)
		if w := do(h, r); (w.Code == http.StatusOK) != want || !want && w.Code != http.StatusForbidden {
			t.Errorf("Host %q: status %d, want allowed %v", host, w.Code, want)
		}
	}
}

// Only pages of this host's own names, or of the list, may talk to it.
func TestOriginListIsExact(t *testing.T) {
	_, h := fixture(t)
	rows := map[string]bool{
		"http://127.0.0.1:7717": true, "http://localhost:7717": true, "http://[::1]:7717": true, "https://app.example.com": true,
		"http://mux.example.com": true, "http://box:8443": true,
		"null": false, "": false, "http://evil.test": false, "http://evil.test:7717": false, "https://127.0.0.1:7717": false,
		"https://localhost:7717": false, "http://localhost": false, "http://localhost:7718": false, "chrome-extension://localhost:7717": false,
		"http://user@localhost:7717": false, "http://localhost:7717@evil.test": false, "http://localhost:7717/": false,
		"http://localhost:7717/x": false, "http://LOCALHOST:7717": false, "HTTP://localhost:7717": false, "http://localhost.:7717": false,
		"http://127.0.0.1.evil.com:7717": false, "http://127.evil.com:7717": false, "http://localhost.evil.com:7717": false,
		"https://app.example.com:443": false, "http://app.example.com": false, "https://app.example.com.evil.com": false,
		"https://evilapp.example.com": false, "localhost:7717": false, "http://": false, "://localhost:7717": false, "file://": false,
		"http://localhost:7717 http://evil.test": false,
	}
	for origin, want := range rows {
		r := request("GET", "/x")
		r.Header["Origin"] = []string{origin}
		r.Header.Set("Authorization", "Bearer "+good)
		if w := do(h, r); (w.Code == http.StatusOK) != want || !want && w.Code != http.StatusForbidden {
			t.Errorf("Origin %q: status %d, want allowed %v", origin, w.Code, want)
		}
	}
	r := request("GET", "/x")
	r.Header["Origin"] = []string{"http://localhost:7717", "http://evil.test"}
	r.Header.Set("Authorization", "Bearer "+good)
	if w := do(h, r); w.Code != http.StatusForbidden {
		t.Errorf("two origins: status %d, want 403", w.Code)
	}
}

// Forwarded headers never make a foreign Host or Origin acceptable.
func TestForwardedHeadersAreNotRead(t *testing.T) {
	_, h := fixture(t)
	for _, spoil := range []func(*http.Request){
		func(r *http.Request) { r.Host = "evil.test" },
		func(r *http.Request) { r.Header.Set("Origin", "http://evil.test") },
		func(r *http.Request) { r.Header.Set("Origin", "https://localhost:7717") },
		func(r *http.Request) { r.Header.Del("Authorization") },
	} {
		r := request("GET", "/x")
		r.Header.Set("Authorization", "Bearer "+good)
		for k, v := range map[string]string{
			"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "localhost:7717", "X-Forwarded-Proto": "https",
			"Forwarded": "for=127.0.0.1;host=localhost:7717;proto=https", "X-Real-Ip": "127.0.0.1",
		} {
			r.Header.Set(k, v)
		}
		spoil(r)
		if w := do(h, r); w.Code != http.StatusForbidden && w.Code != http.StatusUnauthorized {
			t.Errorf("%s with Origin %q: status %d, want a refusal", r.Host, r.Header.Get("Origin"), w.Code)
		}
	}
}

// Missing, unknown and malformed credentials get one and the same answer.
func TestEveryBadCredentialGetsTheSame401(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h := fixture(t)
		want := do(h, request("GET", "/x"))
		if want.Code != http.StatusUnauthorized || want.Header().Get("WWW-Authenticate") != "Bearer" {
			t.Fatalf("no credentials: %d %v", want.Code, want.Header())
		}
		for _, v := range []string{
			"Bearer ", "Bearer x", "Bearer " + good[:len(good)-1], "Bearer " + good + "x", "Bearer  " + good, "Basic " + good,
			good, "Bearer " + strings.Repeat("a", 1<<20), "Bearer null", "Bearer " + auth.NewSecret(),
		} {
			r := request("GET", "/x")
			r.Header.Set("Authorization", v)
			if w := do(h, r); w.Code != want.Code || w.Body.String() != want.Body.String() {
				t.Errorf("Authorization %.30q: %d %s, want %d %s", v, w.Code, w.Body, want.Code, want.Body)
			}
		}
		for _, p := range []string{"muxhost.token.", "muxhost.token.!!", "muxhost.token." + good, "muxhost.token." + base64.RawURLEncoding.EncodeToString([]byte("x"))} {
			r := request("GET", "/x")
			r.Header.Set("Sec-WebSocket-Protocol", "muxhost.v1, "+p)
			if w := do(h, r); w.Code != want.Code || w.Body.String() != want.Body.String() {
				t.Errorf("protocol %q: %d %s", p, w.Code, w.Body)
			}
		}
	})
}

// Header and subprotocol each identify; two that differ are refused, and a token
// in the URL is refused even beside a right one.
func TestOneCredentialNeverInTheURL(t *testing.T) {
	_, h := fixture(t)
	proto := func(s string) string { return auth.TokenProtocol + base64.RawURLEncoding.EncodeToString([]byte(s)) }
	rows := []struct {
		name, target, bearer, protocols string
		status                          int
		who                             string
	}{
		{"header", "/x", good, "", 200, "t1"},
		{"subprotocol", "/x", "", "muxhost.v1, " + proto(other), 200, "t2"},
		{"the same twice", "/x", good, proto(good), 200, "t1"},
		{"two that differ", "/x", good, proto(other), 400, ""},
		{"two subprotocols", "/x", "", proto(good) + "," + proto(other), 400, ""},
		{"a right and a wrong one", "/x", good, proto("wrong"), 400, ""},
		{"token in the query", "/x?token=" + good, "", "", 400, ""},
		{"token under another name", "/x?q=" + good, good, "", 400, ""},
		{"access_token", "/x?access_token=1", good, "", 400, ""},
		{"other query", "/x?heartbeat=60", good, "", 200, "t1"},
	}
	for _, c := range rows {
		r := request("GET", c.target)
		if c.bearer != "" {
			r.Header.Set("Authorization", "Bearer "+c.bearer)
		}
		if c.protocols != "" {
			r.Header.Set("Sec-WebSocket-Protocol", c.protocols)
		}
		w := do(h, r)
		if w.Code != c.status || c.status == 200 && w.Body.String() != c.who {
			t.Errorf("%s: %d %s, want %d %s", c.name, w.Code, w.Body, c.status, c.who)
		}
		if strings.Contains(w.Body.String(), good) || strings.Contains(w.Body.String(), other) {
			t.Errorf("%s: the answer repeats the token: %s", c.name, w.Body)
		}
	}
}

// login posts body and returns the answer.
func login(h http.Handler, body string, edit func(*http.Request)) *httptest.ResponseRecorder {
	r := request("POST", "/v1/login")
	r.Body = http.NoBody
	if body != "" {
		r2 := httptest.NewRequest("POST", "/v1/login", strings.NewReader(body))
		r.Body = r2.Body
	}
	r.Header.Set("Content-Type", "application/json")
	if edit != nil {
		edit(r)
	}
	return do(h, r)
}

// A login cookie is HttpOnly, strict and not the token; it counts only for pages
// of the same origin, and only until it expires.
func TestCookieWorksForTheSameOriginUntilItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h := fixture(t)
		w := login(h, `{"token":"`+good+`","label":"my\u202e phone"}`, nil)
		cookies := w.Result().Cookies()
		if w.Code != 200 || len(cookies) != 1 {
			t.Fatalf("login: %d %s", w.Code, w.Body)
		}
		c := cookies[0]
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure || c.Value == good || c.Domain != "" || c.Name != "muxhost-7717" {
			t.Errorf("cookie = %+v", c)
		}
		var out struct{ Label string }
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || out.Label != "my phone" {
			t.Errorf("label = %q (%v), want it cleaned", out.Label, err)
		}
		use := func(headers ...string) int {
			r := request("GET", "/x")
			r.AddCookie(c)
			for i := 0; i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			return do(h, r).Code
		}
		rows := []struct {
			headers []string
			want    int
		}{
			{nil, 401},
			{[]string{"Origin", "http://127.0.0.1:7717"}, 200},
			{[]string{"Sec-Fetch-Site", "same-origin"}, 200},
			{[]string{"Origin", "http://localhost:7717"}, 401},
			{[]string{"Origin", "https://app.example.com"}, 401},
			{[]string{"Sec-Fetch-Site", "same-site"}, 401},
			{[]string{"Sec-Fetch-Site", "none"}, 401},
			{[]string{"Sec-Fetch-Site", "cross-site", "Origin", "http://127.0.0.1:7717"}, 401},
			{[]string{"Origin", "http://127.0.0.1:7717", "Authorization", "Bearer " + good}, 200},
			{[]string{"Origin", "http://127.0.0.1:7717", "Authorization", "Bearer " + other}, 400},
		}
		for _, c := range rows {
			if got := use(c.headers...); got != c.want {
				t.Errorf("cookie with %v: %d, want %d", c.headers, got, c.want)
			}
		}
		time.Sleep(12*time.Hour - time.Second)
		if got := use("Sec-Fetch-Site", "same-origin"); got != 200 {
			t.Errorf("one second before it expires: %d", got)
		}
		time.Sleep(time.Second)
		if got := use("Sec-Fetch-Site", "same-origin"); got != 401 {
			t.Errorf("when it expires: %d, want 401", got)
		}
	})
}

// Under TLS the cookie is Secure and bound to the name.
func TestCookieIsSecureUnderTLS(t *testing.T) {
	_, h := fixture(t)
	w := login(h, `{"token":"`+good+`"}`, func(r *http.Request) { r.TLS = &tls.ConnectionState{} })
	if c := w.Result().Cookies(); len(c) != 1 || !c[0].Secure || c[0].Name != "__Host-muxhost-7717" || c[0].Path != "/" {
		t.Errorf("cookies = %+v", c)
	}
}

// A login body that is not exactly what is asked for changes nothing.
func TestLoginRefusesOddBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h := fixture(t)
		for body, want := range map[string]int{
			"": 400, "{}": 401, "[]": 400, `{"token":1}`: 400, `{"TOKEN":"` + good + `"}`: 400, `{"token":"` + good + `","x":"1"}`: 400,
			`{"token":"` + good + `"} {}`: 400, `{"token":"wrong"}`: 401, strings.Repeat(" ", 9000): 400,
		} {
			if w := login(h, body, nil); w.Code != want || len(w.Result().Cookies()) > 0 {
				t.Errorf("login %.40q: %d, want %d and no cookie", body, w.Code, want)
			}
		}
		form := func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }
		if w := login(h, `{"token":"`+good+`"}`, form); w.Code != http.StatusUnsupportedMediaType {
			t.Errorf("a form post of another page: %d, want 415", w.Code)
		}
		evil := func(r *http.Request) { r.Header.Set("Origin", "http://evil.test") }
		if w := login(h, `{"token":"`+good+`"}`, evil); w.Code != http.StatusForbidden {
			t.Errorf("a login from another page: %d, want 403", w.Code)
		}
	})
}

// Ten thousand wrong guesses from loopback are cut off after a burst, whatever odd
// fields they carry; a right token is never locked out.
func TestFailedAttemptsAreLimitedOnLoopbackToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h := fixture(t)
		counts := map[int]int{}
		for i := range 10_000 {
			body := `{"token":"wrong"}`
			if i%2 == 1 {
				body = `{"token":"wrong","label":"x"}`
			}
			counts[login(h, body, nil).Code]++
		}
		if counts[401] != 20 || counts[429] != 9980 {
			t.Errorf("answers = %v, want 20 times 401, then 429", counts)
		}
		r := request("GET", "/x")
		r.Header.Set("Authorization", "Bearer "+good)
		if w := do(h, r); w.Code != 200 {
			t.Errorf("the right token during the flood: %d", w.Code)
		}
		time.Sleep(3 * time.Second)
		if w := do(h, request("GET", "/x")); w.Code != 401 {
			t.Errorf("an attempt after a pause: %d, want 401", w.Code)
		}
	})
}

// Configured hosts and origins that a browser would never send are refused at
// start, rather than never matching.
func TestListsRefuseWhatBrowsersNeverSend(t *testing.T) {
	toks := []auth.Token{{Secret: good}}
	for _, h := range []string{"", "*", "*.example.com", "http://x", "X.com", "x.com.", "x/y", "u@x", "x:0", "x:99999", "[::1", "localhost:*"} {
		if _, err := auth.New(auth.Config{Tokens: toks, AllowHosts: []string{h}}); err == nil {
			t.Errorf("allowed host %q was accepted", h)
		}
	}
	for _, o := range []string{"", "*", "null", "x.com", "https://*", "https://x.com/", "https://x.com:443", "http://x.com:80", "https://X.com", "https://u@x.com"} {
		if _, err := auth.New(auth.Config{Tokens: toks, AllowOrigins: []string{o}}); err == nil {
			t.Errorf("allowed origin %q was accepted", o)
		}
	}
}

// No Host and no Origin, however odd, is let through unless it is on the list, and
// none makes the gate panic.
func FuzzPerimeter(f *testing.F) {
	for _, s := range []string{"127.0.0.1:7717", "localhost:7717", "evil", "[::1]:7717", "http://localhost:7717", "null", "[", "]:", "http://[", "\x00", "LOCALHOST:7717"} {
		f.Add(s, s)
	}
	g, err := auth.New(auth.Config{Tokens: []auth.Token{{Secret: good}}, AllowHosts: []string{"mux.example.com"}, AllowOrigins: []string{"https://app.example.com"}})
	if err != nil {
		f.Fatal(err)
	}
	hosts := map[string]bool{"127.0.0.1:7717": true, "localhost:7717": true, "[::1]:7717": true, "mux.example.com": true}
	h := g.Perimeter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	f.Fuzz(func(t *testing.T, host, origin string) {
		r := request("GET", "/")
		r.Host = host
		r.Header["Origin"] = []string{origin}
		name, own := strings.CutPrefix(origin, "http://")
		allowed := hosts[host] && (own && hosts[name] || origin == "https://app.example.com")
		if code := do(h, r).Code; (code == 200) != allowed {
			t.Errorf("Host %q, Origin %q: %d, want allowed %v", host, origin, code, allowed)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
