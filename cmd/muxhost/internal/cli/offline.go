package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/muxhost/muxhost/store/bolt"
)

// What a state directory holds, beside what state.go names.
const (
	dbFileName  = "muxhost.db"
	blobDirName = "blobs"
	// What verbs that work without a host leave behind when they are killed, and
	// remove at their next start.
	stagePrefix   = ".restore-"
	compactSuffix = ".compact"
)

// needState fails unless dir holds a database.
func (a *app) needState(dir string) error {
	info, err := os.Lstat(filepath.Join(dir, dbFileName))
	if errors.Is(err, fs.ErrNotExist) {
		return fail(exitNotFound, "%s holds no state: name the directory of a host with --state-dir", dir)
	}
	if err == nil && !info.Mode().IsRegular() {
		return fail(exitFailed, "%s is not a regular file (%v)", filepath.Join(dir, dbFileName), info.Mode().Type())
	}
	return err
}

// lockState takes the state directory for this program alone, and removes what was
// left by one that was killed.
func (a *app) lockState(dir string) (*bolt.Lock, error) {
	lock, err := bolt.Acquire(filepath.Join(dir, dbFileName))
	if e, ok := errors.AsType[*bolt.LockedError](err); ok {
		return nil, fail(exitFailed, "process %d uses %s: stop the host first, with muxhost stop%s", e.PID, dir, a.stateHint())
	}
	if err != nil {
		return nil, err
	}
	left, err := filepath.Glob(filepath.Join(dir, stagePrefix+"*"))
	left = append(left, filepath.Join(dir, dbFileName+compactSuffix))
	for _, name := range left {
		err = errors.Join(err, os.RemoveAll(name))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("remove what an earlier call left: %w", err), lock.Release())
	}
	return lock, nil
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// size is a number of bytes for people.
func size(n int64) string {
	const unit = 1000
	if n < unit {
		return fmt.Sprintf("%d bytes", n)
	}
	v, i := float64(n)/unit, 0
	for ; v >= unit && i < 3; i++ {
		v /= unit
	}
	return fmt.Sprintf("%.1f %cB", v, "kMGT"[i])
}
