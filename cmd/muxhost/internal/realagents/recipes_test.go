//go:build realagents && linux

package realagents_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/muxhost/muxhost/host/agent/agenttest/stubllm"
)

// realAgent is how an agent is run, and how its tools are called.
type realAgent struct {
	name    string
	version string
	// program is how it is started, beside what muxhost knows of it: cache is where the
	// agents are installed, home its home, llm the model's address.
	program func(cache, home, llm string) (command string, args, env []string)
	// files are written below its home before it starts; "{{llm}}" stands for the
	// model's address.
	files map[string]string
	// write and shell are calls of its tools that need permission.
	write func(path, text string) stubllm.Tool
	shell func(command string) stubllm.Tool
	// delegate makes it start a subagent with a prompt, and wait for it: steps of a
	// script. nil: it has no subagents.
	delegate func(prompt string) []stubllm.Step
	// question makes it ask which of two colours is meant; nil: it cannot ask.
	question func() stubllm.Tool
	// asking is the config of a session in which it may ask.
	asking json.RawMessage
	// hosts calls a tool of the host's.
	hosts func(name string, a args) stubllm.Tool
	// flat says that its subagents are not sessions of their own, mute that what they
	// ask reaches nobody.
	flat, mute bool
}

func realAgents() []*realAgent { return []*realAgent{codex(), claude(), gemini(), opencode()} }

type args = map[string]any

func codex() *realAgent {
	escalated := func(command string) stubllm.Tool {
		return stubllm.Call("exec_command", args{
			"cmd": command, "sandbox_permissions": "require_escalated", "justification": "May I run this command?",
		})
	}
	team := func(name string, a args) stubllm.Tool {
		t := stubllm.Call(name, a)
		t.Space = "multi_agent_v1"
		return t
	}
	return &realAgent{
		name: "codex", version: "codex-acp 2.6.0",
		program: func(cache, home, _ string) (string, []string, []string) {
			return node(), []string{module(cache, "codex", "@agentclientprotocol/codex-acp/dist/index.js")},
				[]string{"CODEX_HOME=" + filepath.Join(home, ".codex"), "STUB_KEY=stub", "MODEL_PROVIDER=stub"}
		},
		files: map[string]string{".codex/config.toml": `model = "stub-model"
model_provider = "stub"
approval_policy = "on-request"
sandbox_mode = "read-only"
check_for_update_on_startup = false
[analytics]
enabled = false
[feedback]
enabled = false
[model_providers.stub]
name = "Stub"
base_url = "{{llm}}/v1"
wire_api = "responses"
env_key = "STUB_KEY"
requires_openai_auth = false
`},
		write: func(path, text string) stubllm.Tool {
			return escalated(fmt.Sprintf("printf %%s '%s' > %s", text, path))
		},
		shell: escalated,
		delegate: func(prompt string) []stubllm.Step {
			return []stubllm.Step{
				{Text: "I delegate.", Tools: []stubllm.Tool{team("spawn_agent", args{"message": prompt})}},
				{Text: "I wait.", Tools: []stubllm.Tool{team("wait_agent", args{"targets": []string{"{{agent_id}}"}, "timeout_ms": 120000})}},
			}
		},
		question: func() stubllm.Tool {
			return stubllm.Call("request_user_input", args{"questions": []args{{
				"id": "color", "header": "Color", "question": "Which color?", "options": colors(),
			}}})
		},
		asking: json.RawMessage(`{"collaboration_mode":"plan"}`),
		hosts: func(name string, a args) stubllm.Tool {
			t := stubllm.Call(name, a)
			t.Space = "mcp__muxhost"
			return t
		},
	}
}

func claude() *realAgent {
	return &realAgent{
		name: "claude", version: "claude-agent-acp 0.101.0",
		program: func(cache, home, llm string) (string, []string, []string) {
			return module(cache, "claude", "node/bin/node"),
				[]string{module(cache, "claude", "@agentclientprotocol/claude-agent-acp/dist/index.js")},
				[]string{
					"ANTHROPIC_API_KEY=stub-key", "ANTHROPIC_BASE_URL=" + llm, "ANTHROPIC_MODEL=stub-model",
					"ANTHROPIC_SMALL_FAST_MODEL=stub-model", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1",
					"DISABLE_ERROR_REPORTING=1", "DISABLE_BUG_COMMAND=1", "IS_SANDBOX=1", "CLAUDE_CONFIG_DIR=" + filepath.Join(home, ".claude"),
				}
		},
		write: func(path, text string) stubllm.Tool {
			return stubllm.Call("Write", args{"file_path": path, "content": text})
		},
		shell: func(command string) stubllm.Tool {
			return stubllm.Call("Bash", args{"command": command, "description": "run a command"})
		},
		delegate: func(prompt string) []stubllm.Step {
			return []stubllm.Step{{Text: "I delegate.", Tools: []stubllm.Tool{stubllm.Call("Agent", args{
				"description": "Look around", "prompt": prompt, "subagent_type": "general-purpose",
			})}}}
		},
		question: func() stubllm.Tool {
			return stubllm.Call("AskUserQuestion", args{"questions": []args{{
				"header": "Color", "question": "Which color?", "multiSelect": false, "options": colors(),
			}}})
		},
		hosts: prefixed("mcp__muxhost__"),
	}
}

