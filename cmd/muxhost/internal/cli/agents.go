package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/config"
	"github.com/muxhost/muxhost/cmd/muxhost/internal/roster"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/mcp"
)

// fleet is the agents of a running host, and the tools that it offers them.
type fleet struct {
	drivers []agent.Driver
	tools   *mcp.Server // nil if no agent takes them
}

// launch makes the drivers of the agents that are offered. No agent starts before a
// session needs it.
func launch(entries []roster.Entry, log *slog.Logger) (*fleet, error) {
	f := new(fleet)
	var d roster.Deps
	if slices.ContainsFunc(entries, func(e roster.Entry) bool { return e.Offered() && e.Tools }) {
		var err error
		if f.tools, err = mcp.New(mcp.Options{Agents: f.infos, Version: version(), Logger: log}); err != nil {
			return nil, err
		}
		d.Tools = f.tools
		if exe, err := os.Executable(); err == nil { // else agents that need the bridge go without
			d.Bridge = []string{exe, "mcp-bridge"}
		}
	}
	for _, e := range entries {
		if e.Offered() {
			f.drivers = append(f.drivers, e.Driver(d))
		}
	}
	return f, nil
}

// infos describes the agents, which may be spawned. It is called once all are there.
func (f *fleet) infos() []agent.Info {
	infos := make([]agent.Info, len(f.drivers))
	for i, d := range f.drivers {
		infos[i] = d.Info()
	}
	return infos
}

// close ends the tools and waits for that. The host, which closes the drivers, has to
// be down.
func (f *fleet) close(ctx context.Context) error {
	if f.tools == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, agent.CloseTimeout)
	defer cancel()
	return f.tools.Close(ctx)
}

// checkAgent refuses a default agent that is not offered. at is where it is said.
func checkAgent(at, name string, entries []roster.Entry) error {
	var names []string
	for _, e := range entries {
		switch {
		case e.Offered():
			names = append(names, e.Name)
		case e.Name == name:
			return fail(exitUsage, "%s is %q, which is %s: %s", at, name, e.State, e.Note)
		}
	}
	if slices.Contains(names, name) {
		return nil
	}
	return fail(exitUsage, "%s is %q: this host has the agents %s", at, name, strings.Join(names, ", "))
}

// agentsLine shows the agents in one line.
func (a *app) agentsLine(entries []roster.Entry) string {
	var words []string
	for _, e := range entries {
		switch e.State {
		case roster.Missing:
			words = append(words, a.errStyle.Dim(e.Name+" ✗"))
		case roster.ByNpx:
			words = append(words, e.Name+" "+a.errStyle.Green("✓")+" (npx)")
		case roster.Disabled:
		default:
			words = append(words, e.Name+" "+a.errStyle.Green("✓"))
		}
	}
	return strings.Join(words, "  ")
}

// kindWord is what a person reads of a kind.
func kindWord(e roster.Entry) string {
	if e.Kind == config.KindACP && e.Recipe != "" && e.Recipe != e.Name {
		return e.Kind + " (" + e.Recipe + ")"
	}
	return e.Kind
}

// askWord says in a few words what makes an agent ask.
func askWord(e roster.Entry) string {
	switch {
	case e.Mode != "":
		return fmt.Sprintf("mode %q", e.Mode)
	case e.Asks != "":
		return e.Asks
	case e.Kind == config.KindShell:
		return "the host asks before it runs"
	}
	return "-"
}
