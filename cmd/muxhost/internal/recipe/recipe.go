// Package recipe knows agents that people have: how each is started so that it speaks
// the Agent Client Protocol, in which mode it asks before it acts, and which variables
// of the environment it needs.
//
// No recipe lets an agent approve its own actions. What an agent's own configuration
// allows without asking stays that person's affair; what it would decide by itself is
// turned off here.
//
// [Detect] looks at files only: it starts nothing, downloads nothing, and asks nobody.
package recipe

import (
	"slices"
	"time"
)

// Recipe is how to run one agent.
type Recipe struct {
	// Name is what the agent is called here, Title what people call it.
	Name, Title, Provider string
	// Program is looked for on the PATH and run with Args.
	Program string
	Args    []string
	// Package is what npm calls it, at the pinned Version; "" if it is not there.
	// Node is the least version of node that it needs, 0 for none.
	Package, Version string
	Node             int
	// Mode is the approval mode that is set in every session, "" where Env makes it
	// ask; Asks says in words why it asks. Modes are further ones that let it do no
	// more.
	Mode, Asks string
	Modes      []string
	// Alone says that every session needs a process of its own, Shared that its sessions
	// may have one together: it keeps apart what each is given, tool servers too.
	Alone, Shared bool
	// Env holds NAME=value, PassEnv names that are taken from the host's environment,
	// beside those that all recipes have.
	Env, PassEnv []string
	// Get says how to get it.
	Get string
}

// recipes are all of them, in the order in which they are shown.
var recipes = []Recipe{
	{
		Name: "claude", Title: "Claude Code", Provider: "anthropic",
		Program: "claude-agent-acp", Package: "@agentclientprotocol/claude-agent-acp", Version: "0.101.0", Node: 22,
		Mode: "default", Modes: []string{"plan"}, // it begins in "auto", in which a model approves
		Shared: true,
		Env:    []string{"DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_TERMINAL_TITLE=1"},
		PassEnv: []string{
			"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL",
			"CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR",
		},
	},
	{
		Name: "codex", Title: "Codex", Provider: "openai",
		Program: "codex-acp", Package: "@agentclientprotocol/codex-acp", Version: "2.6.0", Node: 20,
		Mode: "read-only", Shared: true, // it begins in "agent", in which a model approves
		Env:     []string{"INITIAL_AGENT_MODE=read-only", "NO_BROWSER=1"}, // a login waits for no browser
		PassEnv: []string{"OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_API_KEY", "CODEX_HOME", "MODEL_PROVIDER"},
	},
	{
		Name: "gemini", Title: "Gemini CLI", Provider: "google",
		Program: "gemini", Args: []string{"--acp"}, Package: "@google/gemini-cli", Version: "0.61.0", Node: 20,
		Mode: "default", Modes: []string{"plan"},
		Alone: true, // what it asks for names the directory of its process, whatever the session's
		Env:   []string{"GEMINI_CLI_NO_RELAUNCH=true"},
		PassEnv: []string{
			"GEMINI_API_KEY", "GEMINI_MODEL", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_GENAI_USE_VERTEXAI",
			"GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_APPLICATION_CREDENTIALS",
		},
	},
	{
		Name: "opencode", Title: "opencode",
		Program: "opencode", Args: []string{"acp"}, Package: "opencode-ai", Version: "1.18.33", Node: 18,
		Mode: "build", Modes: []string{"plan"}, Asks: "its permissions are set to ask",
		Env: []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_CONFIG_CONTENT=" + opencodeConfig},
		PassEnv: []string{
			"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY", "OPENCODE_API_KEY", "OPENCODE_CONFIG",
		},
	},
	{
		Name: "qwen", Title: "Qwen Code", Provider: "alibaba",
		Program: "qwen", Args: []string{"--acp"}, Package: "@qwen-code/qwen-code", Version: "0.24.4", Node: 22,
		Mode: "default", Modes: []string{"plan"}, // it begins in "auto", also when it resumes
		Alone:   true, // it is made from the same source as gemini
		PassEnv: []string{"OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "DASHSCOPE_API_KEY"},
	},
	{
		Name: "goose", Title: "goose",
		Program: "goose", Args: []string{"acp"},
		Asks: "GOOSE_MODE is approve", Env: []string{"GOOSE_MODE=approve"},
		PassEnv: []string{"GOOSE_PROVIDER", "GOOSE_MODEL", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "OLLAMA_HOST"},
		Get:     "install goose 1.8 or later",
	},
	{
		Name: "copilot", Title: "GitHub Copilot CLI", Provider: "github",
		Program: "copilot", Args: []string{"--acp", "--stdio"},
		Asks:    "it asks unless it is started with --allow-all-tools",
		PassEnv: []string{"COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"},
		Get:     "install the GitHub Copilot CLI and log in with it",
	},
}

// opencodeConfig is merged over a person's and a project's configuration of opencode:
// it asks before it writes, runs or fetches. Its subagents may only read: what they
// would ask never reaches whoever started opencode, and the turn would hang.
const opencodeConfig = `{"permission":` + opencodeAsk + `,"agent":{"build":{"permission":` + opencodeAsk + `},` +
	`"plan":{"permission":{"bash":"ask","webfetch":"ask","websearch":"ask"}},` +
	`"general":{"permission":` + opencodeDeny + `},"explore":{"permission":` + opencodeDeny + `}}}`

const (
	opencodeAsk  = `{"edit":"ask","bash":"ask","webfetch":"ask","websearch":"ask","external_directory":"ask","doom_loop":"ask"}`
	opencodeDeny = `{"edit":"deny","bash":"deny","webfetch":"deny","websearch":"deny","external_directory":"deny","doom_loop":"deny"}`
)

// everyone lists variables that every recipe passes: where files lie, how to reach the
// network, whom to trust there.
var everyone = []string{
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
	"NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR",
}

// npm lists what npx needs beside that.
var npm = []string{"NPM_CONFIG_REGISTRY", "npm_config_registry", "NPM_CONFIG_CACHE", "npm_config_cache", "NPM_CONFIG_USERCONFIG"}

// How long a start may take; npx may have to download several hundred megabytes.
const (
	startTimeout    = 2 * time.Minute
	npxStartTimeout = 15 * time.Minute
)

// ByName returns the recipe of that name.
func ByName(name string) (Recipe, bool) {
	i := slices.IndexFunc(recipes, func(r Recipe) bool { return r.Name == name })
	if i < 0 {
		return Recipe{}, false
	}
	return recipes[i], true
}

// Names lists the recipes.
func Names() []string {
	names := make([]string, len(recipes))
	for i, r := range recipes {
		names[i] = r.Name
	}
	return names
}