func gemini() *realAgent {
	return &realAgent{
		name: "gemini", version: "gemini-cli 0.61.0",
		program: func(cache, _, llm string) (string, []string, []string) {
			return node(), []string{module(cache, "gemini", "@google/gemini-cli/bundle/gemini.js"), "--acp", "--model", "gemini-2.5-flash"},
				[]string{
					"GEMINI_API_KEY=stub", "GOOGLE_GEMINI_BASE_URL=" + llm, "GEMINI_TELEMETRY_ENABLED=false",
					"GEMINI_CLI_TRUST_WORKSPACE=true",
				}
		},
		files: map[string]string{".gemini/settings.json": `{
  "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false},
  "privacy": {"usageStatisticsEnabled": false},
  "telemetry": {"enabled": false},
  "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": false}},
  "ui": {"hideTips": true}
}
`},
		write: func(path, text string) stubllm.Tool {
			return stubllm.Call("write_file", args{"file_path": path, "content": text})
		},
		shell: func(command string) stubllm.Tool {
			return stubllm.Call("run_shell_command", args{"command": command, "description": "run a command"})
		},
		delegate: func(prompt string) []stubllm.Step {
			return []stubllm.Step{{Text: "I delegate.", Tools: []stubllm.Tool{stubllm.Call("invoke_agent", args{
				"agent_name": "generalist", "prompt": prompt,
			})}}}
		},
		flat: true,
		hosts: func(name string, a args) stubllm.Tool {
			if name == "ask_user" {
				name = "ask_people" // it takes every ask_user away from its model
			}
			return prefixed("mcp_muxhost_")(name, a)
		},
	}
}

func opencode() *realAgent {
	return &realAgent{
		name: "opencode", version: "opencode 1.18.33",
		program: func(cache, _, _ string) (string, []string, []string) {
			return module(cache, "opencode", "opencode-linux-x64/bin/opencode"), nil, []string{
				"OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_DISABLE_SHARE=1",
				"OPENCODE_DISABLE_DEFAULT_PLUGINS=1", "OPENCODE_DISABLE_CLAUDE_CODE=1",
			}
		},
		files: map[string]string{".config/opencode/opencode.json": `{
  "$schema": "https://opencode.ai/config.json", "autoupdate": false, "share": "disabled",
  "model": "stub/stub-model", "small_model": "stub/stub-model", "enabled_providers": ["stub"],
  "provider": {"stub": {
    "npm": "@ai-sdk/openai-compatible", "name": "Stub", "options": {"baseURL": "{{llm}}/v1", "apiKey": "stub"},
    "models": {"stub-model": {"name": "Stub Model", "tool_call": true, "limit": {"context": 128000, "output": 8192}}}
  }},
  "lsp": false, "formatter": false
}
`},
		write: func(path, text string) stubllm.Tool {
			return stubllm.Call("write", args{"filePath": path, "content": text})
		},
		shell: func(command string) stubllm.Tool {
			return stubllm.Call("bash", args{"command": command, "description": "run a command"})
		},
		delegate: func(prompt string) []stubllm.Step {
			return []stubllm.Step{{Text: "I delegate.", Tools: []stubllm.Tool{stubllm.Call("task", args{
				"description": "Look around", "prompt": prompt, "subagent_type": "general",
			})}}}
		},
		flat: true, mute: true,
		hosts: prefixed("muxhost_"),
	}
}

// prefixed calls tools of the host's by names that begin so.
func prefixed(prefix string) func(string, args) stubllm.Tool {
	return func(name string, a args) stubllm.Tool { return stubllm.Call(prefix+name, a) }
}

func colors() []args {
	return []args{{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}}
}

// module is the path of a file of an installed package.
func module(cache, agent, file string) string {
	return filepath.Join(cache, agent, "node_modules", filepath.FromSlash(file))
}

// node is the node that .ci/agents found on the path.
func node() string { return os.Getenv("MUXHOST_AGENTS_NODE") }
