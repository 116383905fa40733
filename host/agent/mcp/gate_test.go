package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/mcp"
)

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`

// raw sends one request with the header as it is given.
func raw(t *testing.T, method, url, body string, edit func(r *http.Request)) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	edit(r)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func offer(t *testing.T, s *mcp.Server, ses agent.Session) agent.ToolOffer {
	t.Helper()
	o, err := s.Offer(ses)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

// Who has no token of an open door learns nothing: whatever is wrong with it, and
// whatever is asked for, the answer is the same.
func TestWrongTokensLearnNothing(t *testing.T) {
	s := newServer(t, mcp.Options{})
	good := offer(t, s, agent.Session{})
	dead := offer(t, s, agent.Session{})
	dead.Close()
	base := strings.TrimSuffix(good.URL(), "/mcp")
	for name, edit := range map[string]func(*http.Request){
		"none":        func(*http.Request) {},
		"empty":       func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") },
		"another":     func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+strings.Repeat("A", 43)) },
		"cut":         func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+good.Token()[:42]) },
		"closed":      func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+dead.Token()) },
		"other words": func(r *http.Request) { r.Header.Set("Authorization", "Basic "+good.Token()) },
		"two": func(r *http.Request) {
			r.Header["Authorization"] = []string{"Bearer " + good.Token(), "Bearer " + good.Token()}
		},
		"in the address": func(r *http.Request) { r.URL.RawQuery = "token=" + good.Token() + "&access_token=" + good.Token() },
		"as a cookie":    func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "token", Value: good.Token()}) },
	} {
		for _, at := range []string{"/mcp", "/", "/.well-known/oauth-protected-resource"} {
			for _, method := range []string{"POST", "GET", "DELETE"} {
				resp, body := raw(t, method, base+at, initialize, edit)
				if resp.StatusCode != http.StatusUnauthorized || body != "Unauthorized\n" || resp.Header.Get("Mcp-Session-Id") != "" {
					t.Errorf("token %s, %s %s: %s %q, want 401 and nothing", name, method, at, resp.Status, body)
				}
			}
		}
	}
	if resp, body := raw(t, "POST", good.URL(), initialize, withToken(good)); resp.StatusCode != http.StatusOK {
		t.Errorf("the right token: %s %q", resp.Status, body)
	}
}

func withToken(o agent.ToolOffer) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+o.Token()) }
}

// Web pages are refused, and so are other names for this machine, with the right
// token too.
func TestPagesAndOtherNamesAreRefused(t *testing.T) {
	s := newServer(t, mcp.Options{})
	o := offer(t, s, agent.Session{})
	u, err := url.Parse(o.URL())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		status int
		edit   func(*http.Request)
	}{
		"localhost":       {http.StatusOK, func(r *http.Request) { r.Host = "localhost:" + u.Port() }},
		"another name":    {http.StatusForbidden, func(r *http.Request) { r.Host = "evil.example:" + u.Port() }},
		"another port":    {http.StatusForbidden, func(r *http.Request) { r.Host = "127.0.0.1:1" }},
		"no port":         {http.StatusForbidden, func(r *http.Request) { r.Host = "127.0.0.1" }},
		"its own origin":  {http.StatusForbidden, func(r *http.Request) { r.Header.Set("Origin", "http://"+u.Host) }},
		"a null origin":   {http.StatusForbidden, func(r *http.Request) { r.Header.Set("Origin", "null") }},
		"an empty origin": {http.StatusForbidden, func(r *http.Request) { r.Header["Origin"] = []string{""} }},
	} {
		resp, body := raw(t, "POST", o.URL(), initialize, func(r *http.Request) { withToken(o)(r); c.edit(r) })
		if resp.StatusCode != c.status {
			t.Errorf("%s: %s %q, want %d", name, resp.Status, body, c.status)
		}
	}
}

// A token is 256 random bits, and stands nowhere but in the header.
func TestTokensAreLongAndNotInTheAddress(t *testing.T) {
	s := newServer(t, mcp.Options{})
	a, b := offer(t, s, agent.Session{}), offer(t, s, agent.Session{})
	if bits, err := base64.RawURLEncoding.DecodeString(a.Token()); err != nil || len(bits) != 32 {
		t.Errorf("the token has %d bytes, %v; want 32", len(bits), err)
	}
	if a.Token() == b.Token() {
		t.Error("two doors have one token")
	}
	if !regexp.MustCompile(`^http://127\.0\.0\.1:\d+/mcp$`).MatchString(a.URL()) || a.URL() != b.URL() {
		t.Errorf("the addresses are %q and %q; want one on loopback that holds no secret", a.URL(), b.URL())
	}
}

