package roster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/config"
	"github.com/muxhost/muxhost/cmd/muxhost/internal/roster"
	"github.com/muxhost/muxhost/host/agent"
)

// bin is a directory with programs, which is all of the PATH.
func bin(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, n := range names {
		if err := os.WriteFile(filepath.Join(dir, n), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func getenv(kv ...string) roster.Env {
	return roster.Env{Getenv: func(n string) string {
		for _, s := range kv {
			if v, ok := strings.CutPrefix(s, n+"="); ok {
				return v
			}
		}
		return ""
	}}
}

func conf(t *testing.T, text string) *config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func build(t *testing.T, text string, env roster.Env) []roster.Entry {
	t.Helper()
	all, err := roster.Build(conf(t, text), env)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func entry(t *testing.T, all []roster.Entry, name string) roster.Entry {
	t.Helper()
	i := slices.IndexFunc(all, func(e roster.Entry) bool { return e.Name == name })
	if i < 0 {
		t.Fatalf("no agent %q in %+v", name, all)
	}
	return all[i]
}

// Without a file there are shell, demo and what is on the machine; what is not is
// listed with how to get it, and not offered.
func TestWithoutAFileWhatIsHereIsOffered(t *testing.T) {
	dir := bin(t, "gemini")
	all := build(t, "", getenv("PATH="+dir, "GEMINI_API_KEY=k1", "OPENAI_API_KEY=k2", "MUXHOST_TOKEN=no"))
	var offered []string
	for _, e := range all {
		if e.Offered() {
			offered = append(offered, e.Name)
		} else if e.Note == "" || len(e.Command) > 0 {
			t.Errorf("%s is missing, and says %+v", e.Name, e)
		}
		if e.Source != "built-in" {
			t.Errorf("%s is said at %s", e.Name, e.Source)
		}
	}
	if !slices.Equal(offered, []string{"shell", "demo", "gemini"}) {
		t.Errorf("offered %q", offered)
	}
	g := entry(t, all, "gemini")
	for name, want := range map[string]bool{"claude": true, "codex": true, "opencode": false, "gemini": false, "qwen": false} {
		if e := entry(t, all, name); e.ACP.Shared != want || e.ACP.OneSession && want {
			t.Errorf("%s: sessions share a process: %v, want %v", name, e.ACP.Shared, want)
		}
	}
	if g.ACP.Command != filepath.Join(dir, "gemini") || !slices.Equal(g.ACP.Args, []string{"--acp"}) || g.ACP.ApprovalMode != "default" || g.ACP.StartTimeout < time.Minute || !g.ACP.OneSession {
		t.Errorf("gemini runs %+v", g.ACP)
	}
	if !slices.Equal(g.ACP.Env, []string{"GEMINI_API_KEY=k1", "GEMINI_CLI_NO_RELAUNCH=true"}) {
		t.Errorf("gemini sees %q", g.ACP.Env)
	}
}

// A table changes what it says of a recipe, and leaves the rest.
func TestTableChangesARecipe(t *testing.T) {
	dir := bin(t, "gemini", "claude-agent-acp", "node", "npx", "mine")
	all := build(t, `
[agents.gemini]
model = "pro"
args = ["--acp", "--debug"]
env = {GEMINI_CLI_NO_RELAUNCH = "false", X = "1"}
pass-env = ["WORK"]
modes = []
deny = ["web"]
shared = true
[agents.claude]
enabled = false
[agents.claude-work]
recipe = "claude"
command = "mine"
approval-mode = "plan"
[agents.codex]
args = ["--x"]
shared = false
[agents.qwen]
command = "nowhere"
[agents.shell]
allow = ["shell"]
[agents.demo]
enabled = false
`, getenv("PATH="+dir, "WORK=w", "GEMINI_MODEL=m"))
	g := entry(t, all, "gemini")
	if !slices.Equal(g.ACP.Args, []string{"--acp", "--debug"}) || g.ACP.ApprovalMode != "default" || len(g.ACP.Modes) != 0 || g.ACP.OneSession || !g.ACP.Shared || !strings.HasSuffix(g.Source, ":2") {
		t.Errorf("gemini is %+v", g)
	}
	if want := []string{"GEMINI_MODEL=m", "WORK=w", "GEMINI_CLI_NO_RELAUNCH=false", "X=1"}; !slices.Equal(g.ACP.Env, want) {
		t.Errorf("gemini sees %q, want %q", g.ACP.Env, want)
	}
	if !slices.Equal(g.EnvNames, []string{"GEMINI_CLI_NO_RELAUNCH", "GEMINI_MODEL", "WORK", "X"}) {
		t.Errorf("names %q", g.EnvNames)
	}
	if g.Rules[0].Decision != "deny" || g.Rules[0].Tool != "web" {
		t.Errorf("rules %+v", g.Rules)
	}
	if c := entry(t, all, "claude"); c.Offered() || c.State != roster.Disabled {
		t.Errorf("claude is %+v", c)
	}
	w := entry(t, all, "claude-work")
	if w.State != roster.OnPath || !w.ACP.Shared || w.ACP.Command != filepath.Join(dir, "mine") || w.Mode != "plan" || !slices.Contains(w.ACP.Env, "DISABLE_AUTOUPDATER=1") || w.ACP.Name != "claude-work" {
		t.Errorf("claude-work is %+v", w)
	}
	if c := entry(t, all, "codex"); c.State != roster.ByNpx || !slices.Equal(c.Command[1:], []string{"-y", "@agentclientprotocol/codex-acp@2.6.0", "--x"}) || !c.ACP.OneSession || c.ACP.Shared {
		t.Errorf("codex is %+v", c)
	}
	if s := entry(t, all, "shell"); s.Rules[0].Tool != "shell" || !s.Offered() {
		t.Errorf("shell is %+v", s)
	}
	if entry(t, all, "demo").Offered() {
		t.Error("demo is offered")
	}
}

// A variable that is set by a recipe for safety is not replaced by one that is passed
// on from the host.
func TestPassedVariablesDoNotLoosenARecipe(t *testing.T) {
	all := build(t, "[agents.goose]\npass-env = ['GOOSE_MODE']", getenv("PATH="+bin(t, "goose"), "GOOSE_MODE=auto"))
	if env := entry(t, all, "goose").ACP.Env; !slices.Contains(env, "GOOSE_MODE=approve") || slices.Contains(env, "GOOSE_MODE=auto") {
		t.Errorf("goose sees %q", env)
	}
}

// What cannot be understood is an error with file and line; a program that is not
// there is none, so that a host starts without it.
func TestBuildRefusesWhatItCannotUnderstand(t *testing.T) {
	for text, want := range map[string]string{
		"[agents.mine]\nargs = []":                                `:1: agent "mine" has no command, and no recipe is named so`,
		"[agents.mine]\ncommand = '/bin/x'":                       `:1: agent "mine" has no approval-mode`,
		"[agents.mine]\ncommand = './x'\napproval-mode = ''":      `:1: agent "mine" has the command "./x": want an absolute path`,
		"\n[agents.mine]\nrecipe = 'claud'":                       `:2: agent "mine" names the recipe "claud": want one of claude, codex,`,
		"[agents.claude]\nrecipe = ''\ncommand = '/bin/x'":        `:1: agent "claude" has no approval-mode`,
		"[agents.a]\nargs=[]\n[agents.b]\nargs=[]":                `:3: agent "b" has no command`,
		"[agents.gemini]\ncommand = 'bin/g'\napproval-mode = 'x'": `:1: agent "gemini" has the command "bin/g": want an absolute path`,
	} {
		_, err := roster.Build(conf(t, text), getenv("PATH="))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
	all := build(t, "[agents.mine]\ncommand = '/does/not/exist'\napproval-mode = ''", getenv("PATH="))
	if e := entry(t, all, "mine"); e.State != roster.Missing || !strings.Contains(e.Note, "is no program here") {
		t.Errorf("mine is %+v", e)
	}
}

// An endpoint's key is read from the environment when it is used, and a missing one is
// told.
func TestEndpointTakesItsKeyFromTheEnvironment(t *testing.T) {
	text := "[agents.local]\nkind = 'llm'\nbase-url = 'http://127.0.0.1:1/v1'\nmodel = 'm'\napi-key-env = 'K'\nprices = {m = {input = '1', output = '2'}}"
	e := entry(t, build(t, text, getenv("PATH=", "K=secret")), "local")
	if e.State != roster.Endpoint || e.LLM.APIKey() != "secret" || e.Note != "" || e.LLM.Prices["m"].Output != "2" || e.Driver(roster.Deps{}).Info().Kind != "llm" {
		t.Errorf("local is %+v", e)
	}
	if e := entry(t, build(t, text, getenv("PATH=")), "local"); !strings.Contains(e.Note, "has no K") || !e.Offered() {
		t.Errorf("without the key: %+v", e)
	}
}

// The rules of a session are those of its agent and of the project; a project that
// allows other agents refuses it.
func TestRulesAddUp(t *testing.T) {
	dir := t.TempDir()
	all := build(t, "[agents.demo]\nallow = ['play']", getenv("PATH="))
	rules := roster.Rules(all, "")
	p, err := rules("demo", dir)
	if err != nil || p.Mode != "" || len(p.Rules) != 1 || p.Rules[0].Tool != "play" {
		t.Errorf("without a project file: %+v, %v", p, err)
	}
	file := filepath.Join(dir, config.ProjectFile)
	if err := os.WriteFile(file, []byte("mode = 'deny'\ndeny = ['play']\nask-timeout = '1s'\nagents = ['demo']"), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err = rules("demo", dir)
	if err != nil || p.Mode != "deny" || p.AskTimeoutMs != 1000 || len(p.Rules) != 2 {
		t.Errorf("with a project file: %+v, %v", p, err)
	}
	if _, err = rules("shell", dir); err == nil || !strings.Contains(err.Error(), file+":4") {
		t.Errorf("an agent that is not allowed: %v", err)
	}
	if err := os.WriteFile(file, []byte("allow = ['play']"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err = rules("demo", dir); err == nil || !strings.Contains(err.Error(), "may only tighten") {
		t.Errorf("a project file that widens: %v", err)
	}
}

// probe tries an agent that is this test program.
func probe(t *testing.T, how, more string) (roster.Report, error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("[agents.fake]\ncommand = %q\nargs = []\nenv = {%s = %q}\n%s", exe, fakeEnv, how, more)
	e := entry(t, build(t, text, getenv("PATH=")), "fake")
	d := e.Driver(roster.Deps{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := roster.Probe(ctx, e, d, []string{"PATH=/bin", "HOME=" + t.TempDir()}, t.TempDir())
	if c, ok := d.(agent.Closer); !ok {
		t.Error("the driver cannot be closed")
	} else if err := c.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	return r, err
}

// A probe says who the agent is and that it acknowledged the mode in which it asks;
// of one that has no such mode, or ends, it says why and what helps.
func TestProbeSaysWhatAnAgentIs(t *testing.T) {
	r, err := probe(t, "ask", "approval-mode = 'careful'\nmodel = 'large'")
	if err != nil || r.Agent != "fake" || r.Version != "1.2.3" || r.Mode != "careful" {
		t.Errorf("an agent that asks: %+v, %v", r, err)
	}
	if !slices.Equal(r.Offers, []string{"load", "resume", "image", "mcp http"}) || !slices.Equal(r.Modes, []string{"auto", "careful"}) || !slices.Equal(r.Models, []string{"small", "large"}) {
		t.Errorf("it offers %q, modes %q, models %q", r.Offers, r.Modes, r.Models)
	}
	for more, want := range map[string]bool{"": false, "shared = true": true, "shared = false": false, "tools = false": true, "tools = false\nshared = false": false} {
		if r, err := probe(t, "ask", "approval-mode = 'careful'\n"+more); err != nil || r.Shared != want {
			t.Errorf("%q: sessions share a process: %v, %v; want %v, as in a host", more, r.Shared, err, want)
		}
	}
	r, err = probe(t, "hasty", "approval-mode = 'careful'")
	if err == nil || !strings.Contains(err.Error(), `no mode "careful"`) || !strings.Contains(err.Error(), "approval-mode in config.toml") || r.Mode != "" {
		t.Errorf("an agent without the mode: %+v, %v", r, err)
	}
	_, err = probe(t, "ask", "approval-mode = 'careful'\nmodel = 'huge'")
	if err == nil || !strings.Contains(err.Error(), "huge") || !strings.Contains(err.Error(), "large, small") {
		t.Errorf("a model that it has not: %v", err)
	}
	_, err = probe(t, "dead", "approval-mode = ''")
	if err == nil || !strings.Contains(err.Error(), "no key in") || !strings.Contains(err.Error(), "try the command by hand") {
		t.Errorf("an agent that ends: %v", err)
	}
}

// A probe of an endpoint asks which models it has.
func TestProbeAsksAnEndpointForItsModels(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"data": []any{map[string]string{"id": "m"}, map[string]string{"id": "n"}}})
	}))
	defer srv.Close()
	for model, want := range map[string]string{"m": "", "x": `no model "x"; it has m, n`} {
		text := fmt.Sprintf("[agents.l]\nkind = 'llm'\nbase-url = %q\nmodel = %q", srv.URL+"/v1", model)
		e := entry(t, build(t, text, getenv("PATH=")), "l")
		r, err := roster.Probe(t.Context(), e, e.Driver(roster.Deps{}), nil, t.TempDir())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || len(r.Models) != 2 {
			t.Errorf("model %s: %+v, %v", model, r, err)
		}
	}
	e := entry(t, build(t, "", getenv("PATH=")), "claude")
	if _, err := roster.Probe(t.Context(), e, nil, nil, ""); err == nil || !strings.Contains(err.Error(), "claude is missing: ") {
		t.Errorf("a missing agent: %v", err)
	}
}

// opened is a driver that notes the config with which sessions open.
type opened struct{ config string }

func (o *opened) Info() agent.Info { return agent.Info{Name: "o"} }
func (o *opened) Open(_ context.Context, s agent.Session) (agent.Agent, error) {
	o.config = string(s.Config)
	return nil, nil
}

// The model of the configuration is where sessions begin, unless they name one or show
// a subagent.
func TestModelIsWhereSessionsBegin(t *testing.T) {
	for config, want := range map[string]string{
		"":                    `{"model":"big"}`,
		"null":                `{"model":"big"}`,
		`{"x":1}`:             `{"model":"big","x":1}`,
		`{"model":"own"}`:     `{"model":"own"}`,
		`{"acpSubagent":"t"}`: `{"acpSubagent":"t"}`,
		`[1]`:                 `[1]`,
	} {
		var o opened
		if _, err := roster.Preset(&o, "big").Open(t.Context(), agent.Session{Config: json.RawMessage(config)}); err != nil {
			t.Fatal(err)
		}
		if o.config != want {
			t.Errorf("%s became %s, want %s", config, o.config, want)
		}
	}
}
