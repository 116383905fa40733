package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/mcp"
)

// runBridge runs the verb with an environment.
func runBridge(t *testing.T, env map[string]string, in string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	a := &app{stdin: strings.NewReader(in), stdout: &out, stderr: io.Discard, getenv: func(name string) string { return env[name] }}
	root := newRoot(a)
	root.SetArgs([]string{"mcp-bridge"})
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// The bridge finds its door by the environment and speaks lines of the protocol.
func TestMCPBridgeSpeaksForItsDoor(t *testing.T) {
	s, err := mcp.New(mcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	door, err := s.Offer(agent.Session{Cwd: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"MUXHOST_MCP_URL": door.URL(), "MUXHOST_MCP_TOKEN": door.Token()}
	out, err := runBridge(t, env, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
`)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 {
		t.Fatalf("it says %q, want two lines", out)
	}
	var list struct {
		ID     int
		Result struct{ Tools []struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(lines[1]), &list); err != nil || list.ID != 2 || len(list.Result.Tools) != 3 {
		t.Errorf("tools/list = %s, %v; want three tools", lines[1], err)
	}
}

// Without the environment it says what it wants.
func TestMCPBridgeWantsItsEnvironment(t *testing.T) {
	if _, err := runBridge(t, nil, ""); err == nil || !strings.Contains(err.Error(), "$MUXHOST_MCP_URL") {
		t.Errorf("mcp-bridge = %v", err)
	}
}

// People are not shown a verb that is for agents.
func TestMCPBridgeIsHidden(t *testing.T) {
	root := newRoot(&app{getenv: func(string) string { return "" }})
	for _, c := range root.Commands() {
		if c.Name() == "mcp-bridge" && !c.Hidden {
			t.Error("mcp-bridge stands in the help")
		}
	}
}
