package bolttest_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/store"
	"github.com/muxhost/muxhost/store/bolt"
	"github.com/muxhost/muxhost/store/bolt/bolttest"
)

// With syncs nothing that was appended can be lost; without them all of it is,
// and the database is then as it was when the power was put at risk.
func TestLoseUndoesOnlyWhatWasNotSynced(t *testing.T) {
	for noSync, want := range map[bool]int{false: 50, true: 0} {
		dir := t.TempDir()
		path, journal := filepath.Join(dir, "db"), filepath.Join(dir, "journal")
		s, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := bolttest.Attach(s, journal, noSync); err != nil {
			t.Fatal(err)
		}
		var head store.Head
		for i := range 50 {
			if head, err = s.Append(t.Context(), "s", head, []store.Event{{ID: fmt.Sprint(i), Type: "t", Data: []byte("data")}}); err != nil {
				t.Fatal(err)
			}
		}
		// The file as it is now is that of a process which is killed now.
		image, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, image, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := bolttest.Lose(path, journal, noSync, rand.New(rand.NewPCG(1, 1))); err != nil {
			t.Fatal(err)
		}
		if err := bolt.Check(path); noSync && (err == nil || !strings.Contains(err.Error(), "last commits are lost")) || !noSync && err != nil {
			t.Errorf("noSync %v: Check = %v; want lost commits, if it does not sync", noSync, err)
		}
		if s, err = bolt.Open(path, bolt.Options{}); err != nil {
			t.Fatal(err)
		}
		if why := s.Replaced(); (why != "") != noSync {
			t.Errorf("noSync %v: opened saying %q; want new epochs if it does not sync", noSync, why)
		}
		got, err := s.Head(t.Context(), "s")
		if err != nil || int(got.Seq) != want {
			t.Errorf("noSync %v: head %d, %v; want %d", noSync, got.Seq, err, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
