//go:build unix

package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// noFollow makes opening a symbolic link fail.
const noFollow = syscall.O_NOFOLLOW

// private refuses files that others may read or write, or own.
func private(name string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: %s is not a regular file (%v)", errPrivate, name, info.Mode().Type())
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%w: %s has mode %04o, want 0600; run: chmod 600 %s", errPrivate, name, info.Mode().Perm(), name)
	case !ok || int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%w: %s belongs to another user; want uid %d", errPrivate, name, os.Geteuid())
	}
	return nil
}

// lockFile is PATH.lock while this process holds it. The file stays afterwards.
type lockFile struct{ f *os.File }

// acquire takes the lock, or says who has it. It tries for a second, for a holder
// that is just ending.
func acquire(name string) (*lockFile, error) {
	f, err := openPrivate(nil, name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("bolt: the lock: %w", err)
	}
	deadline := time.Now().Add(lockTimeout)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(deadline) {
			break
		}
		<-again.C
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(holder(f, name), f.Close())
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "%d %s\n", os.Getpid(), time.Now().UTC().Format(time.RFC3339)), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bolt: the lock: %w", err), f.Close())
	}
	return &lockFile{f}, nil
}

// holder reads who has the lock.
func holder(f *os.File, name string) error {
	e := &LockedError{Path: name, Since: "an unknown time"}
	buf := make([]byte, 128)
	n, _ := f.ReadAt(buf, 0)
	_, _ = fmt.Sscanf(string(buf[:n]), "%d %s", &e.PID, &e.Since)
	return e
}

func (l *lockFile) release() error { return l.f.Close() }
