//go:build unix

package proc

import (
	"os"
	"os/exec"
	"syscall"
)

// terminate asks the command's process group to end.
func terminate(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

// killGroup ends the command's process group.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

func signalOf(st *os.ProcessState) (int, string) {
	ws, ok := st.Sys().(syscall.WaitStatus)
	if !ok || !ws.Signaled() {
		return 0, ""
	}
	return int(ws.Signal()), ws.Signal().String()
}
