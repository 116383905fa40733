package acp_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// doors are the host's tools, which note what becomes of their offers.
type doors struct {
	mu    sync.Mutex
	fail  bool
	n     int
	state map[string]string // "open", "turn", "closed", by token
	turn  agent.Turn        // the one that began last
}

func (d *doors) Offer(s agent.Session) (agent.ToolOffer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail {
		return nil, errors.New("no door")
	}
	d.n++
	o := &door{d, fmt.Sprintf("token-%d-%s", d.n, s.ID)}
	d.state[o.token] = "open"
	return o, nil
}

func (d *doors) set(token, state string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state[token] = state
}

func (d *doors) is(token string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state[token]
}

type door struct {
	d     *doors
	token string
}

func (o *door) URL() string   { return "http://127.0.0.1:9/mcp" }
func (o *door) Token() string { return o.token }
func (o *door) Close()        { o.d.set(o.token, "closed") }

func (o *door) Begin(t agent.Turn) func() {
	o.d.set(o.token, "turn")
	o.d.mu.Lock()
	defer o.d.mu.Unlock()
	o.d.turn = t
	return func() { o.d.set(o.token, "open") }
}

// Every session that is opened gets the host's tools with a token of its own, by HTTP
// or by a bridge, as the agent can; they may be used while a turn runs, and the token
// ends with the conversation.
func TestTheHostsToolsAreOffered(t *testing.T) {
	const (
		byHTTP   = `[{"type":"http","name":"mine","url":"http://x","headers":[]},{"headers":[{"name":"Authorization","value":"Bearer token-1-session-1"}],"name":"muxhost","type":"http","url":"http://127.0.0.1:9/mcp"}]`
		byBridge = `[{"type":"http","name":"mine","url":"http://x","headers":[]},{"args":["mcp-bridge"],"command":"/bin/muxhost","env":[{"name":"MUXHOST_MCP_URL","value":"http://127.0.0.1:9/mcp"},{"name":"MUXHOST_MCP_TOKEN","value":"token-1-session-1"}],"name":"muxhost"}]`
		none     = `[{"type":"http","name":"mine","url":"http://x","headers":[]}]`
	)
	for name, c := range map[string]struct {
		caps   string
		bridge []string
		want   string
	}{
		"by HTTP": {`"mcpCapabilities":{"http":true},` + canResume, nil, byHTTP},
		"bridged": {canResume, []string{"/bin/muxhost", "mcp-bridge"}, byBridge},
		"no way":  {canResume, nil, none},
		"alone":   {`"mcpCapabilities":{"http":true}`, []string{"/bin/muxhost"}, byHTTP},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tools := &doors{state: map[string]string{}}
				var given string
				s := open(t, agenttest.Script{}, driver(t, acp.Options{
					Tools: tools, ToolsCommand: c.bridge,
					MCPServers: raws(`{"type":"http","name":"mine","url":"http://x","headers":[]}`),
				}, func(f *fake) {
					m, _ := f.until("initialize")
					f.result(m, `{"protocolVersion":1,"agentCapabilities":{`+c.caps+`}}`)
					m, _ = f.until("session/new")
					given = field(m.Params, "mcpServers")
					f.result(m, `{"sessionId":"s1"}`)
					f.serve(func(m message) {
						if got := tools.is("token-1-session-1"); c.want != none && got != "turn" {
							t.Errorf("the door is %q while a turn runs; want that it may be used", got)
						}
						f.end(m, "end_turn")
					})
				}))
				if !equalJSON([]byte(given), []byte(c.want)) {
					t.Errorf("the session was given %s\nwant %s", given, c.want)
				}
				prompt(t, s)
				if got := tools.is("token-1-session-1"); c.want != none && got != "open" {
					t.Errorf("the door is %q after the turn; want open, without a turn", got)
				}
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if got := tools.is("token-1-session-1"); c.want != none && got != "closed" || c.want == none && tools.n > 0 {
					t.Errorf("the door is %q after the end, %d offers; want closed", got, tools.n)
				}
			})
		})
	}
}

// A session that is resumed by another process gets another token; the old one is dead.
func TestATokenEndsWithItsProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tools := &doors{state: map[string]string{}}
		s := open(t, agenttest.Script{}, driver(t, acp.Options{Tools: tools}, serveCrowd(
			`"mcpCapabilities":{"http":true},`+canResume, func(*crowd) {}, func(c *crowd, id string, _ message) {
				if c.fake.n == 0 {
					panicked(c.fake)
				}
				c.finish(id, "end_turn")
			})))
		if _, err := s.Prompt(t.Context(), "go"); err == nil {
			t.Error("the turn ended well; want a crash")
		}
		prompt(t, s)
		if a, b := tools.is("token-1-session-1"), tools.is("token-2-session-1"); a != "closed" || b != "open" {
			t.Errorf("the doors are %q and %q; want the first one closed", a, b)
		}
	})
}

// An agent works without the host's tools where they cannot be offered, and that is
// told.
func TestToolsThatCannotBeOffered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tools := &doors{fail: true}
		s := open(t, agenttest.Script{}, driver(t, acp.Options{Tools: tools}, serveCrowd(
			`"mcpCapabilities":{"http":true},`+canResume, func(*crowd) {}, ends)))
		prompt(t, s)
		if got := s.Failures(); len(got) != 1 {
			t.Errorf("told %v; want why there are no tools", got)
		}
	})
}

// An agent that waits for a tool of the host is not taken for one that hangs.
func TestWaitingForAToolOfTheHostIsNoSilence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tools := &doors{state: map[string]string{}}
		answer := func(ctx context.Context, _ *agenttest.Session, _ []frames.Question) agent.Answers {
			<-time.After(3 * time.Hour)
			return agent.Answers{Outcome: frames.Answered}
		}
		s := open(t, agenttest.Script{Answer: answer}, driver(t, acp.Options{Tools: tools}, serveCrowd(
			`"mcpCapabilities":{"http":true},`+canResume, func(*crowd) {}, never)))
		var wg sync.WaitGroup
		began := time.Now()
		end := background(&wg, t.Context(), s)
		synctest.Wait()
		if _, err := tools.turn.Question(t.Context(), frames.Question{ID: "q", Question: "Which?"}); err != nil {
			t.Errorf("Question = %v", err)
		}
		if _, err := end(); err == nil || time.Since(began) < 4*time.Hour {
			t.Errorf("the turn ended after %v with %v; want an hour after the answer", time.Since(began), err)
		}
		if n := count[frames.ErrorReported](s); n != 1 {
			t.Errorf("%d reports of silence; want one, after the answer", n)
		}
		wg.Wait()
	})
}
