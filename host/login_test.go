package host_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/rpc"
)

// login posts a token and returns a client that has the cookie.
func login(t *testing.T, base string, c *http.Client, token string) *http.Response {
	t.Helper()
	body, err := json.Marshal(map[string]string{"token": token, "label": "my phone"})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", base+"/v1/login", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", base)
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp
}

// open dials with the cookies of c and an origin.
func open(t *testing.T, base string, c *http.Client, origin string) (*websocket.Conn, int) {
	t.Helper()
	ws, resp, err := websocket.Dial(t.Context(), base+"/v1/ws", &websocket.DialOptions{
		HTTPClient: c, HTTPHeader: http.Header{"Origin": {origin}}, Subprotocols: []string{"muxhost.v1"},
	})
	if resp == nil {
		t.Fatal(err)
	}
	if err == nil {
		t.Cleanup(func() { _ = ws.CloseNow() })
	}
	return ws, resp.StatusCode
}

// A page logs in once and then connects by cookie; pages of other servers on the
// same machine, which get the same cookie, do not.
func TestLoginCookieConnectsOwnPagesOnly(t *testing.T) {
	r := start(t, func(c *host.Config) { c.AllowOrigins = []string{"http://localhost:5173"} })
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Jar: jar}
	if resp := login(t, r.srv.URL, c, "wrong"); resp.StatusCode != http.StatusUnauthorized || len(resp.Cookies()) != 0 {
		t.Errorf("a wrong token: %d %v", resp.StatusCode, resp.Cookies())
	}
	if _, status := open(t, r.srv.URL, c, r.srv.URL); status != http.StatusUnauthorized {
		t.Errorf("without a cookie: %d, want 401", status)
	}
	if resp := login(t, r.srv.URL, c, canary); resp.StatusCode != http.StatusOK {
		t.Fatalf("login: %d", resp.StatusCode)
	}
	ws, status := open(t, r.srv.URL, c, r.srv.URL)
	if status != http.StatusSwitchingProtocols {
		t.Fatalf("with the cookie: %d, want 101", status)
	}
	p := &peer{t: t, ws: ws}
	if you := must[rpc.DescribeResult](p, "host.describe", map[string]any{}).You; you.Label != "my phone" {
		t.Errorf("label = %q, want the login's", you.Label)
	}
	for origin, want := range map[string]int{
		"http://localhost:5173": 401, // may connect, with a token of its own
		"http://evil.test":      403,
		strings.Replace(r.srv.URL, "127.0.0.1", "localhost", 1): 401,
	} {
		if _, status := open(t, r.srv.URL, c, origin); status != want {
			t.Errorf("the cookie from %s: %d, want %d", origin, status, want)
		}
	}
}

// A host with a certificate serves wss, takes https origins only, and speaks
// nothing older than TLS 1.2.
func TestTLSServesSecurePagesOnly(t *testing.T) {
	borrowed := httptest.NewTLSServer(nil) // for its certificate
	defer borrowed.Close()
	r := start(t, func(c *host.Config) { c.TLS = &tls.Config{Certificates: borrowed.TLS.Certificates} })
	ln, err := r.host.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.host.Serve(ctx, ln); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	defer wg.Wait()
	defer stop()
	base := "https://" + ln.Addr().String()
	c := borrowed.Client()
	if c.Jar, err = cookiejar.New(nil); err != nil {
		t.Fatal(err)
	}
	resp := login(t, base, c, canary)
	if cs := resp.Cookies(); resp.StatusCode != 200 || len(cs) != 1 || !cs[0].Secure || !cs[0].HttpOnly || !strings.HasPrefix(cs[0].Name, "__Host-") {
		t.Fatalf("login: %d %+v", resp.StatusCode, cs)
	}
	if _, status := open(t, base, c, base); status != http.StatusSwitchingProtocols {
		t.Errorf("wss by cookie: %d, want 101", status)
	}
	if _, status := open(t, base, c, "http://"+ln.Addr().String()); status != http.StatusForbidden {
		t.Errorf("an http origin: %d, want 403", status)
	}
	old := &tls.Config{MaxVersion: tls.VersionTLS11, InsecureSkipVerify: true} //nolint:gosec // the handshake has to fail
	if conn, err := tls.Dial("tcp", ln.Addr().String(), old); err == nil {
		t.Error("TLS 1.1 was accepted")
		_ = conn.Close()
	}
}
