package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A host of ours passes the checks of a family, and the verb says so in words and
// in JSON; a wrong token, address or family is told apart by its exit code.
func TestConformChecksAHost(t *testing.T) {
	d := newDesktop(t)
	h, err := readHostFile(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(d.dir, tokenFileName)
	out := d.ok("conform", h.URL, "--token-file", token, "--family", "pending", "--cwd", d.cwd)
	if !strings.Contains(out, "pending") || !strings.Contains(out, "0        0\n") {
		t.Errorf("it printed %q; want a table with the family and nothing failed", out)
	}
	lines := strings.Split(strings.TrimSpace(d.ok("conform", h.URL, "--family", "pending", "--cwd", d.cwd, "--json")), "\n")
	var last struct {
		V    int
		Type string
		Data struct {
			OK     bool
			Checks map[string]int
		}
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if last.V != 1 || last.Type != "conform" || !last.Data.OK || last.Data.Checks["passed"] != len(lines)-1 {
		t.Errorf("the last of %d lines is %+v; want a line for each check, and then their sum", len(lines), last)
	}
	wrong := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(wrong, []byte(strings.Repeat("x", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	d.fails(exitUnreachable, "HTTP 401", "conform", h.URL, "--token-file", wrong)
	d.fails(exitUnreachable, "no connection", "conform", "http://127.0.0.1:1")
	d.fails(exitUsage, "no family", "conform", h.URL, "--family", "nonsense")
	d.fails(exitUsage, "http://HOST:PORT", "conform", "localhost")
	bare := &desktop{t: t, dir: stateIn(t)}
	bare.fails(exitUnauthorized, "no token in the state directory "+bare.dir, "conform", h.URL)
	bare.fails(exitUnauthorized, "--token-file", "conform", h.URL)
	d.fails(exitUnauthorized, "no such file", "conform", h.URL, "--token-file", wrong+"er")
}

// A server that keeps nothing fails, and is told what it broke.
func TestConformFailsAHostThatBreaksTheContract(t *testing.T) {
	d := newDesktop(t)
	h, err := readHostFile(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	r := d.run("conform", h.URL, "--family", "pending", "--cwd", d.cwd, "--agent", "nobody")
	if r.code != exitFailed || !strings.Contains(r.out, "FAILED pending/lists") || !strings.Contains(r.out, "agent-unavailable") {
		t.Errorf("exit %d, %q; want exit %d and what failed", r.code, r.out, exitFailed)
	}
}
