package proc

import (
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// guardScript waits until its input ends, which is when the host is gone in
// whatever way, and then kills everything that carries the host's mark.
const guardScript = `read -r _
n=0 clean=0
while [ $n -lt 200 ] && [ $clean -lt 2 ]; do
	n=$((n+1)) clean=$((clean+1))
	for f in $(grep -slF "$1" /proc/[0-9]*/environ); do
		clean=0
		p=${f#/proc/}
		kill -9 "${p%/environ}"
	done
done 2>/dev/null`

// guard is a small process beside the host, for the case that the host is killed
// and cannot end its commands itself. It is a backstop: where it cannot run,
// commands run all the same.
type guard struct {
	once sync.Once
	life *os.File // its input; closed by the kernel when the host dies
}

// watch starts the guard for processes that carry mark, a prefix NAME=value.
func (g *guard) watch(mark string) {
	g.once.Do(func() {
		r, w, err := os.Pipe()
		if err != nil {
			return
		}
		defer r.Close()
		cmd := exec.Command("/bin/sh", "-c", guardScript, "muxhost-guard", mark) //nolint:noctx // outlives us
		cmd.Dir = "/"
		cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
		cmd.Stdin = r
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			w.Close()
			return
		}
		g.life = w
	})
}
