package bolt

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// childEnv makes the test binary a child that appends until it is killed.
const childEnv = "MUXHOST_BOLT_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child appends to four sessions at once and prints what is acknowledged.
func child(dir string) error {
	s, err := Open(filepath.Join(dir, "db"), Options{bounds: small})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var out sync.Mutex
	for w := range 4 {
		wg.Go(func() {
			ctx, sid := context.Background(), frames.SessionID(fmt.Sprint("child-", w))
			head, err := s.Head(ctx, sid)
			for err == nil {
				head, err = s.Append(ctx, sid, head, []store.Event{placed(sid, head.Seq+1)})
				if err == nil {
					out.Lock()
					fmt.Printf("%d %d\n", w, head.Seq)
					out.Unlock()
				}
			}
			fmt.Fprintln(os.Stderr, err)
		})
	}
	wg.Wait()
	return s.Close()
}

// However often the process is killed while it writes, what it acknowledged is
// there when the database is opened again.
func TestSIGKILLLosesNothingAcknowledged(t *testing.T) {
	dir, acked := t.TempDir(), map[frames.SessionID]int{}
	rnd := rand.New(rand.NewPCG(3, 3))
	for round := range 30 {
		killChild(t, dir, 1+rnd.IntN(60), acked)
		path := filepath.Join(dir, "db")
		if err := Check(path); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		s, err := Open(path, Options{})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := verifyAcked(t, s, acked); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
	}
}

// killChild starts a child and kills it when it has acknowledged n events.
func killChild(t *testing.T, dir string, n int, acked map[frames.SessionID]int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	cmd.Stderr = t.Output()
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	for got := 0; lines.Scan(); {
		var w, seq int
		if _, err := fmt.Sscanf(lines.Text(), "%d %d", &w, &seq); err != nil {
			break // cut by the kill
		}
		acked[frames.SessionID(fmt.Sprint("child-", w))] = seq
		if got++; got == n {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the child ended by itself")
	}
}
