package mcp_test

import (
	"path/filepath"
	"testing"
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
