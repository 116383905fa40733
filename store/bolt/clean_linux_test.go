package bolt

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// dirtyPages asks the kernel how many pages of a file are not on the disk yet.
func dirtyPages(t *testing.T, path string) uint64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st unix.Cachestat_t
	if err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &st, 0); err != nil {
		t.Logf("this kernel does not tell: %v; the simulated losses of power have to do", err)
		return 0
	}
	return st.Dirty + st.Writeback
}

// kernelTells reports whether dirtyPages can see anything: not on old kernels.
func kernelTells(t *testing.T) bool {
	t.Helper()
	return unix.Cachestat(^uint(0), &unix.CachestatRange{}, &unix.Cachestat_t{}, 0) != unix.ENOSYS
}

// When Append returns, the kernel holds no page of the database that is not on
// the disk; without bbolt's syncs it would.
func TestAcknowledgedIsClean(t *testing.T) {
	var db *bbolt.DB
	dir := t.TempDir()
	s := openIn(t, dir, Options{bounds: small, hooks: hooks{opened: func(b *bbolt.DB) { db = b }}})
	var head store.Head
	var err error
	for n := range 100 {
		if head, err = appendOne(t, s, "clean", head); err != nil {
			t.Fatal(err)
		}
		if d := dirtyPages(t, filepath.Join(dir, "db")); d != 0 {
			t.Fatalf("append %d: %d pages are not on the disk", n, d)
		}
	}
	db.NoSync = true // a commit has ended, and the next has not begun
	if _, err := appendOne(t, s, "clean", head); err != nil {
		t.Fatal(err)
	}
	if d := dirtyPages(t, filepath.Join(dir, "db")); d == 0 && kernelTells(t) {
		t.Error("without syncs no page is dirty either; the test has no teeth")
	}
}
