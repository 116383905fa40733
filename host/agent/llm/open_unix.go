//go:build unix

package llm

import "syscall"

// noWait opens a pipe at once, though nobody writes to it.
const noWait = syscall.O_NONBLOCK
