package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/store/mem"
)

// servePipes serves a host on pipes until the test's end, in virtual time.
func servePipes(t *testing.T) *pipes {
	t.Helper()
	h, err := host.New(t.Context(), host.Config{
		Store: mem.New(), Drivers: []agent.Driver{&script{}}, Token: canary, AllowHosts: []string{"mux.test"}, MaxConnsPerToken: 200,
	})
	if err != nil {
		t.Fatal(err)
	}
	ln := newPipes()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := h.Serve(ctx, ln); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(func() { stop(); wg.Wait() })
	return ln
}

// send writes a request with a body, of which the last cut bytes are withheld.
func send(c net.Conn, method, path, headers, body string, cut int) {
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: mux.test\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", method, path, headers, len(body))
	_, _ = io.WriteString(c, head+body[:len(body)-cut])
}

// callOn makes one call by POST over a connection of its own.
func callOn[R any](t *testing.T, c net.Conn, method, params string) (r R) {
	t.Helper()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		send(c, "POST", "/v1/rpc", bearer+"\r\nConnection: close\r\n", callOf(method, params), 0)
	})
	b, err := io.ReadAll(c)
	_, body, _ := strings.Cut(string(b), "\r\n\r\n")
	var m message
	if err != nil || json.Unmarshal([]byte(body), &m) != nil || m.Error != nil || json.Unmarshal(m.Result, &r) != nil {
		t.Errorf("%s: %.300q, %v", method, b, err)
	}
	return r
}

// Requests that do not come to their end, without a token, do not keep a client
// out.
func TestUnfinishedRequestsKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := servePipes(t)
		var wg sync.WaitGroup
		for range 200 {
			c := ln.dial()
			wg.Go(func() {
				send(c, "POST", "/v1/login", "", `{"token":"x"}`, 1)
				_, _ = io.Copy(io.Discard, c)
			})
		}
		synctest.Wait()
		if d := callOn[rpc.DescribeResult](t, ln.dial(), "host.describe", "{}"); d.HostID == "" {
			t.Errorf("host.describe = %+v", d)
		}
		wg.Wait()
	})
}

// Calls that wait have seats of their own: however many there are, a new client
// gets in, and they get their answers.
func TestCallsThatWaitKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := servePipes(t)
		s := callOn[rpc.SessionResult](t, ln.dial(), "session.create", fmt.Sprintf(`{"cwd":%q}`, t.TempDir())).Session
		callOn[rpc.PromptResult](t, ln.dial(), "session.prompt", fmt.Sprintf(`{"sessionId":%q,"content":[{"type":"text","text":"spawn wait"}]}`, s.SessionID))
		synctest.Wait()
		tasks := callOn[rpc.TasksResult](t, ln.dial(), "tasks.list", fmt.Sprintf(`{"sessionId":%q}`, s.SessionID)).Tasks
		if len(tasks) != 1 {
			t.Fatalf("tasks = %+v", tasks)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		answered := 0
		for range 150 {
			c := ln.dial()
			wg.Go(func() {
				params := fmt.Sprintf(`{"sessionId":%q,"taskId":%q,"timeoutMs":20000}`, s.SessionID, tasks[0].TaskID)
				if r := callOn[rpc.TaskWaitResult](t, c, "tasks.wait", params); !r.Done {
					mu.Lock()
					answered++
					mu.Unlock()
				}
			})
			synctest.Wait() // it has its seat: of those at the door only so many are borne
		}
		if d := callOn[rpc.DescribeResult](t, ln.dial(), "host.describe", "{}"); d.HostID == "" {
			t.Errorf("host.describe = %+v", d)
		}
		wg.Wait()
		if answered != 150 {
			t.Errorf("%d of 150 calls were answered", answered)
		}
		callOn[rpc.CancelResult](t, ln.dial(), "session.cancel", fmt.Sprintf(`{"sessionId":%q}`, s.SessionID))
	})
}
