package cli

import (
	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/host/agent/mcp"
)

// newMCPBridge is for agents, not for people: an agent that can only start tools as
// processes starts it, with the door to its session's tools in the environment.
func newMCPBridge(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "mcp-bridge",
		Short: "Carry the host's tools to an agent that starts tools as processes",
		Long: `Speaks the Model Context Protocol on standard input and output for the address in
$` + mcp.EnvURL + `, with the token in $` + mcp.EnvToken + `. The host starts agents so that
they start it; there is nothing for people to do with it.`,
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return mcp.Bridge(cmd.Context(), a.stdin, a.stdout, a.getenv(mcp.EnvURL), a.getenv(mcp.EnvToken))
		},
	}
}
