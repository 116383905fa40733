package recipe_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/recipe"
)

// machine is a directory with programs, which are no programs: whoever runs one fails.
type machine struct {
	t   *testing.T
	dir string
}

func newMachine(t *testing.T) *machine { return &machine{t, t.TempDir()} }

// put makes a file; a program is executable.
func (m *machine) put(name, text string, mode os.FileMode) string {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		m.t.Fatal(err)
	}
	return path
}

func (m *machine) env(dirs ...string) recipe.Env {
	for i, d := range dirs {
		if d != "." {
			dirs[i] = filepath.Join(m.dir, d)
		}
	}
	path := strings.Join(dirs, string(filepath.ListSeparator))
	return recipe.Env{Getenv: func(n string) string {
		if n == "PATH" {
			return path
		}
		return ""
	}}
}

func (m *machine) find(name string, env recipe.Env) recipe.Found {
	m.t.Helper()
	all := recipe.Detect(env)
	i := slices.IndexFunc(all, func(f recipe.Found) bool { return f.Name == name })
	if i < 0 {
		m.t.Fatalf("no recipe %q", name)
	}
	return all[i]
}

// A program on the PATH is taken before npx; one that is no program is passed over, as
// are entries of the PATH that depend on where one stands.
func TestProgramOnThePathIsFound(t *testing.T) {
	m := newMachine(t)
	m.put("a/gemini", "", 0o644)
	if err := os.Mkdir(filepath.Join(m.dir, "a/codex-acp"), 0o755); err != nil {
		t.Fatal(err)
	}
	want := m.put("b/gemini", "", 0o755)
	m.put("b/node", "", 0o755)
	m.put("b/npx", "", 0o755)
	m.put("include/node/node_version.h", "", 0o644)
	f := m.find("gemini", m.env("a", "b"))
	if f.State != recipe.OnPath || f.Command != want || !slices.Equal(f.Args, []string{"--acp"}) || f.Start() != 2*time.Minute {
		t.Errorf("gemini is %+v, want %s", f, want)
	}
	t.Chdir(filepath.Join(m.dir, "b"))
	if f := m.find("gemini", m.env(".", "a")); f.State != recipe.Missing {
		t.Errorf("with . on the PATH gemini is %+v, want it missing", f)
	}
}

const header = "/* made */\n#define NODE_MAJOR_VERSION 20\n#define NODE_MINOR_VERSION 11\n#define NODE_PATCH_VERSION 1\n"

// Npx is offered at a pinned version, where node is new enough as far as files tell.
func TestNpxNeedsANewEnoughNode(t *testing.T) {
	for _, c := range []struct {
		name   string
		node   string // where node lies
		files  map[string]string
		agent  string
		state  recipe.State
		inNote string
	}{
		{"by the header", "usr/bin", map[string]string{"usr/include/node/node_version.h": header}, "gemini", recipe.ByNpx, "downloads @google/gemini-cli@0.61.0"},
		{"too old by the header", "usr/bin", map[string]string{"usr/include/node/node_version.h": header}, "claude", recipe.Missing, "is 20.11.1"},
		{"by its directory", "n/v22.3.0/bin", nil, "claude", recipe.ByNpx, "downloads"},
		{"too old by its directory", "n/node-v18.20.4-linux-x64/bin", nil, "gemini", recipe.Missing, "needs node 20 or later"},
		{"not known", "opt/bin", nil, "claude", recipe.ByNpx, "was not found out"},
		{"a header that tells nothing", "usr/bin", map[string]string{"usr/include/node/node_version.h": "#define X"}, "claude", recipe.ByNpx, "was not found out"},
		{"on no npm", "n/v22.3.0/bin", nil, "goose", recipe.Missing, "goose is on the PATH"},
	} {
		m := newMachine(t)
		m.put(c.node+"/node", "", 0o755)
		npx := m.put(c.node+"/npx", "", 0o755)
		for name, text := range c.files {
			m.put(name, text, 0o644)
		}
		f := m.find(c.agent, m.env(c.node))
		if f.State != c.state || !strings.Contains(f.Note, c.inNote) {
			t.Errorf("%s: %s %q, want %s with %q", c.name, f.State, f.Note, c.state, c.inNote)
		}
		if f.State == recipe.ByNpx {
			want := append([]string{"-y", f.Package + "@" + f.Version}, f.Recipe.Args...)
			if f.Command != npx || !slices.Equal(f.Args, want) || f.Start() < 10*time.Minute {
				t.Errorf("%s: runs %s %q, want %s %q", c.name, f.Command, f.Args, npx, want)
			}
		}
	}
	m := newMachine(t)
	if f := m.find("claude", m.env("none")); f.State != recipe.Missing || !strings.Contains(f.Note, "npm install -g @agentclientprotocol/claude-agent-acp@0.101.0") {
		t.Errorf("without node: %s %q", f.State, f.Note)
	}
}

// No recipe leaves the decision to the agent, and none passes what is the host's own.
func TestRecipesAsk(t *testing.T) {
	for _, name := range recipe.Names() {
		r, ok := recipe.ByName(name)
		if !ok || r.Mode == "" && r.Asks == "" {
			t.Errorf("%s: nothing makes it ask", name)
		}
		for _, mode := range append(r.Modes, r.Mode) {
			if slices.Contains([]string{"auto", "agent", "acceptEdits", "autoEdit", "bypassPermissions", "yolo", "workspace-write", "agent-full-access"}, mode) {
				t.Errorf("%s: the mode %s acts without asking", name, mode)
			}
		}
		for _, n := range (recipe.Found{Recipe: r, State: recipe.ByNpx}).Pass() {
			if strings.HasPrefix(n, "MUXHOST_") || strings.ContainsAny(n, "=*") {
				t.Errorf("%s passes %q", name, n)
			}
		}
		if (r.Package == "") != (r.Version == "") || r.Package == "" && r.Get == "" {
			t.Errorf("%s: %q at %q, got by %q", name, r.Package, r.Version, r.Get)
		}
	}
}

// What opencode is configured with is JSON in which nothing is allowed.
func TestOpencodeIsToldToAsk(t *testing.T) {
	r, _ := recipe.ByName("opencode")
	i := slices.IndexFunc(r.Env, func(kv string) bool { return strings.HasPrefix(kv, "OPENCODE_CONFIG_CONTENT=") })
	_, text, _ := strings.Cut(r.Env[i], "=")
	var c struct {
		Permission map[string]string
		Agent      map[string]struct{ Permission map[string]string }
	}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	for tool, want := range c.Permission {
		if want != "ask" || c.Agent["build"].Permission[tool] != "ask" || c.Agent["general"].Permission[tool] != "deny" {
			t.Errorf("%s: %s, build %v, general %v", tool, want, c.Agent["build"], c.Agent["general"])
		}
	}
	if len(c.Permission) < 4 || strings.Contains(text, "allow") {
		t.Errorf("opencode is told %s", text)
	}
}
