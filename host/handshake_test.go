package host_test

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/rpc"
)

// handshake sends raw request lines and returns the status.
func (r *rig) handshake(path string, headers ...string) int {
	r.t.Helper()
	c, err := net.Dial("tcp", r.srv.Listener.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
	lines := append([]string{"GET " + path + " HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}, headers...)
	if _, err := fmt.Fprint(c, strings.Join(lines, "\r\n")+"\r\n\r\n"); err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		r.t.Fatalf("%q: %v", headers, err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

const bearer = "Authorization: Bearer " + canary

// No page of another origin, however it is spelled, opens a socket, even with a
// token; the host's own pages and header clients do.
func TestOnlyOwnOriginsOpenASocket(t *testing.T) {
	r := start(t, func(c *host.Config) { c.AllowOrigins = []string{"https://app.example.com"} })
	_, port, _ := net.SplitHostPort(r.srv.Listener.Addr().String())
	at := func(s string) string { return strings.ReplaceAll(s, "PORT", port) }
	v1 := "Sec-WebSocket-Protocol: muxhost.v1"
	for origin, want := range map[string]int{
		"": 101, "http://127.0.0.1:PORT": 101, "http://localhost:PORT": 101, "http://[::1]:PORT": 101, "https://app.example.com": 101,
		"http://evil.test": 403, "null": 403, "http://evil.test:PORT": 403, "https://127.0.0.1:PORT": 403, "http://127.0.0.1": 403,
		"http://127.0.0.1:1": 403, "chrome-extension://127.0.0.1:PORT": 403, "http://user@127.0.0.1:PORT": 403,
		"http://127.0.0.1:PORT@evil.test": 403, "http://127.evil.com:PORT": 403, "http://localhost.evil.com:PORT": 403,
		"http://127.0.0.1.evil.com:PORT": 403, "http://localhost.:PORT": 403, "http://LOCALHOST:PORT": 403, "http://127.0.0.1:PORT/": 403,
		"http://app.example.com": 403, "https://app.example.com.evil.com": 403, "https://app.example.com:443": 403, "file://": 403,
	} {
		headers := []string{at("Host: 127.0.0.1:PORT"), bearer, v1}
		if origin != "" {
			headers = append(headers, at("Origin: "+origin))
		}
		if got := r.handshake("/v1/ws", headers...); got != want {
			t.Errorf("Origin %q: %d, want %d", origin, got, want)
		}
	}
	own := at("Origin: http://127.0.0.1:PORT")
	if got := r.handshake("/v1/ws", at("Host: 127.0.0.1:PORT"), bearer, v1, own, "Origin: http://evil.test"); got != 403 {
		t.Errorf("a good and an evil origin: %d, want 403", got)
	}
	if got := r.handshake("/v1/ws", "Host:", bearer, v1, "Origin: null"); got != 403 && got != 400 {
		t.Errorf("empty Host and null Origin: %d", got)
	}
	if n := r.agent.opened.Load(); n != 0 {
		t.Errorf("%d agents were started", n)
	}
}

// A name that was pointed at this machine gets nothing, on any path.
func TestForeignHostsGetNothingOnAnyPath(t *testing.T) {
	r := start(t, func(c *host.Config) { c.AllowHosts = []string{"mux.example.com"} })
	_, port, _ := net.SplitHostPort(r.srv.Listener.Addr().String())
	for _, path := range []string{"/", "/healthz", "/v1/ws", "/v1/login", "/v1/rpc", "/v1/events", "/v1/ws/../../healthz"} {
		for _, name := range []string{
			"evil.test", "evil.test:PORT", "127.evil.com:PORT", "localhost.evil.com:PORT", "127.0.0.1.evil.com:PORT", "localhost.:PORT",
			"127.0.0.1.:PORT", "LOCALHOST:PORT", "user@localhost:PORT", "127.0.0.1", "localhost:1", "0.0.0.0:PORT", "mux.example.com:443",
		} {
			name = strings.ReplaceAll(name, "PORT", port)
			if got := r.handshake(path, "Host: "+name, bearer, "Sec-WebSocket-Protocol: muxhost.v1"); got != 403 && got != 400 {
				t.Errorf("%s with Host %s: %d, want 403", path, name, got)
			}
		}
	}
	if got := r.handshake("/v1/ws", "Host: mux.example.com", bearer, "Sec-WebSocket-Protocol: muxhost.v1"); got != 101 {
		t.Errorf("an allowed host: %d, want 101", got)
	}
	if got := r.handshake("http://evil.test/v1/ws", "Host: 127.0.0.1:"+port, bearer, "Sec-WebSocket-Protocol: muxhost.v1"); got != 403 {
		t.Errorf("a foreign host in the request line: %d, want 403", got)
	}
}

// Nothing answers without a valid token, on loopback too,
// and the refusals are all alike.
func TestNothingAnswersWithoutAToken(t *testing.T) {
	r := start(t, nil)
	_, port, _ := net.SplitHostPort(r.srv.Listener.Addr().String())
	hostLine := "Host: 127.0.0.1:" + port
	v1 := "Sec-WebSocket-Protocol: muxhost.v1"
	enc := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	for name, c := range map[string]struct {
		want    int
		headers []string
	}{
		"nothing":                  {401, []string{v1}},
		"garbage":                  {401, []string{v1, "Authorization: Bearer garbage"}},
		"one character":            {401, []string{v1, "Authorization: Bearer x"}},
		"empty":                    {401, []string{v1, "Authorization: Bearer "}},
		"a cookie of nobody":       {401, []string{v1, "Cookie: muxhost-" + port + "=" + canary}},
		"a wrong subprotocol":      {401, []string{v1 + ", muxhost.token." + enc("x")}},
		"the subprotocol":          {101, []string{v1 + ", muxhost.token." + enc(canary)}},
		"the header":               {101, []string{v1, bearer}},
		"the header, no protocol":  {400, []string{bearer}},
		"the header, another one":  {400, []string{bearer, "Sec-WebSocket-Protocol: muxhost.v2"}},
		"header and other subprot": {400, []string{v1 + ", muxhost.token." + enc("x"), bearer}},
	} {
		if got := r.handshake("/v1/ws", append([]string{hostLine}, c.headers...)...); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	for path, want := range map[string]int{"/healthz": 401, "/": 401, "/v1/rpc": 401, "/v1/events": 401, "/v1/login": 401, "/v1/ws?token=" + canary: 400} {
		if got := r.handshake(path, hostLine); got != want {
			t.Errorf("GET %s without a token: %d, want %d", path, got, want)
		}
	}
	for path, want := range map[string]int{"/healthz": 200, "/": 404, "/v1/rpc": 405, "/v1/events": 400, "/v1/login": 405} {
		if got := r.handshake(path, hostLine, bearer); got != want {
			t.Errorf("GET %s with the token: %d, want %d", path, got, want)
		}
	}
	if n := r.agent.opened.Load(); n != 0 {
		t.Errorf("%d agents were started", n)
	}
}

// The subprotocol that carries the token is never sent back.
func TestTokenSubprotocolIsNotEchoed(t *testing.T) {
	r := start(t, nil)
	req, _ := http.NewRequestWithContext(t.Context(), "GET", r.srv.URL+"/v1/ws", nil)
	for k, v := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
		"Sec-WebSocket-Protocol": "muxhost.token." + base64.RawURLEncoding.EncodeToString([]byte(canary)) + ", muxhost.v1",
	} {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Values("Sec-WebSocket-Protocol"); resp.StatusCode != 101 || len(got) != 1 || got[0] != "muxhost.v1" {
		t.Errorf("status %d, protocol %q; want 101 and muxhost.v1", resp.StatusCode, got)
	}
}

// A heartbeat beyond its bounds is refused before the upgrade.
func TestHeartbeatIsValidated(t *testing.T) {
	r := start(t, nil)
	hostLine := "Host: " + r.srv.Listener.Addr().String()
	for q, want := range map[string]int{"15": 101, "120": 101, "14": 400, "121": 400, "-1": 400, "x": 400, "": 400, "1e2": 400} {
		if got := r.handshake("/v1/ws?heartbeat="+q, hostLine, bearer, "Sec-WebSocket-Protocol: muxhost.v1"); got != want {
			t.Errorf("heartbeat %q: %d, want %d", q, got, want)
		}
	}
}

// One token cannot take every seat, and a seat is free again when its connection
// has ended.
func TestSeatsAreBoundedAndComeBack(t *testing.T) {
	guest := host.NewToken()
	r := start(t, func(c *host.Config) {
		c.MaxConns, c.MaxConnsPerToken = 3, 2
		c.Tokens = []host.Token{{Secret: guest, Scopes: []rpc.Scope{rpc.ScopeObserve}}}
	})
	hostLine := "Host: " + r.srv.Listener.Addr().String()
	v1 := "Sec-WebSocket-Protocol: muxhost.v1"
	first := r.dial(canary)
	r.dial(canary)
	if got := r.handshake("/v1/ws", hostLine, bearer, v1); got != 429 {
		t.Errorf("a third connection of one token: %d, want 429", got)
	}
	r.dial(guest)
	if got := r.handshake("/v1/ws", hostLine, "Authorization: Bearer "+guest, v1); got != 503 {
		t.Errorf("a fourth connection: %d, want 503", got)
	}
	must[rpc.DescribeResult](first, "host.describe", map[string]any{})
	_ = first.ws.CloseNow()
	for deadline := time.Now().Add(10 * time.Second); r.handshake("/v1/ws", hostLine, bearer, v1) != 101; {
		if time.Now().After(deadline) {
			t.Fatal("the seat did not come back")
		}
	}
}
