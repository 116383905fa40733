//go:build unix

package auth

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

const noFollow = syscall.O_NOFOLLOW

// checkPrivate refuses a file that others may touch or that others own.
func checkPrivate(path string, info fs.FileInfo, want string) error {
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return &FileError{path, fmt.Sprintf("its mode is %04o, so others can reach it; want %s", perm, want), "chmod " + want + " " + quote(path)}
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return &FileError{path, "its owner cannot be read", "use a local file system"}
	}
	if me := os.Geteuid(); int(st.Uid) != me {
		return &FileError{path, fmt.Sprintf("it belongs to user %d, and this process runs as user %d", st.Uid, me), fmt.Sprintf("chown %d %s, or run as its owner", me, quote(path))}
	}
	return nil
}

func syncOpenDir(d *os.File) error {
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync the directory: %w", err)
	}
	return nil
}
