package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/config"
	"github.com/muxhost/muxhost/cmd/muxhost/internal/roster"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/store/bolt"
)

// serveFlags are those of `muxhost serve`.
type serveFlags struct {
	listen, name, agent      string
	allowHosts, allowOrigins []string
	tlsCert, tlsKey          string
	askTimeout               time.Duration
	logLevel, logFormat      string
	keep                     keepFlags
	limits                   limitFlags

	conf *config.Config
	// said is where config.toml says what no flag says, by the flag's name.
	said map[string]string
}

// at is how a setting is called: where it is said.
func (f *serveFlags) at(name string) string { return cmp.Or(f.said[name], "--"+name) }

func newServe(a *app) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the host in the foreground",
		Long: `Runs the host until Ctrl-C or SIGTERM, which drain: new work is refused, what is
open stays answerable for five seconds, everything is stored, clients are told. A
second signal ends it at once. Sessions survive either way.

It listens on this machine only, unless it is given a certificate. Every client
needs the token, which is minted into the state directory.

What flags do not say, config.toml may (see muxhost config). Its agents are offered,
and those that are found on this machine (see muxhost agents ls).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if f.conf, err = a.config(); err != nil {
				return err
			}
			if f.said, err = a.settings(cmd.Flags(), f.conf); err != nil {
				return err
			}
			return a.serve(cmd.Context(), f)
		},
	}
	f.add(a, cmd)
	return cmd
}

func (f *serveFlags) add(a *app, cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.listen, "listen", "127.0.0.1:7717", "address and port to listen on; port 0 takes a free one")
	fl.StringVar(&f.name, "name", "", "what people call this host (default: the machine's name)")
	fl.StringVar(&f.agent, "agent", "shell", "the agent of sessions that are created without naming one")
	fl.StringArrayVar(&f.allowHosts, "allow-host", nil, "further name under which clients reach it, exactly as in the Host header, such as mux.example.com (repeatable)")
	fl.StringArrayVar(&f.allowOrigins, "allow-origin", nil, "further web origin whose pages may connect, such as https://mux.example.com (repeatable)")
	fl.StringVar(&f.tlsCert, "tls-cert", "", "certificate file (PEM); needed to listen beyond this machine")
	fl.StringVar(&f.tlsKey, "tls-key", "", "key file (PEM) of the certificate")
	fl.DurationVar(&f.askTimeout, "ask-timeout", 5*time.Minute, "how long an approval waits before it rejects itself")
	f.keep.add(cmd)
	f.limits.add(cmd)
	fl.StringVar(&f.logLevel, "log-level", cmp.Or(a.getenv("MUXHOST_LOG"), "info"), "debug, info, warn or error ($MUXHOST_LOG)")
	fl.StringVar(&f.logFormat, "log-format", cmp.Or(a.getenv("MUXHOST_LOG_FORMAT"), "text"), "text or json ($MUXHOST_LOG_FORMAT)")
}

// checkSettings refuses a file with which muxhost serve would not start when it gets
// args. It starts and changes nothing.
func (a *app) checkSettings(c *config.Config, entries []roster.Entry, args ...string) error {
	f := serveFlags{conf: c}
	cmd := new(cobra.Command)
	f.add(a, cmd)
	if err := cmd.ParseFlags(args); err != nil {
		return err
	}
	var err error
	if f.said, err = a.settings(cmd.Flags(), c); err != nil {
		return err
	}
	if err := checkAgent(f.at("agent"), f.agent, entries); err != nil {
		return err
	}
	cfg, err := a.plainConfig("", f)
	if err != nil {
		return err
	}
	if err := host.CheckListen(f.listen, cfg.TLS != nil); err != nil {
		return listenError(f, err)
	}
	return nil
}

// serve runs a host until a signal comes or ctx is done.
func (a *app) serve(ctx context.Context, f serveFlags) (err error) {
	ctx, stop := a.untilSignal(ctx)
	defer stop()
	dir, err := a.stateDir()
	if err != nil {
		return err
	}
	cfg, entries, err := a.hostConfig(dir, f)
	if err != nil {
		return err
	}
	if err := host.CheckListen(f.listen, cfg.TLS != nil); err != nil {
		return listenError(f, err)
	}
	if err := host.PrepareStateDir(dir); err != nil {
		return fmt.Errorf("the state directory: %w", err)
	}
	db, err := openStore(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if why := db.Replaced(); why != "" {
		cfg.Logger.Warn("the last commits may be lost: every session's log got a new epoch", slog.String("why", why))
	}
	cfg.Store = db
	token, minted, err := host.EnsureToken(dir)
	if err != nil {
		return err
	}
	cfg.Token = token
	fleet, err := launch(entries, cfg.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fleet.close(context.WithoutCancel(ctx))) }()
	cfg.Drivers = fleet.drivers
	h, err := host.New(ctx, cfg)
	if err != nil {
		return err
	}
	ln, err := h.Listen(ctx, f.listen)
	if err != nil {
		return errors.Join(listenError(f, err), h.Shutdown(context.WithoutCancel(ctx)))
	}
	return a.serveOn(ctx, h, ln, dir, f, greeting{minted: minted, entries: entries})
}

// serveOn tells where the host listens, and serves.
func (a *app) serveOn(ctx context.Context, h *host.Host, ln net.Listener, dir string, f serveFlags, g greeting) (err error) {
	url := listenURL(ln, f)
	b, err := json.Marshal(hostFile{URL: url, PID: os.Getpid(), Version: version(), StartedAt: time.Now().UTC().Truncate(time.Millisecond)})
	if err == nil {
		err = host.WriteStateFile(dir, hostFileName, append(b, '\n'))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("tell other programs where it listens: %w", err), ln.Close(), h.Shutdown(context.WithoutCancel(ctx)))
	}
	defer func() { err = errors.Join(err, host.RemoveStateFile(dir, hostFileName)) }()
	g.url, g.dir, g.byDefault = url, dir, f.agent
	a.greet(g)
	return h.Serve(ctx, ln)
}

// greeting is what a host that is up tells the person who started it.
type greeting struct {
	url, dir, byDefault string
	minted              bool
	entries             []roster.Entry
}

// greet prints the address to stdout, and to stderr what to type next.
func (a *app) greet(g greeting) {
	fmt.Fprintln(a.stdout, g.url)
	shell := ""
	if g.byDefault != "shell" {
		shell = "--agent shell "
	}
	fresh := ""
	if g.minted {
		fresh = " (new)"
	}
	hint := a.stateHint()
	fmt.Fprintf(a.stderr, `muxhost %s listens on %s
