package mcp_test

import (
	"path/filepath"
	"testing"

	"github.com/muxhost/muxhost/host/agent"
)

// realDir is a temporary directory without symlinks, as sessions have.
func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// sessionIn is a session in a directory of its own.
func sessionIn(t *testing.T) agent.Session {
	t.Helper()
	return agent.Session{Cwd: realDir(t)}
}
