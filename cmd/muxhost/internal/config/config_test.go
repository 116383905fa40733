package config_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/config"
	"github.com/muxhost/muxhost/frames"
)

// write puts a file into a fresh directory and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Load(write(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var commented = regexp.MustCompile(`(?m)^#([^ \n])`)

// The example says every key once it is uncommented, and nothing that is refused.
func TestExampleIsTrue(t *testing.T) {
	c := load(t, commented.ReplaceAllString(config.Example, "$1"))
	for _, key := range config.Keys() {
		if !regexp.MustCompile(`(?m)^#?.*\b` + key + `\b.* =`).MatchString(config.Example) {
			t.Errorf("the example does not say %s", key)
		}
	}
	if len(c.Agents) != 5 || c.Agent("local").LLM.Prices["qwen3:8b"].Input != "0.10" || len(c.Settings) != 18 {
		t.Errorf("read %+v", c)
	}
	if c := load(t, config.Example); len(c.Agents)+len(c.Settings)+len(c.Warnings) != 0 {
		t.Errorf("the example as it is says %+v, want nothing", c)
	}
}

// What the file says arrives as it was written.
func TestFileIsRead(t *testing.T) {
	c := load(t, `
listen = "127.0.0.1:0"
allow-host = ["a.example", "b.example"]
keep-bytes = 4096
ask-timeout = "90s"
[agents.claude]
enabled = true
command = "/opt/claude"
args = ["--x", ""]
env = { A = "1" }
pass-env = ["KEY"]
approval-mode = ""
modes = ["plan"]
allow = ["Read"]
deny = [{ tool = "Bash", input = { command = "rm -rf /", n = 1 } }]
start-timeout = "2m"
[agents.llama]
kind = "llm"
base-url = "http://localhost:1/v1"
model = "m"
models = ["o"]
api-key-env = "K"
[agents.demo]
enabled = false
`)
	want := []config.Setting{
		{"listen", []string{"127.0.0.1:0"}, c.Path + ":2"},
		{"allow-host", []string{"a.example", "b.example"}, c.Path + ":3"},
		{"keep-bytes", []string{"4096"}, c.Path + ":4"},
		{"ask-timeout", []string{"1m30s"}, c.Path + ":5"},
	}
	if !slices.EqualFunc(c.Settings, want, func(a, b config.Setting) bool {
		return a.Key == b.Key && slices.Equal(a.Values, b.Values) && a.At == b.At
	}) {
		t.Errorf("settings %+v\nwant     %+v", c.Settings, want)
	}
	a := c.Agent("claude")
	p := a.Program
	if p.Command != "/opt/claude" || !slices.Equal(p.Args, []string{"--x", ""}) || !slices.Equal(p.Env, []string{"A=1"}) ||
		!slices.Equal(p.PassEnv, []string{"KEY"}) || *p.ApprovalMode != "" || p.StartTimeout != 2*time.Minute || a.At != c.Path+":6" || !a.On() {
		t.Errorf("claude is %+v", a)
	}
	if len(a.Rules) != 2 || a.Rules[0].Tool != "Read" || a.Rules[0].Decision != "allow" || a.Rules[1].Decision != "deny" || string(a.Rules[1].Input) != `{"command":"rm -rf /","n":1}` {
		t.Errorf("rules are %+v", a.Rules)
	}
	if l := c.Agent("llama"); l.Kind != "llm" || l.LLM.APIKeyEnv != "K" || !slices.Equal(l.Models, []string{"m", "o"}) {
		t.Errorf("llama is %+v", l)
	}
	if c.Agent("demo").On() || c.Agent("nobody") != nil {
		t.Errorf("demo is %+v", c.Agent("demo"))
	}
}

// A table is where it is first mentioned.
func TestTableIsWhereItBegins(t *testing.T) {
	c := load(t, "\n[agents.x]\n[agents.x.env]\nA = '1'\n[agents.y.env]\nB = '1'\n[agents.y]\n")
	if x, y := c.Agent("x").At, c.Agent("y").At; x != c.Path+":2" || y != c.Path+":5" {
		t.Errorf("x is at %s, y at %s", x, y)
	}
}

