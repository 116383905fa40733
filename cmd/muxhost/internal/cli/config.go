package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/config"
	"github.com/muxhost/muxhost/cmd/muxhost/internal/roster"
)

// config reads config.toml; what is wrong with it is wrong usage.
func (a *app) config() (*config.Config, error) {
	c, err := config.Open(a.configFlag, a.getenv)
	if err != nil {
		return nil, &exitError{code: exitUsage, err: err}
	}
	return c, nil
}

// roster lists the agents of config.toml and of this machine.
func (a *app) roster(c *config.Config) ([]roster.Entry, error) {
	entries, err := roster.Build(c, roster.Env{Getenv: a.getenv})
	if err != nil {
		return nil, &exitError{code: exitUsage, err: err}
	}
	return entries, nil
}

// checkConfig reads the configuration, so that what is wrong is told here and not in
// the log of a host that is to start with args.
func (a *app) checkConfig(args ...string) error {
	c, err := a.config()
	if err != nil {
		return err
	}
	entries, err := a.roster(c)
	if err != nil {
		return err
	}
	return a.checkSettings(c, entries, args...)
}

// home is the home directory without symbolic links, "" if there is none.
func (a *app) home() string {
	home, err := filepath.EvalSymlinks(a.getenv("HOME"))
	if err != nil || !filepath.IsAbs(home) {
		return ""
	}
	return home
}

// envOf are the environment variables that beat settings of the file.
var envOf = map[string]string{"log-level": "MUXHOST_LOG", "log-format": "MUXHOST_LOG_FORMAT"}

// settings sets the flags that the file names and nobody set: a flag beats the
// environment, which beats the file. It returns where each of them is said.
func (a *app) settings(fl *pflag.FlagSet, c *config.Config) (map[string]string, error) {
	said := map[string]string{}
	for _, s := range c.Settings {
		f := fl.Lookup(s.Key)
		if f == nil {
			return nil, fail(exitUsage, "%s: this version has no setting %s", s.At, s.Key)
		}
		if f.Changed || envOf[s.Key] != "" && a.getenv(envOf[s.Key]) != "" {
			continue
		}
		said[s.Key] = s.At + ": " + s.Key
		for _, v := range s.Values {
			if err := f.Value.Set(v); err != nil {
				return nil, fail(exitUsage, "%s: %s is %q: %w", s.At, s.Key, v, err)
			}
		}
	}
	return said, nil
}

func newConfig(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Where the configuration is, whether it holds, and an example",
		Long: `The configuration is one file: the one that --config or $MUXHOST_CONFIG names, which has
to exist; else $XDG_CONFIG_HOME/muxhost/config.toml, else ~/.config/muxhost/config.toml,
which need not. It holds the settings of muxhost serve, under the names of its flags, and
the agents. A flag beats the environment, which beats the file.

A file .muxhost.toml in a session's directory, or in one around it up to that of the
repository, may tighten what sessions there may do, and nothing else.`,
		Args: noSuchVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "path",
		Short: "Print the path of the file, whether it is there or not",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return a.configPath() },
	}, &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Say whether the file holds; exit with 2 if not",
		Long: `Reads FILE, or the file that muxhost serve would read, and refuses what serve would
refuse. A FILE named .muxhost.toml is read as a project file.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.validate(args) },
	}, newConfigExample(a))
	return cmd
}

func (a *app) configPath() error {
	path := first(a.configFlag, config.Path(a.getenv))
	if path == "" {
		return fail(exitUsage, "there is no home directory: name a file with --config or $MUXHOST_CONFIG")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, path)
	return err
}

func (a *app) validate(args []string) error {
	if len(args) == 1 && filepath.Base(args[0]) == config.ProjectFile {
		return a.validateProject(args[0])
	}
	var c *config.Config
	var err error
	if len(args) == 1 {
		c, err = config.Load(args[0])
	} else {
		c, err = config.Open(a.configFlag, a.getenv)
	}
	if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	entries, err := a.roster(c)
	if err != nil {
		return err
	}
	if err := a.checkSettings(c, entries); err != nil {
		return err
	}
	for _, w := range c.Warnings {
		fmt.Fprintln(a.stderr, a.errStyle.Yellow(a.line(w)))
	}
	if c.Path == "" {
		_, err = fmt.Fprintln(a.stdout, "there is no file; the defaults hold")
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s holds: %s, %s\n", a.line(c.Path), count(len(c.Settings), "setting"), count(len(c.Agents), "agent"))
	return err
}

func (a *app) validateProject(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return fail(exitUsage, "the project file: %w", err)
	}
	p, err := config.ReadProject(filepath.Dir(path), "")
	if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	mode := "asks as configured"
	if p.Deny {
		mode = "asks nobody"
	}
	_, err = fmt.Fprintf(a.stdout, "%s holds: %s, %s\n", a.line(path), count(len(p.Rules), "rule"), mode)
	return err
}

func newConfigExample(a *app) *cobra.Command {
	var project bool
	cmd := &cobra.Command{
		Use:   "example",
		Short: "Print a file that says every key, all of it commented out",
		Example: `  mkdir -p "$(dirname "$(muxhost config path)")"
  muxhost config example > "$(muxhost config path)"`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text := config.Example
			if project {
				text = config.ProjectExample
			}
			_, err := fmt.Fprint(a.stdout, text)
			return err
		},
	}
	cmd.Flags().BoolVar(&project, "project", false, "a project file, "+config.ProjectFile)
	return cmd
}

// projectAgent is the agent of sessions that `muxhost run` makes in cwd without naming
// one: what a project file there says, else "", the host's.
func (a *app) projectAgent(cwd string) (string, error) {
	real, err := filepath.EvalSymlinks(cwd)
	if err != nil {
		return "", nil // the host says what is wrong with it
	}
	p, err := config.ReadProject(real, a.home())
	if err != nil {
		return "", &exitError{code: exitUsage, err: err}
	}
	return p.Agent, nil
}