state %s, token %s%s
agents %s

Next, in another terminal:
  muxhost run %s'echo hello'%s           run a command once you allow it
  muxhost run --agent demo 'show me'%s  see everything without a model
  muxhost inbox -f%s                   answer what waits, from anywhere
Ctrl-C ends the host; sessions stay.
`, version(), g.url, g.dir, filepath.Join(g.dir, tokenFileName), fresh, a.agentsLine(g.entries), shell, hint, hint, hint)
}

// hostConfig turns flags and config.toml into a configuration, and lists the agents,
// whose drivers are still to come. It starts and changes nothing.
func (a *app) hostConfig(dir string, f serveFlags) (cfg host.Config, entries []roster.Entry, err error) {
	if entries, err = a.roster(f.conf); err != nil {
		return cfg, nil, err
	}
	if err := checkAgent(f.at("agent"), f.agent, entries); err != nil {
		return cfg, nil, err
	}
	cfg, err = a.plainConfig(dir, f)
	cfg.Rules = roster.Rules(entries, a.home())
	for _, w := range f.conf.Warnings {
		if err == nil {
			cfg.Logger.Warn("the configuration file is open to others", slog.String("why", w))
		}
	}
	return cfg, entries, err
}

// plainConfig is the configuration without its agents.
func (a *app) plainConfig(dir string, f serveFlags) (host.Config, error) {
	log, err := a.logger(f)
	if err != nil {
		return host.Config{}, err
	}
	name := f.name
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			name = "muxhost"
		}
	}
	conf, err := loadTLS(f)
	if err != nil {
		return host.Config{}, err
	}
	if f.askTimeout < time.Second || f.askTimeout > 7*24*time.Hour {
		return host.Config{}, fail(exitUsage, "--ask-timeout is %v: it takes 1s to 168h, such as 5m", f.askTimeout)
	}
	keep, err := f.keep.retention()
	if err != nil {
		return host.Config{}, err
	}
	cfg := host.Config{
		DefaultAgent: f.agent,
		Name:         name, Version: version(), Logger: log, Env: host.AllowedEnv(os.Environ()),
		AllowHosts: f.allowHosts, AllowOrigins: f.allowOrigins, TLS: conf,
		BlobDir: filepath.Join(dir, blobDirName), AskTimeout: f.askTimeout,
		Retention: keep,
	}
	if err := f.limits.apply(&cfg); err != nil {
		return host.Config{}, err
	}
	return cfg, nil
}

func (a *app) logger(f serveFlags) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, fail(exitUsage, "--log-level is %q: it takes debug, info, warn or error", f.logLevel)
	}
	opt := &slog.HandlerOptions{Level: level}
	switch f.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(a.stderr, opt)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(a.stderr, opt)), nil
	}
	return nil, fail(exitUsage, "--log-format is %q: it takes text or json", f.logFormat)
}

// loadTLS reads the certificate, nil if none is named.
func loadTLS(f serveFlags) (*tls.Config, error) {
	if (f.tlsCert == "") != (f.tlsKey == "") {
		return nil, fail(exitUsage, "--tls-cert and --tls-key, or tls-cert and tls-key in config.toml, belong together: give both or none")
	}
	if f.tlsCert == "" {
		return nil, nil //nolint:nilnil // no TLS is a valid answer
	}
	cert, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey)
	if err != nil {
		return nil, fail(exitUsage, "the certificate: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

// openStore opens the database; another host on it is named by its pid.
func openStore(dir string) (*bolt.Store, error) {
	db, err := bolt.Open(filepath.Join(dir, dbFileName), bolt.Options{})
	if e, ok := errors.AsType[*bolt.LockedError](err); ok {
		return nil, fail(exitFailed, "another host, process %d, runs on %s: use it, end it with muxhost stop, or give this one another --state-dir", e.PID, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("the database: %w", err)
	}
	return db, nil
}

// listenError says what to do about an address that cannot be had.
func listenError(f serveFlags, err error) error {
	name, port, _ := net.SplitHostPort(f.listen)
	switch {
	case errors.Is(err, host.ErrPlaintext):
		return fail(exitUsage, "%s %s: %w (--tls-cert, --tls-key)", f.at("listen"), f.listen, err)
	case errors.Is(err, host.ErrConfig):
		return fail(exitUsage, "%s: %w", f.at("listen"), err)
	case errors.Is(err, syscall.EADDRINUSE):
		return fail(exitFailed, "port %s is in use by another program: choose a port with --listen %s, or any free one with --listen %s", port, net.JoinHostPort(name, "7718"), net.JoinHostPort(name, "0"))
	}
	return fmt.Errorf("%s %s: %w", f.at("listen"), f.listen, err)
}

// listenURL is where programs on this machine reach the host.
func listenURL(ln net.Listener, f serveFlags) string {
	if f.tlsCert == "" {
		return "http://" + ln.Addr().String()
	}
	if len(f.allowHosts) > 0 {
		return "https://" + f.allowHosts[0]
	}
	return "https://" + ln.Addr().String()
}

// untilSignal returns a context that SIGINT or SIGTERM ends. A second signal ends
// the program, as if by that signal.
func (a *app) untilSignal(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		for n := 0; ; n++ {
			select {
			case s := <-signals:
				if n > 0 {
					os.Exit(signalCode(s))
				}
				fmt.Fprintln(a.stderr, "ending; again to end at once")
				cancel()
			case <-done:
				return
			}
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		wg.Wait()
		cancel()
	}
}

// signalCode is the exit code of a program that a signal ended.
func signalCode(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return exitInterrupted
}
