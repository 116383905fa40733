package proc

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"unsafe"
)

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Numbers of waitid(2), which package syscall does not name.
const (
	waitPid    = 1 // P_PID
	waitNoReap = syscall.WNOWAIT
)

// waitExited waits until the leader is dead, and leaves it a zombie: while it is
// one, its pid, which is the group's id, goes to nobody else.
func waitExited(cmd *exec.Cmd) {
	for {
		var info [128]byte // siginfo_t
		_, _, e := syscall.Syscall6(syscall.SYS_WAITID, waitPid, uintptr(cmd.Process.Pid),
			uintptr(unsafe.Pointer(&info)), syscall.WEXITED|waitNoReap, 0, 0)
		if e != syscall.EINTR {
			return
		}
	}
}

// reap takes the leader's status and gives its pid back.
func reap(cmd *exec.Cmd) { collect(cmd) }

// killMarked kills every process whose environment holds mark (NAME=value), and
// returns how many there were.
func killMarked(mark string) int {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return 0 // cannot happen: the pattern is well formed
	}
	n := 0
	for _, f := range files {
		if !carries(f, mark) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			continue
		}
		// The handle pins the process; it is looked at once more through its pid,
		// so that nobody is killed who got the pid meanwhile.
		proc, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		if carries(f, mark) && proc.Kill() == nil {
			n++
		}
		_ = proc.Release()
	}
	return n
}

// carries reports whether the environment in file holds mark as a whole entry.
func carries(file, mark string) bool {
	b, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	for entry := range bytes.SplitSeq(b, []byte{0}) {
		if string(entry) == mark {
			return true
		}
	}
	return false
}
