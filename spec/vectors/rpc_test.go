package vectors_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/demo"
	"github.com/muxhost/muxhost/host/agent/shell"
	"github.com/muxhost/muxhost/store/mem"
)

// rpcVector is one file of rpc/.
type rpcVector struct {
	Name  string    `json:"name"`
	Doc   string    `json:"doc"`
	Steps []rpcStep `json:"steps"`
}

type rpcStep struct {
	Conn   string `json:"conn,omitempty"`
	Token  string `json:"token,omitempty"`
	Reopen bool   `json:"reopen,omitempty"`
	Send   any    `json:"send,omitempty"`
	Expect any    `json:"expect,omitempty"`
	Frames []any  `json:"frames,omitempty"`
	Also   []any  `json:"also,omitempty"`
	Not    []any  `json:"not,omitempty"`
}

// wait is how long a step waits for a message.
const wait = 10 * time.Second

// player plays one vector against one host.
type player struct {
	url   string
	token string
	binds binds
	conns map[string]*peer
}

// peer is one connection.
type peer struct {
	ws        *websocket.Conn
	wg        sync.WaitGroup
	messages  chan map[string]any // closed when the connection is gone
	frames    []map[string]any    // received and not yet looked at
	responses []map[string]any
}

// newPlayer starts a fresh host.
func newPlayer(t *testing.T) *player {
	t.Helper()
	token := host.NewToken()
	h, err := host.New(t.Context(), host.Config{
		Store: mem.New(), Drivers: []agent.Driver{demo.New(demo.Options{}), shell.New(shell.Options{})}, Token: token,
		DrainTimeout: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h.Handler())
	p := &player{url: srv.URL, token: token, binds: binds{"cwd": t.TempDir()}, conns: map[string]*peer{}}
	t.Cleanup(func() {
		for _, c := range p.conns {
			c.close()
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), wait)
		defer cancel()
		if err := h.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		srv.Close()
	})
	return p
}

func (p *player) dial(ctx context.Context, token string) (*peer, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, p.url+"/v1/ws", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{"muxhost.v1"},
	})
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(2 << 20)
	c := &peer{ws: ws, messages: make(chan map[string]any, 4096)}
	c.wg.Go(func() {
		defer close(c.messages)
		for {
			_, b, err := ws.Read(context.Background())
			var m map[string]any
			if err != nil || json.Unmarshal(b, &m) != nil {
				return
			}
			c.messages <- m
		}
	})
	return c, nil
}

// close cuts the connection and waits for its reader.
func (c *peer) close() {
	_ = c.ws.CloseNow()
	for range c.messages {
	}
	c.wg.Wait()
}

// step plays one step.
func (p *player) step(ctx context.Context, s rpcStep) error {
	name := s.Conn
	if name == "" {
		name = "a"
	}
	c := p.conns[name]
	if c != nil && s.Reopen {
		c.close()
		c = nil
	}
	if c == nil {
		token := p.token
		if s.Token != "" {
			token = p.binds.fill(s.Token)
		}
		var err error
		if c, err = p.dial(ctx, token); err != nil {
			return err
		}
		p.conns[name] = c
	}
	if text, ok := s.Send.(string); ok {
		if err := c.ws.Write(ctx, websocket.MessageText, []byte(p.binds.fill(text))); err != nil {
			return err
		}
	}
	if s.Expect != nil {
		m, err := c.response()
		if err != nil {
			return err
		}
		if err := p.binds.match(s.Expect, any(m)); err != nil {
			return fmt.Errorf("response %s: %w", clip(m), err)
		}
	}
	return p.frames(c, s)
}

// frames waits for the frames of a step: two lists, each in its order.
func (p *player) frames(c *peer, s rpcStep) error {
	chains := [][]any{s.Frames, s.Also}
	var passed []string
	for len(chains[0])+len(chains[1]) > 0 {
		m, err := c.frame()
		if err != nil {
			return fmt.Errorf("waiting for %s, after\n%s\n%w", clip(chains), strings.Join(passed, "\n"), err)
		}
		for _, not := range s.Not {
			if p.binds.match(not, any(m)) == nil {
				return fmt.Errorf("got %s, which must not come", clip(m))
			}
		}
		for i, chain := range chains {
			if len(chain) > 0 && p.binds.match(chain[0], any(m)) == nil {
				chains[i] = chain[1:]
				break
			}
		}
		passed = append(passed, clip(m))
	}
	return nil
}

// response returns the next response, and keeps the frames before it.
func (c *peer) response() (map[string]any, error) {
	for len(c.responses) == 0 {
		if err := c.read(); err != nil {
			return nil, err
		}
	}
	m := c.responses[0]
	c.responses = c.responses[1:]
	return m, nil
}

// frame returns the next frame, and keeps the responses before it.
func (c *peer) frame() (map[string]any, error) {
	for len(c.frames) == 0 {
		if err := c.read(); err != nil {
			return nil, err
		}
	}
	m := c.frames[0]
	c.frames = c.frames[1:]
	return m, nil
}

func (c *peer) read() error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case m, ok := <-c.messages:
		if !ok {
			return fmt.Errorf("the connection is closed")
		}
		if _, isFrame := m["method"]; isFrame {
			c.frames = append(c.frames, m)
		} else {
			c.responses = append(c.responses, m)
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("nothing came for %v", wait)
	}
}

// This host answers every vector as the file says.
func TestRPCVectors(t *testing.T) {
	for _, name := range vectorFiles(t, "rpc") {
		var v rpcVector
		readVector(t, name, &v)
		if name != filepath.Join("rpc", v.Name+".json") || !strings.HasSuffix(v.Doc, ".") || len(v.Steps) == 0 {
			t.Errorf("%s: name %q, doc %q, %d steps; want the file's name, a sentence, and some", name, v.Name, v.Doc, len(v.Steps))
		}
		t.Run(v.Name, func(t *testing.T) {
			p := newPlayer(t)
			for i, s := range v.Steps {
				s.Send = expand(s.Send)
				if err := p.step(t.Context(), s); err != nil {
					t.Fatalf("step %d: %s\n%v", i, clip(s.Send), err)
				}
			}
		})
	}
}
