package bolt

import (
	"path/filepath"
	"testing"

	"github.com/muxhost/muxhost/store"
	"github.com/muxhost/muxhost/store/storetest"
	"go.etcd.io/bbolt"
)

// small bounds, so that tests fold all the time.
var small = bounds{events: 100, bytes: 32 << 10, commits: 10}

// unsynced does without syncs: for tests that never lose power.
var unsynced = hooks{opened: func(db *bbolt.DB) { db.NoSync = true }}

// openIn opens the database in dir and checks all of it when the test ends.
func openIn(t *testing.T, dir string, opts Options) *Store {
	t.Helper()
	path := filepath.Join(dir, "db")
	s, err := Open(path, opts)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := Check(path); err != nil {
			t.Errorf("Check: %v", err)
		}
	})
	return s
}

// fast is which runs of the suite do without syncs.
var fast = map[bounds]hooks{small: unsynced}

// The store keeps the contract, whether it folds rarely or all the time.
func TestBoltKeepsTheContract(t *testing.T) {
	for name, b := range map[string]bounds{"folds rarely": {}, "folds all the time": small} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) store.Store { return openIn(t, t.TempDir(), Options{bounds: b, hooks: fast[b]}) })
		})
	}
}

// What was stored is there after closing and opening again.
func TestBoltKeepsEverythingAcrossReopen(t *testing.T) {
	for name, b := range map[string]bounds{"folds rarely": {}, "folds all the time": small} {
		t.Run(name, func(t *testing.T) {
			storetest.RunReopen(t, func(t *testing.T, dir string) store.Store { return openIn(t, dir, Options{bounds: b, hooks: fast[b]}) })
		})
	}
}
