package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// noFollow has no counterpart here; prepare refuses links instead.
const noFollow = 0

// private checks the kind of file only: access is a matter of the directory's
// list of rights.
func private(name string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is not a regular file (%v)", errPrivate, name, info.Mode().Type())
	}
	return nil
}

// lockFile is PATH.lock while this process holds it. The file stays afterwards.
type lockFile struct{ f *os.File }

// acquire takes the lock. The holder's text lies beside the locked byte, so
// that others can read it.
func acquire(name string) (*lockFile, error) {
	f, err := openPrivate(nil, name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("bolt: the lock: %w", err)
	}
	at := &windows.Overlapped{Offset: 1 << 20}
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		e := &LockedError{Path: name, Since: "an unknown time"}
		buf := make([]byte, 128)
		n, _ := f.ReadAt(buf, 0)
		_, _ = fmt.Sscanf(string(buf[:n]), "%d %s", &e.PID, &e.Since)
		return nil, errors.Join(e, f.Close())
	}
	if err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "%d %s\n", os.Getpid(), time.Now().UTC().Format(time.RFC3339)), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bolt: the lock: %w", err), f.Close())
	}
	return &lockFile{f}, nil
}

func (l *lockFile) release() error { return l.f.Close() }
