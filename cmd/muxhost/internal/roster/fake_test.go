package roster_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// fakeEnv makes this test program an agent that speaks the protocol, and says how.
const fakeEnv = "ROSTER_FAKE"

func TestMain(m *testing.M) {
	if how := os.Getenv(fakeEnv); how != "" {
		fake(how)
		return
	}
	os.Exit(m.Run())
}

// fake answers what a host asks at a start. how is "ask" for an agent with the mode
// "careful", "hasty" for one without, "dead" for one that ends at once.
func fake(how string) {
	if how == "dead" {
		fmt.Fprintln(os.Stderr, "no key in", os.Getenv("FAKE_KEY"))
		os.Exit(3)
	}
	out := json.NewEncoder(os.Stdout)
	modes := []any{map[string]any{"id": "auto", "name": "auto"}}
	if how == "ask" {
		modes = append(modes, map[string]any{"id": "careful", "name": "careful"})
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				ModeID string `json:"modeId"`
				Value  string `json:"value"`
			} `json:"params"`
		}
		if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		var res any = map[string]any{}
		switch m.Method {
		case "initialize":
			res = map[string]any{
				"protocolVersion": 1, "agentInfo": map[string]any{"name": "fake", "version": "1.2.3"}, "agentCapabilities": map[string]any{
					"loadSession": true, "sessionCapabilities": map[string]any{"resume": map[string]any{}, "fork": nil},
					"promptCapabilities": map[string]any{"image": true, "audio": false}, "mcpCapabilities": map[string]any{"http": true},
				},
			}
		case "session/new":
			res = map[string]any{
				"sessionId": "s1", "modes": map[string]any{"currentModeId": "auto", "availableModes": modes},
				"configOptions": []any{map[string]any{
					"id": "model", "category": "model", "type": "select", "currentValue": "small",
					"options": []any{map[string]any{"value": "small", "name": "small"}, map[string]any{"value": "large", "name": "large"}},
				}},
			}
		case "session/set_config_option":
			fmt.Fprintln(os.Stderr, "model is", m.Params.Value)
		}
		_ = out.Encode(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": res})
	}
}
