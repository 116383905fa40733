package roster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/roster"
	"github.com/muxhost/muxhost/host/agent"
)

// Npx never runs where a session works, whose settings and programs it would take; the
// agent that it starts does, with its arguments as they are.
func TestNpxDoesNotRunInTheSessionsDirectory(t *testing.T) {
	home, project := t.TempDir(), filepath.Join(t.TempDir(), `a $HOME "project"`)
	if err := os.Mkdir(project, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := bin(t, "node")
	cache := bin(t)
	said := filepath.Join(home, "said")
	for path, text := range map[string]string{
		filepath.Join(dir, "npx"):        "echo npx $PWD $1 $2 $3 $4 >>%[1]s; shift 4; PATH=%[2]s:$PATH; exec \"$@\"",
		filepath.Join(cache, "gemini"):   "echo gemini \"$PWD\" \"$@\" >>%[1]s",
		filepath.Join(project, "gemini"): "echo strange >>%[1]s",
	} {
		if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\n"+text+"\n", said, cache), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	e := entry(t, build(t, "[agents.gemini]\nargs = ['--acp', 'a \"b\" $c']", getenv("PATH="+dir)), "gemini")
	d := e.Driver(roster.Deps{})
	defer func() {
		if err := d.(agent.Closer).Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	if _, err := roster.Probe(t.Context(), e, d, []string{"HOME=" + home, "PATH=/usr/bin:/bin"}, project); err == nil {
		t.Error("an agent that said nothing was opened")
	}
	got, err := os.ReadFile(said)
	want := "npx " + home + " -y -p @google/gemini-cli@0.61.0 --\ngemini " + project + " --acp a \"b\" $c\n"
	if err != nil || !strings.HasPrefix(string(got), want) || strings.Contains(string(got), "strange") {
		t.Errorf("%v: ran\n%s\nwant\n%s", err, got, want)
	}
}
