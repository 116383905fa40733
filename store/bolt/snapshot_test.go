package bolt

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/muxhost/muxhost/store"
	"github.com/muxhost/muxhost/store/storetest"
)

// Its snapshots are whole databases, and of one moment.
func TestBoltSnapshots(t *testing.T) {
	opts := Options{bounds: small, hooks: unsynced}
	storetest.RunSnapshot(t, func(t *testing.T) store.Snapshotter { return openIn(t, t.TempDir(), opts) }, func(t *testing.T, b []byte) store.Store {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "db"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		return openIn(t, dir, opts)
	})
}
