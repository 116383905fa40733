package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/config"
	"github.com/muxhost/muxhost/cmd/muxhost/internal/roster"
	"github.com/muxhost/muxhost/cmd/muxhost/internal/term"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/rpc/client"
	"github.com/muxhost/muxhost/store/mem"
)

// tryFlags are those of `muxhost agents test`.
type tryFlags struct {
	prompt, approve string
	timeout         time.Duration
	json            bool
}

func newAgentsTest(a *app) *cobra.Command {
	var f tryFlags
	cmd := &cobra.Command{
		Use:   "test NAME",
		Short: "Start an agent, see that it answers and asks, and end it again",
		Long: `Starts the agent as the host would, in an empty directory that is removed afterwards,
and says its version and whether it acknowledged the mode in which it asks. Of an
endpoint it asks which models it has. Needs no running host, and leaves none.

No prompt is sent, unless --prompt gives one: then one turn runs with it, on a host of
its own in memory, and whatever the agent asks for is rejected. An agent that costs
money per prompt does so here.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.tryAgent(cmd.Context(), args[0], f) },
	}
	cmd.Flags().StringVar(&f.prompt, "prompt", "", "run one turn with this prompt")
	cmd.Flags().StringVar(&f.approve, "approve", "reject", "with --prompt: reject what the agent asks for, or ask here")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "how long the start, and the turn, may take (default: as long as the agent's own limits)")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the result, and with --prompt the session's frames, as JSON lines")
	return cmd
}

func (a *app) tryAgent(ctx context.Context, name string, f tryFlags) (err error) {
	if f.approve != "reject" && f.approve != "ask" {
		return fail(exitUsage, "--approve is %q: it takes reject or ask", f.approve)
	}
	entries, err := a.entries()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(entries, func(e roster.Entry) bool { return e.Name == name })
	if i < 0 {
		return fail(exitNotFound, "no agent %q: see muxhost agents ls", term.Line(name))
	}
	dir, err := os.MkdirTemp("", "muxhost-test-")
	if err != nil {
		return err
	}
	defer func() { err = also(err, os.RemoveAll(dir)) }()
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	ctx, stop := a.untilSignal(ctx)
	defer stop()
	return a.tryIn(ctx, entries[i], dir, f)
}

// tryIn tries the agent in dir.
func (a *app) tryIn(ctx context.Context, e roster.Entry, dir string, f tryFlags) error {
	var d agent.Driver
	if e.Offered() {
		d = e.Driver(roster.Deps{})
	}
	if e.State == roster.ByNpx && !f.json {
		fmt.Fprintln(a.stderr, a.errStyle.Dim(a.line(e.Note)))
	}
	r, err := probe(ctx, e, d, dir, f.timeout)
	err = a.report(e, r, err, f.json)
	if err == nil && f.prompt != "" {
		return a.tryTurn(ctx, e, d, dir, f) // its host closes the driver
	}
	return also(err, closeDriver(ctx, d))
}

func probe(ctx context.Context, e roster.Entry, d agent.Driver, dir string, most time.Duration) (roster.Report, error) {
	ctx, cancel := limited(ctx, most)
	defer cancel()
	return roster.Probe(ctx, e, d, host.AllowedEnv(os.Environ()), dir)
}

// closeDriver ends what a driver, which may be nil, holds beyond sessions.
func closeDriver(ctx context.Context, d agent.Driver) error {
	c, ok := d.(agent.Closer)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), agent.CloseTimeout)
	defer cancel()
	return c.Close(ctx)
}

// also joins what failed later to err, which stays what it is if nothing did: an
// [exitError] may have nothing to say.
func also(err, later error) error {
	if later == nil {
		return err
	}
	return errors.Join(err, later)
}

func limited(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// tried is the result of a test as JSON.
type tried struct {
	Name    string   `json:"name"`
	Ok      bool     `json:"ok"`
	Agent   string   `json:"agent,omitempty"`
	Version string   `json:"version,omitempty"`
	Mode    string   `json:"approvalMode,omitempty"`
	Offers  []string `json:"offers,omitempty"`
	Modes   []string `json:"modes,omitempty"`
	Models  []string `json:"models,omitempty"`
	Shared  bool     `json:"shared,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	TookMs  int64    `json:"tookMs"`
	Error   string   `json:"error,omitempty"`
}

// report prints what a probe showed. A failure is the program's failure.
func (a *app) report(e roster.Entry, r roster.Report, failed error, asJSON bool) error {
	if asJSON {
		t := tried{
			Name: e.Name, Ok: failed == nil, Agent: r.Agent, Version: r.Version, Mode: r.Mode, Offers: r.Offers, Modes: r.Modes,
			Models: r.Models, Shared: r.Shared, Notes: r.Notes, TookMs: r.Took.Milliseconds(),
		}
		if failed != nil {
			t.Error = failed.Error()
		}
		if err := a.jsonLine("agent-test", t); err != nil || failed == nil {
			return err
		}
		return &exitError{code: exitFailed}
	}
	for _, n := range r.Notes {
		fmt.Fprintln(a.stderr, a.errStyle.Yellow(term.Clean(n)))
	}
	if failed != nil {
		return fail(exitFailed, "%s: %w", e.Name, failed)
	}
	for _, line := range facts(e, r) {
		fmt.Fprintln(a.stdout, a.style.Green("✓"), a.line(line))
	}
	return nil
}

// facts are what a probe that went well showed.
func facts(e roster.Entry, r roster.Report) []string {
	out := []string{fmt.Sprintf("%s started in %v", e.Name, r.Took.Round(10*time.Millisecond))}
	if r.Agent != "" {
		out = append(out, "it is "+strings.TrimSpace(r.Agent+" "+r.Version))
	}
	switch {
	case r.Mode != "":
		out = append(out, fmt.Sprintf("it acknowledged the mode %q, in which it asks%s", r.Mode, because(e.Asks)))
	case e.Kind == config.KindLLM:
		return append(out, fmt.Sprintf("the endpoint has %s, %s among them", count(len(r.Models), "model"), e.Model))
	case e.Asks != "":
		out = append(out, "no mode is set: "+e.Asks)
	}
	for _, l := range []struct {
		what  string
		words []string
	}{{"it offers: ", r.Offers}, {"its modes: ", r.Modes}, {"its models: ", r.Models}} {
		if len(l.words) > 0 {
			out = append(out, l.what+roster.Some(l.words))
		}
	}
	switch {
	case r.Shared:
		out = append(out, "its sessions share one process")
	case e.Kind == config.KindACP:
		out = append(out, "each of its sessions has a process of its own")
	}
	return out
}

// because is why, in parentheses, if there is a why.
func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// tryTurn runs one turn on a host in memory.
func (a *app) tryTurn(ctx context.Context, e roster.Entry, d agent.Driver, dir string, f tryFlags) (err error) {
	token := host.NewToken()
	h, err := host.New(ctx, host.Config{
		Store: mem.New(), Drivers: []agent.Driver{d}, Token: token, Version: version(), Env: host.AllowedEnv(os.Environ()),
	})
	if err != nil {
		return also(err, closeDriver(ctx, d))
	}
	defer func() { err = also(err, h.Shutdown(context.WithoutCancel(ctx))) }()
	c, err := client.Dial(ctx, client.Options{URL: host.LocalURL, HTTPClient: h.Local(), Token: token, Label: a.label()})
	if err != nil {
		return err
	}
	defer c.Close()
	run := runFlags{agent: e.Name, approve: f.approve, json: f.json, timeout: f.timeout}
	sid, err := createFor(ctx, c, f.prompt, dir, run)
	if err != nil {
		return err
	}
	return a.watchRun(ctx, c, sid, f.prompt, run)
}