// Every fault names file and line, what was expected, and what was likely meant.
func TestFaultsNameLineAndCure(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"listen = 'x'\nlisten_ = 1", `:2: the file has no key "listen_": did you mean "listen"?`},
		{"ask_timeout = '1m'", `:1: the file has no key "ask_timeout": did you mean "ask-timeout"?`},
		{"zzzzzz = 1", `:1: the file has no key "zzzzzz": it takes listen, name, agent,`},
		{"\n\nask-timeout = 5", `:3: ask-timeout is 5: want a duration from 1s to 168h in quotes, such as "90s" or "5m"`},
		{"ask-timeout = '0s'", `:1: ask-timeout is "0s": want a duration`},
		{"max-queue = 0", `:1: max-queue is 0: want a whole number from 1 to 1000000, without quotes`},
		{"max-queue = '5'", `:1: max-queue is "5": want a whole number`},
		{"keep-events = -1", `:1: keep-events is -1: want a whole number from 0, without quotes`},
		{"keep-total = '1GB'", `:1: keep-total is "1GB": want a number of bytes`},
		{"allow-host = 'x'", `:1: allow-host is "x": want a list of names`},
		{"allow-host = ['x', 3]", `:1: allow-host is a list: want a list of names in quotes, but its entry 2 is 3`},
		{"log-level = 'warning'", `:1: log-level is "warning": want "debug" or "info" or "warn" or "error"`},
		{"log-level = 'inof'", `did you mean "info"?`},
		{"name = \"a\\nb\"", `:1: name is "a\nb": want text in quotes`},
		{"command = 'x'", `:1: "command" belongs to an agent: put it below a line such as [agents.claude]`},
		{"[agents.x]\nlisten = 'y'", `:2: "listen" is a setting of the host: put it before the first line in [brackets]`},
		{"[agents.x]\ncomand = 'y'", `:2: [agents.x] has no key "comand": did you mean "command"?`},
		{"[agents.x]\nbase-url = 'y'", `:2: "base-url" is for agents of the kind "llm"; "x" is of the kind "acp"`},
		{"[agents.shell]\ncommand = 'y'", `:2: "command" is for agents of the kind "acp"; "shell" is of the kind "shell"`},
		{"[agents.shell]\nkind = 'acp'", `:2: kind is "acp": want "shell"`},
		{"[agents.x]\nkind = 'ollama'", `:2: kind is "ollama": want "acp" or "llm"`},
		{"[agents.Big]\n", `:1: an agent is named "Big": want lower case letters, digits and dashes`},
		{"agents = 1", `:1: agents is 1: want tables, such as [agents.claude]`},
		{"agents.x = 1", `:1: agents.x is 1: want a table, such as [agents.x]`},
		{"[agents.x]\nenabled = 'no'", `:2: enabled is "no": want true or false, without quotes`},
		{"[agents.x]\nargs = '--acp'", `:2: args is "--acp": want a list of arguments`},
		{"[agents.x]\n[agents.x.env]\nA = 1", `:3: env.A is no text: want its value in quotes`},
		{"[agents.x]\nenv = {'A B' = '1'}", `:2: env has "A B": want names of letters, digits and underscores`},
		{"[agents.x]\nenv = {\n  A = 'x',\n  MUXHOST_TOKEN = '1'}", `:4: env has MUXHOST_TOKEN: names that begin with MUXHOST_ are the host's own`},
		{"[agents.x]\nenv = {K = '${HOME}/x'}", `:2: env.K refers to a variable, and values are handed on as they stand`},
		{"[agents.x]\nenv = {K = '$KEY'}", `pass-env`},
		{"[agents.x]\npass-env = ['muxhost_token']", `:2: pass-env is a list: want no name that begins with MUXHOST_`},
		{"[agents.x]\ndeny = ['a', {tool = 'b', what = 1}]", `:2: deny is a list: its entry 2 is a table: want no key but "tool" and "input", got "what"`},
		{"[agents.x]\ndeny = [{input = {}}]", `its entry 1 is a table: want a tool, as in {tool = "bash"}`},
		{"[agents.x]\nallow = 'read'", `:2: allow is "read": want a list of tools`},
		{"[agents.x]\nrecipe = 3", `:2: recipe is 3: want the name of a recipe`},
		{"[agents.x]\nstart-timeout = '1ms'", `:2: start-timeout is "1ms": want a duration from 1s to 1h in quotes`},
		{"[agents.x]\nkind = 'llm'\nmodel = 'm'", `:1: agent "x" has no base-url: an agent of the kind "llm" needs base-url and model`},
		{"[agents.x]\nkind = 'llm'\nmodel = 'a b'\nbase-url = 'http://h/v1'", `:3: model is "a b": want the name of a model`},
		{"[agents.x]\nkind = 'llm'\nmodel = 'm'\nbase-url = 'localhost:1'", `:4: base-url does not do (it does not begin with http`},
		{"[agents.x]\nkind = 'llm'\nmodel = 'm'\nbase-url = 'http://h/v1'\nprices = {m = {input = 0.5}}", `:5: input is 0.5: want a decimal number in quotes`},
		{"[agents.x]\nkind = 'llm'\nmodel = 'm'\nbase-url = 'http://h/v1'\nprices.m.inptu = '1'", `:5: [agents.x.prices.m] has no key "inptu": did you mean "input"?`},
		{"[agents.x]\nkind = 'llm'\nmodel = 'm'\nbase-url = 'http://h/v1'\ntemperature = nan", `:5: temperature is NaN: want a number from 0 to 10`},
		{"listen = 'a'\nlisten = 'b'", `:2: it is no TOML:`},
		{"x = [", `:1: it is no TOML:`},
	} {
		_, err := config.Load(write(t, c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v\nwant %s", c.text, err, c.want)
		}
	}
}

