package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// anyPort is a configuration that needs no port of its own.
func anyPort(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte("listen = \"127.0.0.1:0\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// doctorSays runs the doctor with --json, and returns the level and words of each check.
func doctorSays(t *testing.T, d *desktop, code int) map[string]string {
	t.Helper()
	r := d.run("doctor", "--json", "--config", anyPort(t))
	if r.code != code {
		t.Errorf("doctor: exit %d, want %d: %s\n%s", r.code, code, r.err, r.out)
	}
	all := map[string]string{}
	for line := range strings.Lines(r.out) {
		var v struct {
			V    int
			Type string
			Data struct{ Check, Level, What, Fix string }
		}
		if err := json.Unmarshal([]byte(line), &v); err != nil || v.V != 1 {
			t.Fatalf("doctor printed %q: %v", line, err)
		}
		if v.Type == "check" {
			all[v.Data.Check] = v.Data.Level + ": " + v.Data.What
		}
	}
	return all
}

// The doctor finds a running host well and does not disturb it, finds a stopped one
// well, and fails with what to do where the token is open to others.
func TestDoctorLooksAtAHost(t *testing.T) {
	d, s := startedWorld(t)
	got := doctorSays(t, d, 0)
	for check, want := range map[string]string{
		"host": "ok: it answers at http://127.0.0.1:", "database": "ok: the host has it open", "state": "ok: ", "token": "ok: ", "blobs": "ok: ",
		"config": "ok: ", "port": "ok: any free", "encryption": "ok: ", "loopback": "ok: ", "agent shell": "ok: ",
	} {
		if !strings.HasPrefix(got[check], want) {
			t.Errorf("with a host, %s is %q; want %q", check, got[check], want)
		}
	}
	if n := len(strings.Split(strings.TrimSpace(d.ok("ls")), "\n")); n != 3 {
		t.Errorf("ls printed %d lines after the doctor; want three sessions", n)
	}
	_ = d.c.Close()
	s.end(t)
	got = doctorSays(t, d, 0)
	if !strings.HasPrefix(got["host"], "info: none runs") || !strings.HasPrefix(got["database"], "ok: it opens and is whole") {
		t.Errorf("without a host: host %q, database %q", got["host"], got["database"])
	}
	if err := os.Chmod(filepath.Join(d.dir, tokenFileName), 0o644); err != nil {
		t.Fatal(err)
	}
	r := d.run("doctor", "--config", anyPort(t))
	if r.code != exitFailed || !strings.Contains(r.out, "✗ token ") || !strings.Contains(r.out, "→ chmod 0600") || !strings.Contains(r.out, "1 failure\n") || r.err != "exit 1" {
		t.Errorf("with an open token: exit %d, %q\n%s\nwant the failure and how to mend it", r.code, r.err, r.out)
	}
}

// A host that was killed is told apart from none.
func TestDoctorKnowsAHostThatWasKilled(t *testing.T) {
	d := stoppedWorld(t)
	gone := `{"url":"http://127.0.0.1:1","pid":999999999,"version":"x","startedAt":"2026-01-01T00:00:00Z"}`
	if err := os.WriteFile(filepath.Join(d.dir, hostFileName), []byte(gone), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := doctorSays(t, d, 0)["host"]; !strings.HasPrefix(got, "warn: none runs; the last one, process 999999999, was killed") {
		t.Errorf("host is %q", got)
	}
	if err := os.WriteFile(filepath.Join(d.dir, hostFileName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := doctorSays(t, d, 0)["host"]; !strings.HasPrefix(got, "warn: whether one runs is not known") {
		t.Errorf("host is %q", got)
	}
}
