//go:build unix

package llm_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// A pipe in the directory blocks nobody, and is not written.
func TestSpecialFilesAreLeftAlone(t *testing.T) {
	d := dir(t)
	if err := syscall.Mkfifo(filepath.Join(d, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, res := use(t, agenttest.Script{Cwd: d}, options(t, &stub{}),
		stubTool{"read", `{"path":"pipe"}`}, stubTool{"write", `{"path":"pipe","content":"x"}`}, stubTool{"search", `{"pattern":"x"}`})
	if !res[0].IsError || !res[1].IsError || res[2].IsError {
		t.Errorf("results = %+v; want two errors, and a search that finds nothing", res)
	}
}