// A protocol session belongs to the token that it was begun with.
func TestSessionsOfAnotherTokenAreNotFound(t *testing.T) {
	s := newServer(t, mcp.Options{})
	a, b := offer(t, s, agent.Session{}), offer(t, s, agent.Session{})
	resp, _ := raw(t, "POST", a.URL(), initialize, withToken(a))
	id := resp.Header.Get("Mcp-Session-Id")
	if id == "" {
		t.Fatal("no session was begun")
	}
	list := `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	as := func(o agent.ToolOffer) func(*http.Request) {
		return func(r *http.Request) { withToken(o)(r); r.Header.Set("Mcp-Session-Id", id) }
	}
	if resp, body := raw(t, "POST", a.URL(), list, as(a)); resp.StatusCode != http.StatusOK {
		t.Fatalf("with its own token: %s %q", resp.Status, body)
	}
	for _, method := range []string{"POST", "DELETE"} {
		if resp, body := raw(t, method, a.URL(), list, as(b)); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s with another token: %s %q, want 404", method, resp.Status, body)
		}
	}
	if resp, body := raw(t, "POST", a.URL(), list, as(a)); resp.StatusCode != http.StatusOK {
		t.Errorf("afterwards, with its own token: %s %q", resp.Status, body)
	}
}

// There is one path, no stream to wait at, and a bound for messages.
func TestOnlyMessagesAreTaken(t *testing.T) {
	s := newServer(t, mcp.Options{})
	o := offer(t, s, agent.Session{})
	base := strings.TrimSuffix(o.URL(), "/mcp")
	for _, c := range []struct {
		method, url, body string
		status            int
	}{
		{"GET", o.URL(), "", http.StatusMethodNotAllowed},
		{"PUT", o.URL(), initialize, http.StatusMethodNotAllowed},
		{"POST", base + "/", initialize, http.StatusNotFound},
		{"POST", o.URL() + "/x", initialize, http.StatusNotFound},
		{"POST", o.URL(), "{", http.StatusBadRequest},
		{"POST", o.URL(), `"` + strings.Repeat("x", 2<<20) + `"`, http.StatusRequestEntityTooLarge},
	} {
		if resp, body := raw(t, c.method, c.url, c.body, withToken(o)); resp.StatusCode != c.status {
			t.Errorf("%s %s: %s %q, want %d", c.method, c.url, resp.Status, body, c.status)
		}
	}
}

// An agent that begins a protocol session a turn, and ends none, goes on: the oldest
// gives way.
func TestManySessionsGiveWay(t *testing.T) {
	s := newServer(t, mcp.Options{})
	o := offer(t, s, agent.Session{})
	first := dial(t, o)
	for range 20 {
		last := dial(t, o)
		if _, err := last.ListTools(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := first.ListTools(t.Context(), nil); err == nil {
		t.Error("the first of 21 protocol sessions still stands")
	}
}

// half opens a connection and sends a request of which the body does not come.
func half(t *testing.T, o agent.ToolOffer) net.Conn {
	t.Helper()
	host := strings.TrimSuffix(strings.TrimPrefix(o.URL(), "http://"), "/mcp")
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n", host, o.Token())
	line, err := bufio.NewReader(c).ReadString('\n') // the handler reads the body
	if err != nil || !strings.Contains(line, "100") {
		t.Fatalf("the request was answered %q, %v", line, err)
	}
	return c
}

// Requests that do not get on are bounded, and closing the door does not wait for
// them.
func TestStuckRequestsAreBoundedAndEndWithTheDoor(t *testing.T) {
	s := newServer(t, mcp.Options{})
	o, other := offer(t, s, agent.Session{}), offer(t, s, agent.Session{})
	for range 128 {
		half(t, o)
	}
	if resp, body := raw(t, "POST", o.URL(), initialize, withToken(o)); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the 129th request: %s %q, want 503", resp.Status, body)
	}
	if resp, body := raw(t, "POST", o.URL(), initialize, withToken(other)); resp.StatusCode != http.StatusOK {
		t.Errorf("another session's request: %s %q, want 200", resp.Status, body)
	}
	start := time.Now()
	o.Close()
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("Close took %v; a request's body may take 30s, which it does not wait for", d)
	}
}

// After Close nothing of the server runs any more, and its port is free.
func TestCloseLeavesNothing(t *testing.T) {
	s, err := mcp.New(mcp.Options{Beat: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	cwd := realDir(t)
	asked := make(chan struct{}, 1)
	h := agenttest.New(agenttest.Script{Cwd: cwd, Answer: never(asked)}, &puppet{"puppet", s, nil})
	ses, err := h.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, server: s, host: h, session: ses, puppet: ses.Agent.(*hands)}
	r.client = dial(t, r.puppet.offer)
	r.begin()
	got := make(chan error, 1)
	r.turn.Go(func() {
		res, err := r.client.CallTool(t.Context(), &sdk.CallToolParams{Name: "ask_user", Arguments: args{"questions": []args{{"question": "well?"}}}})
		if err == nil && !strings.Contains(res.Content[0].(*sdk.TextContent).Text, "withdrawn") {
			err = fmt.Errorf("the answer %q", res.Content[0].(*sdk.TextContent).Text)
		}
		got <- err
	})
	<-asked
	half(t, r.puppet.offer)
	start := time.Now()
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > 4*time.Second {
		t.Errorf("Close took %v; it waits for nobody", d)
	}
	if err := <-got; err != nil {
		t.Errorf("the call that ran ended with %v; want that the question was withdrawn", err)
	}
	if _, err := r.client.ListTools(t.Context(), nil); err == nil {
		t.Error("a closed server answers")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for left := "?"; left != ""; {
		if left = running(); left != "" && ctx.Err() != nil {
			t.Fatalf("after Close there runs:\n%s", left)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("the second Close = %v", err)
	}
}

// A connection that says nothing does not keep the server from closing.
func TestSilentConnectionsDoNotDelayTheEnd(t *testing.T) {
	s, err := mcp.New(mcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(offer(t, s, agent.Session{}).URL())
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	start := time.Now()
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > 3*time.Second {
		t.Errorf("Close took %v; want at once", d)
	}
}

// running lists the goroutines of servers.
func running() string {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 2)
	var left []string
	for g := range strings.SplitSeq(b.String(), "\n\n") {
		for _, mark := range []string{"agent/mcp.(*Server)", "agent/mcp.(*door)", "agent/mcp.(*call)", "streamableServerConn", "mcp.(*ServerSession)", "net/http.(*conn).serve"} {
			if strings.Contains(g, mark) {
				left = append(left, g)
				break
			}
		}
	}
	return strings.Join(left, "\n\n")
}