// All faults of a file are told at once, in the order of their lines.
func TestAllFaultsAreTold(t *testing.T) {
	path := write(t, "listn = 'x'\n[agents.a]\nargs = 1\n[agents.b]\nenv = 2\n")
	_, err := config.Load(path)
	got := strings.Split(err.Error(), "\n")
	if len(got) != 3 {
		t.Fatalf("got %q, want three lines", got)
	}
	for i, line := range []string{":1: ", ":3: ", ":5: "} {
		if !strings.HasPrefix(got[i], path+line) {
			t.Errorf("line %d is %q, want it to begin with %s", i, got[i], path+line)
		}
	}
}

// What may be a secret in the wrong place is not repeated.
func TestFaultsRepeatNoSecret(t *testing.T) {
	for _, text := range []string{
		"[agents.x]\npass-env = ['OPENAI_API_KEY=hush']",
		"[agents.x]\nenv = {K = '${K}hush'}",
		"[agents.x]\nenv = ['K=hush']",
		"[agents.x]\nenv = 'K=hush'",
		"[agents.x]\npass-env = 'OPENAI_API_KEY=hush'",
		"[agents.x]\nkind = 'llm'\nmodel = 'm'\nbase-url = 'http://u:hush@h/v1'",
		"[agents.x]\nkind = 'llm'\nmodel = 'm'\nbase-url = 'http://h/v1'\napi-key-env = 'sk-hush'",
	} {
		_, err := config.Load(write(t, text))
		if err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A file that nobody named need not exist; one that was named must.
func TestOnlyANamedFileMustExist(t *testing.T) {
	home := t.TempDir()
	env := map[string]string{"XDG_CONFIG_HOME": home}
	getenv := func(n string) string { return env[n] }
	if c, err := config.Open("", getenv); err != nil || c.Path != "" {
		t.Errorf("no file: %+v, %v", c, err)
	}
	if got, want := config.Path(getenv), filepath.Join(home, "muxhost", "config.toml"); got != want {
		t.Errorf("Path = %q, want %q", got, want)
	}
	if _, err := config.Open(filepath.Join(home, "none"), getenv); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a named file that does not exist: %v", err)
	}
	env["MUXHOST_CONFIG"] = filepath.Join(home, "none")
	if _, err := config.Open("", getenv); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that $MUXHOST_CONFIG names: %v", err)
	}
	delete(env, "MUXHOST_CONFIG")
	if err := os.Mkdir(filepath.Join(home, "muxhost"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", config.Path(getenv)); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Open("", getenv); err == nil || !strings.Contains(err.Error(), "a link to a file that does not exist") {
		t.Errorf("a link that leads nowhere: %v", err)
	}
	if _, err := config.Load(home); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a directory: %v", err)
	}
	if _, err := config.Load(write(t, strings.Repeat("# big\n", 200_000))); err == nil || !strings.Contains(err.Error(), "larger than 1024 KiB") {
		t.Errorf("a huge file: %v", err)
	}
}

// A file that others can change, or that holds a secret that others can read, is
// warned of.
func TestLooseModesAreWarnedOf(t *testing.T) {
	path := write(t, "[agents.x]\nenv = {X_API_KEY = 'hush'}\n")
	for mode, want := range map[fs.FileMode]string{0o600: "", 0o644: "X_API_KEY of agent x", 0o660: "changed by others"} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(c.Warnings, "\n")
		if (want == "") != (got == "") || !strings.Contains(got, want) || strings.Contains(got, "hush") {
			t.Errorf("mode %o: %q, want %q", mode, got, want)
		}
	}
}

// Rules keep their order, whatever the order of tables.
func TestRulesAreOfTheirAgent(t *testing.T) {
	c := load(t, "[agents.demo]\nallow = ['a', 'b']\nask = ['c']\n[agents.shell]\ndeny = ['*']\n")
	want := []frames.Rule{{Tool: "a", Decision: "allow"}, {Tool: "b", Decision: "allow"}, {Tool: "c", Decision: "ask"}}
	got := c.Agent("demo").Rules
	if !slices.EqualFunc(got, want, func(a, b frames.Rule) bool { return a.Tool == b.Tool && a.Decision == b.Decision }) {
		t.Errorf("demo has %+v, want %+v", got, want)
	}
	if r := c.Agent("shell").Rules; len(r) != 1 || r[0].Tool != "*" || r[0].Decision != "deny" {
		t.Errorf("shell has %+v", r)
	}
}

// Whatever the bytes, reading them ends, and a fault has a line of the file.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(commented.ReplaceAllString(config.Example, "$1")))
	f.Add([]byte("[[agents]]\nx = 1\n[[agents]]"))
	f.Add([]byte("agents.x.env = {a.b = 1}\nagents.x.deny = [{tool='x', input={a=[1,{b=2}]}}]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		lines := strings.Count(string(b), "\n") + 1
		_, err := config.Load(write(t, string(b)))
		many, ok := err.(interface{ Unwrap() []error })
		if !ok {
			return
		}
		for _, one := range many.Unwrap() {
			if e, ok := errors.AsType[*config.Error](one); ok && (e.Line < 0 || e.Line > lines) {
				t.Errorf("line %d of %d: %v", e.Line, lines, e)
			}
		}
	})
}
