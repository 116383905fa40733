//go:build unix

package config

import (
	"os"
	"syscall"
)

// openAtOnce opens a file for reading; a pipe is not waited for.
func openAtOnce(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}
