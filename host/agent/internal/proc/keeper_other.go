//go:build !linux

package proc

import (
	"os/exec"
	"time"
)

const keeperWait = time.Duration(0)

// order is what is run.
type order struct {
	Argv, Env []string
	Dir       string
}

// keeper is nothing where orphans cannot be caught: what is run is run directly.
type keeper struct{}

func (*keeper) command() (*exec.Cmd, error) { return nil, nil }
func (*keeper) begin(order) error           { return nil }
func (*keeper) abandon()                    {}
func (*keeper) terminate()                  {}
func (*keeper) release()                    {}
func (*keeper) ending() (Ending, bool)      { return Ending{}, false }
