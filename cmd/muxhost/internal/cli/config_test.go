package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/config"
)

// The configuration verbs say where the file is, whether it holds, and what it may say.
func TestConfigVerbs(t *testing.T) {
	file := configured(t, "name = 'x'")
	if r := verb(t, "config", "path", "--config", file); r.out != file+"\n" {
		t.Errorf("path: %+v", r)
	}
	if r := verb(t, "config", "validate", "--config", file); r.code != 0 || !strings.Contains(r.out, file+" holds: 1 setting, 2 agents") {
		t.Errorf("validate: %+v", r)
	}
	if r := verb(t, "config", "validate"); r.code != 0 || !strings.Contains(r.out, "there is no file; the defaults hold") {
		t.Errorf("validate without a file: %+v", r)
	}
	if r := verb(t, "config", "example"); r.out != config.Example {
		t.Errorf("example: %+v", r)
	}
	if r := verb(t, "config", "example", "--project"); r.out != config.ProjectExample {
		t.Errorf("example of a project file: %+v", r)
	}
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	if r := verb(t, "config", "validate", file); r.code != 0 || !strings.Contains(r.err, "chmod go-w") {
		t.Errorf("validate of a file that others can change: %+v", r)
	}
}

// write is a configuration file.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file that somebody named has to be there: verbs say who names it and how to write
// one. Its path can be asked for all the same.
func TestNamedFileHasToExist(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	d := &desktop{t: t, dir: stateIn(t)}
	how := "write one with muxhost config example > " + none
	for _, args := range [][]string{{"agents", "ls"}, {"agents", "test", "demo"}, {"config", "validate"}, {"doctor"}, {"serve"}, {"run", "x"}} {
		for _, by := range []string{"--config", "$MUXHOST_CONFIG"} {
			env := map[string]string{"MUXHOST_CONFIG": none}
			full := args
			if by == "--config" {
				env, full = nil, append([]string{"--config", none}, args...)
			}
			r := d.runWith(t.Context(), env, full...)
			if r.code == 0 || !strings.Contains(r.out+r.err, how) || !strings.Contains(r.out+r.err, by) {
				t.Errorf("%s by %s: %+v\nwant %s", args, by, r, how)
			}
		}
	}
	if r := d.runWith(t.Context(), map[string]string{"MUXHOST_CONFIG": none}, "config", "path"); r.out != none+"\n" {
		t.Errorf("path: %+v", r)
	}
	if r := d.run("config", "validate", none); r.code != exitUsage || !strings.Contains(r.err, how) {
		t.Errorf("validate: %+v", r)
	}
}

// A file that does not hold is told with all its faults, also those that only the
// machine shows.
func TestConfigValidateTellsFaults(t *testing.T) {
	for text, want := range map[string]string{
		"agent = 'nobody'": `:1: agent is "nobody": this host has the agents`,
		"[agents.x]":       `:1: agent "x" has no command, and no recipe is named so`,
		"x = 1\ny = 2":     ":2: the file has no key",

		"listen = '0.0.0.0:7717'": `:1: listen 0.0.0.0:7717: `,
		"\nlisten = '7717'":       `:2: listen: `,
		"agent = 'off'\n[agents.off]\nrecipe = 'claude'\nenabled = false": `:1: agent is "off", which is disabled`,
	} {
		path := write(t, text)
		if r := verb(t, "config", "validate", path); r.code != exitUsage || !strings.Contains(r.err, path+want) {
			t.Errorf("%q: %+v\nwant %s", text, r, want)
		}
	}
	for text, want := range map[string]string{
		"tls-cert = 'x'": "belong together", "tls-cert = 'x'\ntls-key = 'y'": "the certificate: ", "[agents.shell]\nenabled = false": `--agent is "shell"`,
	} {
		if r := verb(t, "config", "validate", write(t, text)); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%q: %+v\nwant %s", text, r, want)
		}
	}
	project := filepath.Join(t.TempDir(), config.ProjectFile)
	if r := verb(t, "config", "validate", project); r.code != exitUsage {
		t.Errorf("a project file that is not there: %+v", r)
	}
	for text, want := range map[string]string{"mode = 'deny'\nask = ['x']": "holds: 1 rule, asks nobody", "allow = ['x']": "may only tighten"} {
		if err := os.WriteFile(project, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if r := verb(t, "config", "validate", project); !strings.Contains(r.out+r.err, want) {
			t.Errorf("%q: %+v\nwant %s", text, r, want)
		}
	}
}

// A flag beats the environment, which beats the file, which beats the default.
func TestSettingsYield(t *testing.T) {
	text := "log-level = 'debug'\nlog-format = 'json'\nallow-host = ['a', 'b']\nmax-depth = 3\nkeep-bytes = '1MiB'\nname = 'file'\nallow-origin = []"
	path := write(t, text)
	env := map[string]string{"MUXHOST_CONFIG": path, "MUXHOST_LOG": "error"}
	a := &app{getenv: func(n string) string { return env[n] }}
	cmd := newServe(a)
	if err := cmd.ParseFlags([]string{"--name", "flag", "--allow-host", "c"}); err != nil {
		t.Fatal(err)
	}
	c, err := a.config()
	if err != nil {
		t.Fatal(err)
	}
	said, err := a.settings(cmd.Flags(), c)
	if err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"log-level": "error", "log-format": "json", "allow-host": "[c]", "max-depth": "3", "keep-bytes": "1MiB", "name": "flag", "max-tree": "1000",
		"allow-origin": "[]",
	} {
		if got := cmd.Flags().Lookup(flag).Value.String(); got != want {
			t.Errorf("%s is %s, want %s", flag, got, want)
		}
	}
	if said["max-depth"] != path+":4: max-depth" || said["name"] != "" || said["log-level"] != "" {
		t.Errorf("said %q", said)
	}
}
