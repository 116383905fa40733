package main_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// markOf is the entry by which a command's descendants are found.
const markOf = "MUXHOST_CALL="

// commandsIn returns the marks of the hosts whose commands run in dir: that part
// of the mark that all commands of a host share.
func commandsIn(dir string) map[string]bool {
	marks := map[string]bool{}
	for _, mark := range marked(dir) {
		marks[mark] = true
	}
	return marks
}

// marked returns the processes that work in dir and carry a mark.
func marked(dir string) map[int]string {
	found := map[int]string{}
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil // cannot happen: the pattern is well formed
	}
	for _, f := range files {
		proc := filepath.Dir(f)
		if at, err := os.Readlink(filepath.Join(proc, "cwd")); err != nil || at != dir {
			continue
		}
		env, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for entry := range bytes.SplitSeq(env, []byte{0}) {
			if value, ok := strings.CutPrefix(string(entry), markOf); ok {
				host, _, _ := strings.Cut(value, ".")
				if pid, err := strconv.Atoi(filepath.Base(proc)); err == nil {
					found[pid] = host
				}
			}
		}
	}
	return found
}

// outlive waits until no process in dir carries one of marks, at the latest until
// deadline, and returns how many still do.
func outlive(dir string, marks map[string]bool, deadline time.Time) int {
	for {
		left := 0
		for pid, mark := range marked(dir) {
			if marks[mark] && !awaitEnd(pid, time.Until(deadline)) {
				left++
			} else if marks[mark] {
				left = -1 // look again: it may have had children
				break
			}
		}
		if left >= 0 {
			return left
		}
	}
}

// awaitEnd waits for the end of a process, at most for d.
func awaitEnd(pid int, d time.Duration) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return true // it has ended
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, max(0, int(d.Milliseconds())))
	return n > 0 || err == unix.EINTR
}
