//go:build realagents && linux

package realagents_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// survivors are the processes that an agent left behind: those with mark in their
// environment, and with all those in the test's network, which is its own, too.
func survivors(mark string, all bool) []string {
	mine := ancestry()
	home, _ := os.Readlink("/proc/self/ns/net")
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var left []string
	for _, dir := range dirs {
		pid := filepath.Base(dir)
		if slices.Contains(mine, pid) {
			continue
		}
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		net, _ := os.Readlink(filepath.Join(dir, "ns/net"))
		if !bytes.Contains(env, []byte(mark)) && (!all || net == "" || net != home) {
			continue
		}
		cmd, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if len(cmd) == 0 {
			continue // it ended, and nobody has collected it yet
		}
		left = append(left, fmt.Sprintf("process %s: %s", pid, strings.TrimSpace(strings.ReplaceAll(string(cmd), "\x00", " "))))
	}
	return left
}

// guardTime is what the host's guard, which outlives it, may take to look around and,
// after a crash, to end what is left.
const guardTime = 15 * time.Second

// lasting are the survivors of a host: of an agent at once, unless it was a crash, and
// all once the guard had its time.
func lasting(mark string, crash bool) []string {
	if left := survivors(mark, false); len(left) > 0 && !crash {
		return left
	}
	deadline := time.Now().Add(guardTime)
	for {
		left := survivors(mark, true)
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// killAll kills every process of an agent at once, and returns how many.
func killAll(mark string) int {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	n := 0
	for _, dir := range dirs {
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if bytes.Contains(env, []byte(mark)) && syscall.Kill(pid, syscall.SIGKILL) == nil {
			n++
		}
	}
	return n
}

// ancestry is this process and those above it.
func ancestry() []string {
	pids := []string{}
	for pid := strconv.Itoa(os.Getpid()); pid != "0" && pid != ""; {
		pids = append(pids, pid)
		stat, _ := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 {
			break
		}
		pid = fields[1]
	}
	return pids
}

// isolated fails where anything but this machine can be reached.
func isolated() error {
	all, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			return fmt.Errorf("there is a network (%s): run .ci/agents, which takes it away", i.Name)
		}
	}
	return nil
}
