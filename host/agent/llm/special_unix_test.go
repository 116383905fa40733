//go:build unix

package llm_test

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/llm"
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

// A pipe that takes the place of a file just when that is opened blocks nobody.
func TestFileThatBecomesAPipeBlocksNobody(t *testing.T) {
	d := dir(t)
	root, err := os.OpenRoot(d)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	file, pipe, name := filepath.Join(d, "file"), filepath.Join(d, "pipe"), filepath.Join(d, "name")
	put(t, d, "file", "x")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			for _, from := range []string{file, pipe} {
				_ = os.Remove(name)
				_ = os.Link(from, name)
			}
			select {
			case <-over:
				return
			default:
			}
		}
	})
	late := time.AfterFunc(20*time.Second, func() {
		t.Error("a file is being opened for ever")
		f, _ := os.OpenFile(pipe, os.O_RDWR, 0) // whoever waits goes on
		defer f.Close()
		<-over
	})
	defer late.Stop()
	for range 20_000 {
		_ = llm.OpenFile(root, "name") // it may be there or not
	}
	close(over)
	wg.Wait()
}
