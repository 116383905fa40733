package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/rpc"
)

// script is an agent that speaks the protocol in sh: it has the mode "careful", asks
// whether it may touch a file when it is prompted, and says what it was answered and
// what it sees of its environment.
const script = `#!/bin/sh
id() { printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/'; }
say() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$(id)" "$1"; }
text() { printf '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%s"}}}}\n' "$1"; }
while read -r line; do
	case "$line" in
	*'"method":"initialize"'*) say '{"protocolVersion":1,"agentInfo":{"name":"script","version":"7"},"agentCapabilities":{}}' ;;
	*'"method":"session/new"'*) say '{"sessionId":"s","modes":{"currentModeId":"auto","availableModes":[{"id":"auto","name":"a"},{"id":"careful","name":"c"}]}}' ;;
	*'"method":"session/prompt"'*)
		turn=$(id)
		printf '{"jsonrpc":"2.0","id":900,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t1","title":"touch it","kind":"edit","rawInput":{"file":"x"}},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"},{"optionId":"n","name":"No","kind":"reject_once"}]}}\n'
		;;
	*'"id":900'*)
		case "$line" in *'"optionId":"y"'*) text "allowed, LEVEL=$LEVEL, KEY=$KEY" ;; *) text "not allowed" ;; esac
		printf '{"jsonrpc":"2.0","id":%s,"result":{"stopReason":"end_turn"}}\n' "$turn"
		;;
	*'"id":'*) say '{}' ;;
	esac
done
`

