package conform

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// answer is an HTTP response, read whole.
type answer struct {
	status int
	header http.Header
	body   string
}

// obj returns a body that is a JSON object.
func (a answer) obj() obj {
	var o obj
	_ = json.Unmarshal([]byte(a.body), &o)
	return o
}

// address is the server's, as a Host header has it.
func (t *T) address() string {
	_, host, _ := strings.Cut(t.r.opt.URL, "://")
	return host
}

// origin is that of the server's own pages.
func (t *T) origin() string { return t.r.opt.URL }

// bearer is the header with the token that the kit was given.
func (t *T) bearer() string { return "Authorization: Bearer " + t.r.opt.Token }

// upgrade are the headers of a proper handshake, but for credentials.
var upgrade = []string{
	"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
}

// offer offers the subprotocol.
const offer = "Sec-WebSocket-Protocol: " + subprotocol

// socket opens a connection for raw bytes, which ends with the check.
func (t *T) socket() net.Conn {
	host := t.address()
	u, err := url.Parse(t.r.opt.URL)
	if err == nil && u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	dialer := &net.Dialer{Timeout: t.deadline()}
	var c net.Conn
	if strings.HasPrefix(t.r.opt.URL, "https:") {
		c, err = tls.DialWithDialer(dialer, "tcp", host, t.r.opt.TLS)
	} else {
		c, err = dialer.DialContext(t.ctx, "tcp", host)
	}
	if err != nil {
		t.fail("a TCP connection", "%v", err)
	}
	t.after = append(t.after, func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(t.deadline()))
	return c
}

// request sends a request made of raw header lines; without a Host among them it
// is the server's. The body of an answer that goes on, such as a 101, is not read.
func (t *T) request(method, path, body string, headers ...string) answer {
	resp := t.open(method, path, body, headers...)
	a := answer{status: resp.StatusCode, header: resp.Header}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
		a.body = string(b)
	}
	_ = resp.Body.Close()
	return a
}

// open sends a request and returns the response with its body still to be read.
func (t *T) open(method, path, body string, headers ...string) *http.Response {
	c := t.socket()
	lines := []string{method + " " + path + " HTTP/1.1"}
	if !hasHeader(headers, "Host") {
		lines = append(lines, "Host: "+t.address())
	}
	lines = append(lines, headers...)
	if body != "" || method == http.MethodPost {
		lines = append(lines, fmt.Sprintf("Content-Length: %d", len(body)))
	}
	t.sent = clip(strings.ReplaceAll(strings.Join(lines, " | "), t.r.opt.Token, "TOKEN") + " | " + body)
	if _, err := io.WriteString(c, strings.Join(lines, "\r\n")+"\r\n\r\n"+body); err != nil {
		t.fail("the request is read", "%v", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.fail("an HTTP response", "%v", err)
	}
	t.after = append(t.after, func() { _ = resp.Body.Close() })
	return resp
}

func hasHeader(lines []string, name string) bool {
	for _, l := range lines {
		if n, _, _ := strings.Cut(l, ":"); strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

// handshake asks for a WebSocket with raw header lines and returns the answer.
func (t *T) handshake(path string, headers ...string) answer {
	return t.request(http.MethodGet, path, "", append(upgrade[:len(upgrade):len(upgrade)], headers...)...)
}

// status fails unless the answer has one of the statuses.
func (t *T) status(a answer, want ...int) {
	if slices.Contains(want, a.status) {
		return
	}
	t.fail(fmt.Sprintf("HTTP status %v", want), "%d %s", a.status, a.body)
}
