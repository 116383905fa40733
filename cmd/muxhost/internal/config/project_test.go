package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/config"
)

// tree makes directories, and files with text, below a fresh directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// The project files up to the repository's root hold together: the strictest of each.
func TestProjectFilesAddUp(t *testing.T) {
	root := tree(t, map[string]string{
		".muxhost.toml":            "mode = 'deny'", // outside of the repository
		"repo/.git/HEAD":           "",
		"repo/.muxhost.toml":       "deny = ['WebFetch']\nask-timeout = '30s'\nagents = ['claude', 'shell']\nagent = 'shell'",
		"repo/sub/.muxhost.toml":   "ask = ['Bash']\nask-timeout = '1m'\nagents = ['claude', 'demo']\nagent = 'claude'",
		"repo/sub/deep/readme.txt": "",
		"strict/.git/HEAD":         "", "strict/.muxhost.toml": "ask = ['x']", "strict/sub/.muxhost.toml": "mode = 'deny'",
	})
	p, err := config.ReadProject(filepath.Join(root, "repo/sub/deep"), root)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Files) != 2 || p.Deny || p.AskTimeout != 30*time.Second || p.Agent != "claude" || !slices.Equal(p.Agents, []string{"claude"}) {
		t.Errorf("read %+v", p)
	}
	pol := p.Policy()
	if pol.Mode != "" || pol.AskTimeoutMs != 30_000 || len(pol.Rules) != 2 {
		t.Errorf("policy %+v", pol)
	}
	if p, err := config.ReadProject(filepath.Join(root, "strict/sub"), root); err != nil || p.Policy().Mode != "deny" {
		t.Errorf("the nearest file denies: %+v, %v", p, err)
	}
	if err := p.Allows("claude"); err != nil {
		t.Errorf("claude: %v", err)
	}
	if err := p.Allows("demo"); err == nil || !strings.Contains(err.Error(), filepath.Join(root, "repo/.muxhost.toml")+":3") {
		t.Errorf("demo: %v, want the file that forbids it", err)
	}
}

// Without a repository the search goes up to the home directory; outside of both it
// does not leave the directory.
func TestProjectSearchStops(t *testing.T) {
	root := tree(t, map[string]string{
		".muxhost.toml": "mode = 'deny'", "home/.muxhost.toml": "deny = ['x']", "home/a/b/c": "", "tmp/a/b": "",
	})
	p, err := config.ReadProject(filepath.Join(root, "home/a/b"), filepath.Join(root, "home"))
	if err != nil || len(p.Files) != 1 || p.Deny || len(p.Rules) != 1 {
		t.Errorf("in home: %+v, %v", p, err)
	}
	p, err = config.ReadProject(filepath.Join(root, "tmp/a"), filepath.Join(root, "home"))
	if err != nil || len(p.Files) != 0 {
		t.Errorf("outside: %+v, %v", p, err)
	}
	p, err = config.ReadProject(root, filepath.Join(root, "home"))
	if err != nil || !p.Deny {
		t.Errorf("the directory itself: %+v, %v", p, err)
	}
}

// However deep a directory lies, the project files above it hold.
func TestDeepDirectoriesAreNoWayOut(t *testing.T) {
	root := tree(t, map[string]string{".git/HEAD": "", ".muxhost.toml": "mode = 'deny'"})
	p, err := config.ReadProject(filepath.Join(root, strings.Repeat("d/", 1000)), root)
	if err != nil || !p.Deny {
		t.Errorf("a thousand levels deep: %+v, %v", p, err)
	}
}

// What would widen, and what cannot be used, is refused with file and line.
func TestProjectOnlyTightens(t *testing.T) {
	for text, want := range map[string]string{
		"allow = ['Bash']":          `:1: a project file may only tighten, and "allow" would do more: put it into config.toml`,
		"\nlisten = '0.0.0.0:1'":    `:2: a project file may only tighten, and "listen"`,
		"command = 'evil'":          `:1: a project file may only tighten, and "command"`,
		"env = {A = '1'}":           `:1: a project file may only tighten, and "env"`,
		"[agents.claude]\nmodel=''": `agents is a table: want a list of names of agents`,
		"mode = 'ask'":              `:1: mode is "ask": want "deny": a project file may only tighten`,
		"dney = ['x']":              `:1: the file has no key "dney": did you mean "deny"?`,
		"ask-timeout = '1000h'":     `:1: ask-timeout is "1000h"`,
		"agent = 'A'":               `:1: agent is "A": want the name of an agent`,
		"deny = ":                   `:1: it is no TOML`,
	} {
		root := tree(t, map[string]string{".muxhost.toml": text})
		_, err := config.ReadProject(root, "")
		if err == nil || !strings.Contains(err.Error(), filepath.Join(root, ".muxhost.toml")+want) && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, ".muxhost.toml"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := config.ReadProject(root, ""); err == nil {
		t.Error("a project file that is a directory was passed over")
	}
}

// A link that leads nowhere is no missing file: what it was to forbid would be allowed.
func TestALinkThatLeadsNowhereIsNotPassedOver(t *testing.T) {
	root := t.TempDir()
	if err := os.Symlink("nowhere", filepath.Join(root, config.ProjectFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := config.ReadProject(root, ""); err == nil || !strings.Contains(err.Error(), config.ProjectFile+": it is a link to a file that does not exist") {
		t.Errorf("got %v", err)
	}
}

// A project file comes with the code of strangers: what is nested absurdly deep costs
// nothing, and a thousand faults make no message of a thousand lines.
func TestHostileProjectFiles(t *testing.T) {
	deep, many := "it is nested more than 32 levels deep", "this and 7980 more are wrong"
	for name, c := range map[string]struct{ text, want string }{
		"a dotted key":     {"# x\n" + strings.Repeat("a.", 32_000) + "a = 1", ":2: " + deep},
		"a header":         {"[" + strings.Repeat("a.", 32_000) + "a]", ":1: " + deep},
		"a list of tables": {"[[" + strings.Repeat("a.", 30_000) + "a]]", ":1: " + deep},
		"lists":            {"deny = " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000), ":1: " + deep},
		"lists, too many":  {"deny = " + strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000), ":1: "},
		"tables":           {"deny = [" + strings.Repeat("{a=", 9000) + "1" + strings.Repeat("}", 9000) + "]", ":1: " + deep},
		"below a header":   {"[a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a]\nb.b.b.b.b.b.b.b.b.b.b.b.b = 1", ":2: " + deep},
		"many unknown keys": {func() string {
			var b strings.Builder
			for i := range 8_001 {
				fmt.Fprintf(&b, "%x=1\n", i)
			}
			return b.String()
		}(), ":21: " + many},
		"a long key": {strings.Repeat("a", 60_000) + " = 1", ":1: the file has no key"},
	} {
		root := tree(t, map[string]string{config.ProjectFile: c.text})
		_, err := config.ReadProject(root, "")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.300v\nwant %s", name, err, c.want)
		} else if n := len(err.Error()); n > 32<<10 {
			t.Errorf("%s: a message of %d bytes", name, n)
		}
	}
}

// The project example is valid once it is uncommented.
func TestProjectExampleIsTrue(t *testing.T) {
	root := tree(t, map[string]string{".muxhost.toml": commented.ReplaceAllString(config.ProjectExample, "$1")})
	p, err := config.ReadProject(root, "")
	if err != nil || !p.Deny || len(p.Rules) != 3 || p.Agent != "claude" || p.AskTimeout != time.Minute {
		t.Errorf("read %+v, %v", p, err)
	}
}
