package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/roster"
)

func newAgents(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agents",
		Short: "Which agents this machine has, and whether they start",
		Args:  noSuchVerb,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newAgentsLs(a), newAgentsTest(a))
	return cmd
}

func newAgentsLs(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the agents that a host would offer, and those that are not here",
		Long: `Lists the agents that are built in, those of config.toml, and those that this program
knows how to run: found on the PATH, run through npx (which downloads the pinned version
when it is first used), or missing. It looks at files only and starts nothing; muxhost
agents test NAME starts one. A running host has the agents that were there when it
started.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.listAgents(asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON lines")
	return cmd
}

// agentLine is an agent as JSON.
type agentLine struct {
	Name     string       `json:"name"`
	Kind     string       `json:"kind"`
	State    roster.State `json:"state"`
	Offered  bool         `json:"offered"`
	Recipe   string       `json:"recipe,omitempty"`
	Provider string       `json:"provider,omitempty"`
	Model    string       `json:"model,omitempty"`
	Command  []string     `json:"command,omitempty"`
	Mode     string       `json:"approvalMode,omitempty"`
	Asks     string       `json:"asks,omitempty"`
	Env      []string     `json:"env,omitempty"` // names
	Source   string       `json:"source"`
	Note     string       `json:"note,omitempty"`
}

func (a *app) entries() ([]roster.Entry, error) {
	c, err := a.config()
	if err != nil {
		return nil, err
	}
	return a.roster(c)
}

func (a *app) listAgents(asJSON bool) error {
	entries, err := a.entries()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if asJSON {
			err = a.jsonLine("agent", agentLine{
				e.Name, e.Kind, e.State, e.Offered(), e.Recipe, e.Provider, e.Model, e.Command, e.Mode, e.Asks, e.EnvNames, e.Source, e.Note,
			})
		} else {
			err = a.showAgent(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var stateWords = map[roster.State]string{roster.ByNpx: "through npx"}

// showAgent prints one agent: a line, and what else there is to say below it.
func (a *app) showAgent(e roster.Entry) error {
	state := fmt.Sprintf("%-11s", first(stateWords[e.State], string(e.State)))
	switch e.State {
	case roster.Missing:
		state = a.style.Yellow(state)
	case roster.Disabled:
		state = a.style.Dim(state)
	default:
		state = a.style.Green(state)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s %-6s %s  %s, %s\n", a.line(e.Name), kindWord(e), state, a.line(askWord(e)), a.line(e.Source))
	if len(e.Command) > 0 {
		fmt.Fprintf(&b, "    %s\n", a.line(strings.Join(e.Command, " ")))
	}
	if e.LLM.BaseURL != "" {
		fmt.Fprintf(&b, "    %s, model %s\n", a.line(e.LLM.BaseURL), a.line(e.Model))
	}
	if e.Note != "" {
		fmt.Fprintf(&b, "    %s\n", a.style.Dim(a.line(e.Note)))
	}
	_, err := fmt.Fprint(a.stdout, b.String())
	return err
}
