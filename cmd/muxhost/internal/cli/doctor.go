package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/config"
	"github.com/muxhost/muxhost/cmd/muxhost/internal/doctor"
	"github.com/muxhost/muxhost/cmd/muxhost/internal/roster"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/rpc"
)

// answerPatience is how long a host may take to say that it is there.
const answerPatience = 5 * time.Second

func newDoctor(a *app) *cobra.Command {
	var agents, asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "See whether a host can run here, and what to do where it cannot",
		Long: `Looks at the configuration, the state directory and what is in it, the disk and the
clock, the host that runs or the port that it would take, and the agents. Prints a line
for each, with what to do below it, and exits with 1 if something does not work;
warnings do not count. It changes nothing, and a host that runs is not disturbed.

Agents are looked for and not started, unless --agents is given: then each is started
in an empty directory, says who it is and that it asks, and is ended again. No prompt is
sent. Agents that npx would download first are started only where config.toml names them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context(), agents, asJSON) },
	}
	cmd.Flags().BoolVar(&agents, "agents", false, "start each agent to see whether it answers")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON lines")
	return cmd
}

// checkup counts results by level; --json prints it last.
type checkup struct {
	OK   int `json:"ok"`
	Info int `json:"info"`
	Warn int `json:"warn"`
	Fail int `json:"fail"`
}

func (c *checkup) count(l doctor.Level) {
	switch l {
	case doctor.OK:
		c.OK++
	case doctor.Info:
		c.Info++
	case doctor.Warn:
		c.Warn++
	case doctor.Fail:
		c.Fail++
	}
}

func (a *app) doctor(ctx context.Context, agents, asJSON bool) error {
	ctx, stop := a.untilSignal(ctx)
	defer stop()
	w, err := a.doctorWorld()
	if err != nil {
		return err
	}
	if agents {
		w.Probe = a.probeAgent
	}
	var sums checkup
	for r := range w.Run(ctx) {
		sums.count(r.Level)
		if asJSON {
			err = a.jsonLine("check", r)
		} else {
			err = a.showResult(r)
		}
		if err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return &exitError{code: exitInterrupted}
	}
	if asJSON {
		err = a.jsonLine("doctor", sums)
	} else {
		_, err = fmt.Fprintf(a.stdout, "\n%d well, %s, %s\n", sums.OK, count(sums.Warn, "warning"), count(sums.Fail, "failure"))
	}
	if err == nil && sums.Fail > 0 {
		err = &exitError{code: exitFailed}
	}
	return err
}

// showResult prints a result, and what to do below it.
func (a *app) showResult(r doctor.Result) error {
	mark := map[doctor.Level]string{
		doctor.OK: a.style.Green("✓"), doctor.Info: a.style.Dim("·"), doctor.Warn: a.style.Yellow("!"), doctor.Fail: a.style.Red("✗"),
	}[r.Level]
	_, err := fmt.Fprintf(a.stdout, "%s %-16s %s\n", mark, a.line(r.Check), a.line(r.What))
	if err == nil && r.Fix != "" {
		_, err = fmt.Fprintf(a.stdout, "%19s%s %s\n", "", a.style.Bold("→"), a.line(r.Fix))
	}
	return err
}

// doctorWorld is this machine.
func (a *app) doctorWorld() (*doctor.World, error) {
	dir, err := a.stateDir()
	if err != nil {
		return nil, err
	}
	var listen net.ListenConfig
	return &doctor.World{
		StateDir: dir, Cwd: here(), Home: a.home(), Version: version(), Built: built(), Hint: a.stateHint() + a.configHint(),
		Getenv: a.getenv, Now: time.Now, Listen: listen.Listen, Free: doctor.Free,
		Config: func() (*config.Config, error) { return config.Open(a.configFlag, a.getenv) },
		Host:   func(ctx context.Context) doctor.Host { return a.lookAtHost(ctx, dir) },
	}, nil
}

// configHint repeats --config where it was given.
func (a *app) configHint() string {
	if a.configFlag == "" {
		return ""
	}
	return " --config " + a.configFlag
}

// here is this directory without symbolic links, "" if there is none.
func here() string {
	dir, err := os.Getwd()
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return ""
	}
	return dir
}

// built is when the commit was made that this program was built from, zero if it does
// not say.
func built() time.Time {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return time.Time{}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			t, err := time.Parse(time.RFC3339, s.Value)
			if err == nil {
				return t
			}
		}
	}
	return time.Time{}
}

// lookAtHost asks the host of dir who it is.
func (a *app) lookAtHost(ctx context.Context, dir string) doctor.Host {
	f, err := readHostFile(dir)
	h := doctor.Host{Told: f.PID != 0, Running: err == nil, PID: f.PID, URL: f.URL}
	if err != nil {
		if !errors.Is(err, errNoHost) {
			h.Err = err
		}
		return h
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerPatience, fmt.Errorf("nothing came in %v", answerPatience))
	defer cancel()
	h.Version, h.Err = a.hostVersion(ctx, dir)
	if h.Err != nil && errors.Is(h.Err, context.DeadlineExceeded) {
		h.Err = context.Cause(ctx)
	}
	return h
}

func (a *app) hostVersion(ctx context.Context, dir string) (string, error) {
	c, err := a.dial(ctx, dir)
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // it said what was asked
	var d rpc.DescribeResult
	err = c.Call(ctx, "host.describe", rpc.Empty{}, &d)
	return d.Version, err
}

// probeAgent starts an agent in an empty directory, and ends it again.
func (a *app) probeAgent(ctx context.Context, e roster.Entry) (r roster.Report, err error) {
	dir, err := os.MkdirTemp("", "muxhost-doctor-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return r, err
	}
	d := e.Driver(roster.Deps{})
	defer func() {
		all := fleet{drivers: []agent.Driver{d}}
		err = errors.Join(err, all.close(context.WithoutCancel(ctx)))
	}()
	return roster.Probe(ctx, e, d, host.AllowedEnv(os.Environ()), dir)
}