// configured is a configuration file with that agent, and what else the test says.
func configured(t *testing.T, top string) string {
	t.Helper()
	dir := t.TempDir()
	agent := filepath.Join(dir, "agent")
	if err := os.WriteFile(agent, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.toml")
	text := fmt.Sprintf("%s\n[agents.mine]\ncommand = %q\napproval-mode = 'careful'\nenv = {LEVEL = '9'}\n[agents.off]\nrecipe = 'claude'\nenabled = false\n", top, agent)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// verb runs one verb without a host.
func verb(t *testing.T, args ...string) ran {
	t.Helper()
	d := &desktop{t: t, dir: stateIn(t)}
	return d.run(args...)
}

// A host has the settings and the agents of its file; a flag beats the file. The agent
// asks before it acts, through the host.
func TestServeRunsTheAgentsOfItsFile(t *testing.T) {
	file := configured(t, "agent = 'demo'\nname = 'the file'\nask-timeout = '90s'")
	d := &desktop{t: t, dir: stateIn(t), cwd: t.TempDir()}
	s := serveIn(t, d.dir, "--config", file, "--name", "the flag")
	c, err := s.a.dial(t.Context(), d.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	d.c = c
	var host rpc.DescribeResult
	if err := c.Call(t.Context(), "host.describe", rpc.Empty{}, &host); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, a := range host.Agents {
		names = append(names, a.Name)
	}
	if host.Name != "the flag" || strings.Join(names, " ") != "demo mine shell" {
		t.Errorf("the host is %q with %q", host.Name, names)
	}
	made, err := c.Create(t.Context(), rpc.CreateParams{Cwd: d.cwd})
	if err != nil || made.Agent != "demo" {
		t.Errorf("created %+v, %v; want the agent of the file", made, err)
	}
	if line := s.errOut.String(); !strings.Contains(line, "agents shell ✓  demo ✓") || !strings.Contains(line, "mine ✓") || strings.Contains(line, "off") {
		t.Errorf("greeted with %s", line)
	}
	end := d.start("run", "--agent", "mine", "--cwd", d.cwd, "touch it")
	d.ok("approve", d.id())
	if r := <-end; r.code != 0 || !strings.Contains(r.out, "allowed, LEVEL=9, KEY=") {
		t.Errorf("run: %+v", r)
	}
}

// A fault of the file ends serve with the code of wrong usage before anything is
// touched, and tells file and line.
func TestServeRefusesAFaultyFile(t *testing.T) {
	for text, want := range map[string]string{
		"listn = 'x'":                       `:1: the file has no key "listn": did you mean "listen"?`,
		"agent = 'nobody'":                  `:1: agent is "nobody": this host has the agents shell, demo, mine`,
		"agent = 'off'":                     `:1: agent is "off", which is disabled: enabled = false`,
		"agent = 'goose'":                   `:1: agent is "goose", which is missing: install goose`,
		"listen = '0.0.0.0:0'":              `:1: listen 0.0.0.0:0: `,
		"keep-total = '999999999999999TiB'": `:1: keep-total is "999999999999999TiB": want a number of bytes`,
		"tls-cert = 'x'":                    "belong together",
	} {
		file := configured(t, text)
		dir := stateIn(t)
		args := []string{"serve", "--state-dir", dir, "--config", file}
		if !strings.HasPrefix(text, "listen") {
			args = append(args, "--listen", "127.0.0.1:0")
		}
		err := try(t, args...)
		if ExitCode(err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d %v\nwant %s", text, ExitCode(err), err, want)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the state directory was touched", text)
		}
	}
	if err := try(t, "run", "--state-dir", stateIn(t), "--config", filepath.Join(t.TempDir(), "none"), "x"); ExitCode(err) != exitUsage || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("run with a file that is not there: %d %v", ExitCode(err), err)
	}
}

// The listing says of each agent what it is and where that is said, and names of
// variables only.
func TestAgentsAreListed(t *testing.T) {
	file := configured(t, "")
	out := verb(t, "agents", "ls", "--config", file).out
	for _, want := range []string{
		`(?m)^shell +shell +built-in `,
		`(?m)^mine +acp +found +mode "careful", ` + regexp.QuoteMeta(file) + `:2$`,
		`(?m)^off +acp \(claude\) disabled .*:6$`,
		`(?m)^goose +acp +missing .*built-in\n    install goose`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	r := verb(t, "agents", "ls", "--json", "--config", file)
	seen := map[string]agentLine{}
	for line := range strings.Lines(r.out) {
		var l struct {
			V    int
			Type string
			Data agentLine
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.V != 1 || l.Type != "agent" {
			t.Fatalf("%s: %v", line, err)
		}
		seen[l.Data.Name] = l.Data
	}
	if m := seen["mine"]; !m.Offered || m.Mode != "careful" || len(m.Command) != 1 || strings.Join(m.Env, " ") != "LEVEL" {
		t.Errorf("mine is %+v", m)
	}
	if seen["claude"].Offered || len(seen) != 11 {
		t.Errorf("listed %+v", seen)
	}
}

// A test of an agent starts it, says what it is, and sends it nothing; with a prompt
// it runs one turn in which nothing is allowed.
func TestAgentIsTried(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	file := configured(t, "")
	r := verb(t, "agents", "test", "mine", "--config", file)
	for _, want := range []string{"✓ mine started in ", "✓ it is script 7\n", `✓ it acknowledged the mode "careful", in which it asks`, "✓ its modes: auto, careful\n✓ each of its sessions has a process of its own\n"} {
		if r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("test: %+v\nwant %s", r, want)
		}
	}
	r = verb(t, "agents", "test", "mine", "--config", file, "--prompt", "touch it")
	if !strings.Contains(r.out, "not allowed") || strings.Contains(r.out, "LEVEL=") {
		t.Errorf("with a prompt: %+v", r)
	}
	r = verb(t, "agents", "test", "mine", "--json", "--config", file)
	var l struct{ Data tried }
	if err := json.NewDecoder(strings.NewReader(r.out)).Decode(&l); err != nil || !l.Data.Ok || l.Data.Version != "7" || l.Data.Mode != "careful" {
		t.Errorf("as JSON: %+v, %v", r, err)
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "muxhost-test-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind %q, %v", left, err)
	}
}

// What fails says why, and exits with a code of its own.
func TestTryingAnAgentSaysWhatFails(t *testing.T) {
	file := configured(t, "")
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{exitNotFound, `no agent "nobody": see muxhost agents ls`, []string{"nobody"}},
		{exitFailed, "off is disabled: enabled = false at " + file + ":6", []string{"off"}},
		{exitFailed, "goose is missing: install goose", []string{"goose"}},
		{exitUsage, "it takes reject or ask", []string{"mine", "--approve", "yes"}},
	} {
		if r := verb(t, append([]string{"agents", "test", "--config", file}, c.args...)...); r.code != c.code || !strings.Contains(r.err, c.want) {
			t.Errorf("%q: %+v; want %d and %s", c.args, r, c.code, c.want)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Replace(b, []byte("'careful'"), []byte("'brave'"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	r := verb(t, "agents", "test", "mine", "--config", file)
	if r.code != exitFailed || !strings.Contains(r.err, `no mode "brave"; it offers: auto, careful`) {
		t.Errorf("without its mode: %+v", r)
	}
	r = verb(t, "agents", "test", "mine", "--json", "--config", file)
	if e, ok := try(t, "agents", "test", "mine", "--json", "--config", file).(*exitError); !ok || e.err != nil {
		t.Errorf("says %v beside the JSON, want nothing", e)
	}
	if r.code != exitFailed || !strings.Contains(r.out, `"ok":false`) || !strings.Contains(r.out, "brave") {
		t.Errorf("without its mode, as JSON: %+v", r)
	}
}

// The rules of an agent hold in all its sessions, and a project file tightens them: it
// is obeyed by a host that runs, refuses other agents, and is refused itself if it
// would widen.
func TestRulesOfFileAndProjectHold(t *testing.T) {
	file := configured(t, "[agents.shell]\nallow = ['sh']")
	d := &desktop{t: t, dir: stateIn(t), cwd: t.TempDir()}
	serveIn(t, d.dir, "--config", file)
	if out := d.ok("run", "--cwd", d.cwd, "echo unasked"); !strings.Contains(out, "unasked") {
		t.Errorf("an allowed tool: %s", out)
	}
	project := filepath.Join(d.cwd, ".muxhost.toml")
	say := func(text string) {
		t.Helper()
		if err := os.WriteFile(project, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	say("deny = ['sh']")
	d.fails(exitRefused, "rejected", "run", "--cwd", d.cwd, "echo denied")
	say("ask = ['sh']\nask-timeout = '1s'")
	d.fails(exitRefused, "rejected", "run", "--cwd", d.cwd, "echo late")
	say("agents = ['demo', 'mine']\nagent = 'mine'\nmode = 'deny'")
	d.fails(exitUsage, project+":1 allows no agent \"shell\" here", "run", "--agent", "shell", "--cwd", d.cwd, "echo no")
	if r := d.run("run", "--cwd", d.cwd, "touch it"); !strings.Contains(r.out, "not allowed") {
		t.Errorf("the agent of the project, which is asked nothing: %+v", r)
	}
	say("allow = ['*']")
	d.fails(exitUsage, project+":1: a project file may only tighten", "run", "--agent", "shell", "--cwd", d.cwd, "echo no")
	d.fails(exitUsage, "may only tighten", "run", "--cwd", d.cwd, "echo no")
}
