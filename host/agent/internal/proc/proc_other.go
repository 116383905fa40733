//go:build !unix

package proc

import (
	"os"
	"os/exec"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

func waitExited(cmd *exec.Cmd) { collect(cmd) }

func reap(*exec.Cmd) {}

// terminate ends the leader: there is no gentler way here.
func terminate(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

// killMarked finds nobody: other processes' environments cannot be read here.
func killMarked(string) int { return 0 }

func signalOf(*os.ProcessState) (int, string) { return 0, "" }
