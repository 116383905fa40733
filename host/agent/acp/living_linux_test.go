package acp_test

import (
	"os"
	"path/filepath"
	"testing"
)

// living counts the processes whose directory is dir.
func living(t *testing.T, dir string) int {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, l := range links {
		if at, err := os.Readlink(l); err == nil && at == dir {
			n++
		}
	}
	return n
}
