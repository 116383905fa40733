package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/mcp"
)

// bridged runs a bridge and returns its streams; end closes its input and waits.
func bridged(t *testing.T, url, token string) (in io.WriteCloser, out io.ReadCloser, end func()) {
	t.Helper()
	r, in := io.Pipe()
	out, w := io.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := mcp.Bridge(t.Context(), r, w, url, token); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Bridge = %v", err)
		}
		_ = w.Close()
	})
	end = func() {
		_ = in.Close()
		wg.Wait()
	}
	return in, out, end
}

// An agent that starts its tools as processes does the same over a bridge: lists,
// calls beside each other, progress, withdrawal.
func TestBridgeCarriesTheProtocol(t *testing.T) {
	asked := make(chan struct{}, 1)
	r := start(t, mcp.Options{Beat: time.Millisecond}, agenttest.Script{Answer: never(asked)}, &child{"parrot", echo})
	r.begin()
	in, out, end := bridged(t, r.puppet.offer.URL(), r.puppet.offer.Token())
	defer end()
	heard := make(chan struct{}, 1)
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *sdk.ProgressNotificationClientRequest) {
			select {
			case heard <- struct{}{}:
			default:
			}
		},
	}).Connect(t.Context(), &sdk.IOTransport{Reader: out, Writer: in}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if list, err := c.ListTools(t.Context(), nil); err != nil || len(list.Tools) != 3 {
		t.Fatalf("ListTools = %v, %v", list, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls sync.WaitGroup
	calls.Go(func() {
		p := &sdk.CallToolParams{Name: "ask_user", Arguments: args{"questions": []args{{"question": "well?"}}}}
		p.SetProgressToken(1)
		if _, err := c.CallTool(ctx, p); !errors.Is(err, context.Canceled) {
			t.Errorf("the withdrawn call = %v", err)
		}
	})
	<-asked
	<-heard
	if text, bad := use(t, t.Context(), c, "spawn_subagent", args{"agent": "parrot", "prompt": "hello"}); bad || !strings.HasPrefix(text, "echo: hello") {
		t.Errorf("beside a call that waits: %q, error %t", text, bad)
	}
	cancel()
	calls.Wait()
	decided(t, r, frames.Cancelled)
}

// An agent that goes away withdraws what it waits for.
func TestBridgeWithdrawsWhatIsUnderWayAtTheEnd(t *testing.T) {
	asked := make(chan struct{}, 1)
	r := start(t, mcp.Options{}, agenttest.Script{Answer: never(asked)})
	r.begin()
	in, out, end := bridged(t, r.puppet.offer.URL(), r.puppet.offer.Token())
	lines := bufio.NewReader(out)
	write := func(s string) {
		t.Helper()
		if _, err := io.WriteString(in, s+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	write(initialize)
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `"id":1`) {
		t.Fatalf("initialize = %q, %v", line, err)
	}
	write(`{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{"name":"ask_user","arguments":{"questions":[{"question":"well?"}]}}}`)
	<-asked
	end()
	decided(t, r, frames.Cancelled)
	if rest, err := io.ReadAll(lines); err != nil || len(rest) != 0 {
		t.Errorf("after the end it says %q, %v", rest, err)
	}
}

// Where the host does not answer, or refuses, the agent gets errors and goes on.
func TestBridgeAnswersWhereTheHostDoesNot(t *testing.T) {
	s := newServer(t, mcp.Options{})
	o := offer(t, s, sessionIn(t))
	for name, c := range map[string]struct{ url, token, want string }{
		"no host":     {"http://127.0.0.1:1/mcp", o.Token(), "the host's tools are not there: "},
		"wrong token": {o.URL(), "wrong", "401 Unauthorized"},
	} {
		in, out, end := bridged(t, c.url, c.token)
		lines := bufio.NewReader(out)
		for _, step := range [][2]string{
			{initialize, `1`},
			{`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + `{"jsonrpc":"2.0","id":"b","method":"tools/list"}`, `"b"`},
			{`no json`, `null`},
		} {
			if _, err := io.WriteString(in, step[0]+"\n"); err != nil {
				t.Fatal(err)
			}
			line, err := lines.ReadBytes('\n')
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				ID    json.RawMessage
				Error struct{ Message string }
			}
			if err := json.Unmarshal(line, &got); err != nil || string(got.ID) != step[1] || got.Error.Message == "" {
				t.Errorf("%s: %s = %s, %v; want an error for %s", name, step[0], line, err, step[1])
			}
			if step[1] != "null" && !strings.Contains(got.Error.Message, c.want) {
				t.Errorf("%s: the error is %q, want %q", name, got.Error.Message, c.want)
			}
			if strings.Contains(string(line), c.token) {
				t.Errorf("%s: the token is shown: %s", name, line)
			}
		}
		end()
	}
}

// After the beginning every request names the session and the version of the protocol
// that it got, and the last ends the session.
func TestBridgeKeepsToItsSession(t *testing.T) {
	type seen struct{ method, session, version, token string }
	var got []seen
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := r.Header
		got = append(got, seen{r.Method, h.Get("Mcp-Session-Id"), h.Get("Mcp-Protocol-Version"), h.Get("Authorization")})
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Mcp-Session-Id", "s1")
		_, _ = io.WriteString(w, "{\"jsonrpc\":\"2.0\",\n\"id\":1,\"result\":{\"protocolVersion\":\"v1\"}}\n")
	}))
	defer srv.Close()
	var out strings.Builder
	in := strings.NewReader(initialize + "\n\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n")
	if err := mcp.Bridge(t.Context(), in, &out, srv.URL, "token"); err != nil {
		t.Fatal(err)
	}
	want := []seen{{"POST", "", "", "Bearer token"}, {"POST", "s1", "v1", "Bearer token"}, {"DELETE", "s1", "v1", "Bearer token"}}
	if !slices.Equal(got, want) {
		t.Errorf("the host saw %v, want %v", got, want)
	}
	if line := `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"v1"}}` + "\n"; out.String() != line {
		t.Errorf("the agent saw %q, want the answer in one line", out.String())
	}
}

// A token goes to this machine only.
func TestBridgeSendsTokensNowhereElse(t *testing.T) {
	for _, url := range []string{
		"", "http://example.com/mcp", "https://127.0.0.1/mcp", "http://127.0.0.1.example.com/mcp", "http://10.0.0.1/mcp",
		"http://localhost/mcp", "http://u:p@127.0.0.1/mcp", "unix:///mcp", "127.0.0.1:80",
	} {
		err := mcp.Bridge(t.Context(), strings.NewReader(""), io.Discard, url, "token")
		if err == nil || !strings.Contains(err.Error(), "MUXHOST_MCP_URL") {
			t.Errorf("Bridge to %q = %v, want it refused", url, err)
		}
	}
	err := mcp.Bridge(t.Context(), strings.NewReader(""), io.Discard, "http://127.0.0.1:1/mcp", "")
	if err == nil || !strings.Contains(err.Error(), "MUXHOST_MCP_TOKEN") {
		t.Errorf("Bridge without a token = %v, want it refused", err)
	}
}

// A line that is too long ends the bridge with words.
func TestBridgeRefusesVeryLongLines(t *testing.T) {
	err := mcp.Bridge(t.Context(), strings.NewReader(strings.Repeat("x", 3<<20)), io.Discard, "http://127.0.0.1:1/mcp", "token")
	if err == nil || !strings.Contains(err.Error(), "at most 2097152 bytes") {
		t.Errorf("Bridge = %v", err)
	}
}
