//go:build realagents && linux

package realagents_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/muxhost/muxhost/host/agent/agenttest/stubllm"
)

// rig is a host with one real agent, its model, and two clients.
type rig struct {
	agent *realAgent
	dir   string // everything is below it
	mark  string // in the environment of everything that the agent starts
	addr  string
	model *model

	host        *child // the one that runs now, or nil
	desk, phone *watcher
}

// model is the stub, and what it was asked last.
type model struct {
	server *httptest.Server

	mu    sync.Mutex // guards what follows
	calls []stubllm.Request
}

func newModel() *model {
	m := &model{}
	m.server = httptest.NewServer(stubllm.New(stubllm.Options{OnRequest: m.note}))
	return m
}

// maxCalls is how many requests a model remembers.
const maxCalls = 200

func (m *model) note(r stubllm.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.calls) == maxCalls {
		m.calls = m.calls[1:]
	}
	m.calls = append(m.calls, r)
}

// any reports whether a request satisfies f.
func (m *model) any(f func(body string) bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.calls {
		if len(r.Tools) > 0 && f(string(r.Body)) {
			return true
		}
	}
	return false
}

// tools are those of the last request that offered some.
func (m *model) tools() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range slices.Backward(m.calls) {
		if len(r.Tools) > 0 {
			return r.Tools
		}
	}
	return nil
}

// heard reports whether one request held all words.
func (m *model) heard(words ...string) bool {
	return m.any(func(body string) bool {
		for _, w := range words {
			if !strings.Contains(body, w) {
				return false
			}
		}
		return true
	})
}

// chose reports whether one request names one word more often than the other: both
// stand in the question, one in the answer.
func (m *model) chose(one, other string) bool {
	return m.any(func(body string) bool { return strings.Count(body, one) > strings.Count(body, other) })
}

func newRig(t *testing.T, a *realAgent, dir string) *rig {
	r := &rig{agent: a, dir: dir, model: newModel()}
	r.mark = fmt.Sprintf("REAL_AGENT_MARK=%d-%s", os.Getpid(), a.name)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = ln.Addr().String()
	_ = ln.Close()
	for _, d := range []string{"home/tmp", "work"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.configure(); err != nil {
		t.Fatal(err)
	}
	return r
}

// up starts a host on the rig's store and address, unless one runs, and clients once.
func (r *rig) up(ctx context.Context) (err error) {
	if r.host != nil {
		return nil
	}
	if r.host, err = startHost(ctx, r.dir, r.addr); err != nil {
		return err
	}
	if r.desk != nil {
		return nil // they come back by themselves
	}
	token, err := os.ReadFile(filepath.Join(r.dir, "state/token"))
	if err != nil {
		return err
	}
	secret := strings.TrimSpace(string(token))
	if r.desk, err = watch(ctx, "desk", "http://"+r.addr, secret); err != nil {
		return err
	}
	r.phone, err = watch(ctx, "phone", "http://"+r.addr, secret)
	return err
}

// down ends the host, in order or as a crash does, and reports what survived it.
func (r *rig) down(crash bool) (err error) {
	if r.host == nil {
		return nil
	}
	h := r.host
	r.host = nil
	if crash {
		h.kill()
	} else if err = h.stop(); err != nil {
		err = fmt.Errorf("the host's end: %w", err)
	}
	if left := lasting(r.mark, crash); len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("still running after the host's end: %s", strings.Join(left, "; ")))
	}
	return err
}

// close ends everything and reports what survived.
func (r *rig) close() error {
	err := r.down(false)
	for _, w := range []*watcher{r.desk, r.phone} {
		if w != nil {
			w.close()
		}
	}
	r.model.server.CloseClientConnections()
	r.model.server.Close()
	return err
}
