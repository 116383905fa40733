package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/rpc/client"
)

// How long a host may take to start and to end, and how often to look.
const (
	startPatience = 15 * time.Second
	stopPatience  = 30 * time.Second
	lookEvery     = 50 * time.Millisecond
)

// connectOrStart dials the host, starting one in the background if none runs.
func (a *app) connectOrStart(ctx context.Context) (*client.Client, error) {
	dir, err := a.stateDir()
	if err != nil {
		return nil, err
	}
	_, err = readHostFile(dir)
	if errors.Is(err, errNoHost) {
		_, err = a.start(ctx, dir)
	}
	if err != nil {
		return nil, err
	}
	return a.dial(ctx, dir)
}

// start runs `muxhost serve` on dir in the background and waits until it is
// ready. It listens on a free port; its log goes to host.log in dir.
func (a *app) start(ctx context.Context, dir string) (hostFile, error) {
	args := []string{"--listen", "127.0.0.1:0"}
	if err := a.checkConfig(args...); err != nil {
		return hostFile{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return hostFile{}, err
	}
	exe, err := os.Executable()
	if err != nil {
		return hostFile{}, err
	}
	logPath := filepath.Join(dir, "host.log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return hostFile{}, err
	}
	defer log.Close()
	args = append([]string{"serve", "--state-dir", dir}, args...)
	if a.configFlag != "" {
		args = append(args, "--config", a.configFlag)
	}
	cmd := exec.Command(exe, args...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, detached()
	if err := cmd.Start(); err != nil {
		return hostFile{}, fmt.Errorf("start a host: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	h, err := awaitHost(ctx, dir, done)
	if err != nil {
		return h, fmt.Errorf("start a host on %s: %w; its log is %s", dir, err, logPath)
	}
	fmt.Fprintf(a.stderr, "started a host on %s; end it with muxhost stop%s\n", h.URL, a.stateHint())
	return h, nil
}

// awaitHost waits for host.json. A child that ends may have lost a race against
// another host that is up now, which is as good.
func awaitHost(ctx context.Context, dir string, done <-chan error) (hostFile, error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	late := time.NewTimer(startPatience)
	defer late.Stop()
	for {
		h, err := readHostFile(dir)
		if err == nil {
			return h, nil
		}
		select {
		case <-tick.C:
		case err := <-done:
			if h, herr := readHostFile(dir); herr == nil {
				return h, nil
			}
			return h, fmt.Errorf("it ended at once (%w)", err)
		case <-late.C:
			return h, fmt.Errorf("it was not ready after %v", startPatience)
		case <-ctx.Done():
			return h, context.Cause(ctx)
		}
	}
}

func newStop(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "End the host; sessions and their queues survive",
		Long: `Asks the host to drain: new work is refused, open requests stay answerable for five
seconds and are then cancelled, turns end as interrupted, all of it is stored, clients
are told. Waits until it is gone.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.stop(cmd.Context()) },
	}
}

func (a *app) stop(ctx context.Context) error {
	dir, err := a.stateDir()
	if err != nil {
		return err
	}
	h, err := readHostFile(dir)
	if errors.Is(err, errNoHost) {
		return fail(exitUnreachable, "no host runs on %s", dir)
	}
	if err != nil {
		return err
	}
	// Only a process that answers as this host is ended, not one that got its pid.
	c, err := a.dial(ctx, dir)
	if err != nil {
		return err
	}
	_ = c.Close() // it did its work
	if err := terminate(h.PID); err != nil {
		return fmt.Errorf("end process %d: %w", h.PID, err)
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	late := time.NewTimer(stopPatience)
	defer late.Stop()
	for alive(h.PID) {
		select {
		case <-tick.C:
		case <-late.C:
			return fail(exitTimeout, "process %d still runs after %v", h.PID, stopPatience)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	fmt.Fprintln(a.stdout, "stopped")
	return nil
}
