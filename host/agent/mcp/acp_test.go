package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/mcp"
	"github.com/muxhost/muxhost/rpc"
)

// actEnv makes the test binary an agent: its value says how it takes tools.
const actEnv = "MUXHOST_TEST_AGENT"

func TestMain(m *testing.M) {
	how := os.Getenv(actEnv)
	switch {
	case len(os.Args) > 1 && os.Args[1] == "mcp-bridge":
		if err := mcp.Bridge(context.Background(), os.Stdin, os.Stdout, os.Getenv(mcp.EnvURL), os.Getenv(mcp.EnvToken)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case how != "":
		(&actor{out: json.NewEncoder(os.Stdout), http: how == "http"}).run()
	default:
		os.Exit(m.Run())
	}
}

// toolServer is a server of tools, as an agent is told of it.
type toolServer struct {
	Type, URL, Command string
	Args               []string
	Headers, Env       []struct{ Name, Value string }
}

// actor is an agent that spawns a parrot with whatever it is told, and says what that
// said.
type actor struct {
	out    *json.Encoder
	http   bool
	server toolServer
}

func (a *actor) run() {
	in := json.NewDecoder(os.Stdin)
	for {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				McpServers []toolServer
				Prompt     []struct{ Text string }
			}
		}
		if in.Decode(&m) != nil {
			return
		}
		switch m.Method {
		case "initialize":
			a.answer(m.ID, args{"protocolVersion": 1, "agentCapabilities": args{"mcpCapabilities": args{"http": a.http}}})
		case "session/new":
			a.server = m.Params.McpServers[0]
			a.answer(m.ID, args{"sessionId": "s1"})
		case "session/prompt":
			text, err := a.spawn(m.Params.Prompt[0].Text)
			if err != nil {
				text = "error: " + err.Error()
			}
			_ = a.out.Encode(args{"jsonrpc": "2.0", "method": "session/update", "params": args{
				"sessionId": "s1", "update": args{"sessionUpdate": "agent_message_chunk", "content": args{"type": "text", "text": text}},
			}})
			a.answer(m.ID, args{"stopReason": "end_turn"})
		}
	}
}

func (a *actor) answer(id json.RawMessage, result any) {
	_ = a.out.Encode(args{"jsonrpc": "2.0", "id": id, "result": result})
}

// spawn calls the host's tool as an agent does.
func (a *actor) spawn(text string) (string, error) {
	ctx := context.Background()
	c, err := sdk.NewClient(&sdk.Implementation{Name: "actor", Version: "1"}, nil).Connect(ctx, a.transport(), nil)
	if err != nil {
		return "", err
	}
	defer c.Close()
	res, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "spawn_subagent", Arguments: args{"agent": "parrot", "prompt": text}})
	if err != nil {
		return "", err
	}
	return res.Content[0].(*sdk.TextContent).Text, nil
}

func (a *actor) transport() sdk.Transport {
	if a.server.Type == "http" {
		_, token, _ := strings.Cut(a.server.Headers[0].Value, " ")
		return &sdk.StreamableClientTransport{Endpoint: a.server.URL, HTTPClient: &http.Client{Transport: bearer(token)}}
	}
	cmd := exec.CommandContext(context.Background(), a.server.Command, a.server.Args...)
	for _, v := range a.server.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	return &sdk.CommandTransport{Command: cmd}
}

// An agent of another make spawns a child by the door that it was given with its
// session, over HTTP or over the bridge.
func TestAgentsOfOtherMakesSpawn(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"http", "bridge"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t, func(c *host.Config) {
				c.Drivers = append(c.Drivers, acp.New(acp.Options{
					Name: "actor", Command: exe, Env: []string{actEnv + "=" + how}, OneSession: true,
					Tools: c.Drivers[0].(*puppet).tools, ToolsCommand: []string{exe, "mcp-bridge"},
				}))
			})
			s, err := w.people.Open(t.Context(), rpc.CreateParams{Agent: "actor", Cwd: w.cwd, Policy: allow()})
			if err != nil {
				t.Fatal(err)
			}
			turn, err := s.Prompt(t.Context(), "hello")
			if err != nil {
				t.Fatal(err)
			}
			var said frames.AssistantMessage
			view, err := s.Wait(t.Context(), turn, func(f frames.Frame) error {
				e, ok := f.(*frames.SessionEvent)
				if !ok || e.SessionID != s.ID {
					return nil
				}
				ev, err := frames.DecodeEvent(e.Event)
				if err == nil && ev.Type == frames.AssistantMessageEvent {
					err = json.Unmarshal(ev.Data, &said)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(said.Content) == 0 || !strings.HasPrefix(said.Content[0].Text, "echo: hello\n\n[subagent ") {
				t.Errorf("the agent said %+v, want what its child said", said.Content)
			}
			if kids := view.Children(); len(kids) != 1 {
				t.Errorf("it has %d children, want 1", len(kids))
			}
		})
	}
}
