package cli

import (
	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/host"
)

// limitFlags bound what sessions and their trees may grow to.
type limitFlags struct{ queue, tree, depth, spawnRate int }

func (f *limitFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.IntVar(&f.queue, "max-queue", 64, "how many prompts may wait in one session")
	fl.IntVar(&f.tree, "max-tree", 1000, "how many sessions one tree may have")
	fl.IntVar(&f.depth, "max-depth", 16, "how many levels of subagents a tree may have")
	fl.IntVar(&f.spawnRate, "spawn-rate", 60, "how many children a minute one tree may get")
}

// apply checks the flags and sets the limits.
func (f *limitFlags) apply(cfg *host.Config) error {
	for _, l := range []struct {
		name string
		got  int
		to   *int
	}{
		{"max-queue", f.queue, &cfg.MaxQueue},
		{"max-tree", f.tree, &cfg.MaxTree},
		{"max-depth", f.depth, &cfg.MaxDepth},
		{"spawn-rate", f.spawnRate, &cfg.SpawnRate},
	} {
		if l.got < 1 || l.got > 1_000_000 {
			return fail(exitUsage, "--%s is %d: it takes 1 to 1000000", l.name, l.got)
		}
		*l.to = l.got
	}
	return nil
}
