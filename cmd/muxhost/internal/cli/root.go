// Package cli is the command line of muxhost: one file a verb.
//
// stdout is the result, stderr everything else; --json prints stable JSON lines,
// each with "v":1. Whatever came from the host is cleaned before a terminal sees
// it. Verbs find the host through the state directory: host.json says where it
// listens, token proves who may talk to it.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/term"
)

// app is what every verb has: the streams, the environment, the global flags.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	style          term.Style // of stdout
	errStyle       term.Style // of stderr

	stateFlag, configFlag string
	color                 string
}

// Main runs the program and returns its exit code. It reads no global state but
// the standard streams and the environment.
func Main(ctx context.Context, args []string) int {
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if e, ok := err.(*exitError); !ok || e.err != nil {
		fmt.Fprintln(os.Stderr, "muxhost:", term.Clean(say(err)))
	}
	return ExitCode(err)
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "muxhost",
		Short: "Run the coding agents of this machine; watch and steer them from anywhere",
		Long: `muxhost runs the coding agents of this machine and lets any number of people and
programs watch and steer them. Start with: muxhost serve`,
		Args:          noSuchVerb,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			switch a.color {
			case "auto", "always", "never":
			default:
				return fail(exitUsage, "--color is %q: it takes auto, always or never", a.color)
			}
			if f, ok := a.stdout.(*os.File); ok {
				a.style = term.NewStyle(f, a.color, a.getenv)
			}
			if f, ok := a.stderr.(*os.File); ok {
				a.errStyle = term.NewStyle(f, a.color, a.getenv)
			}
			return nil
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fail(exitUsage, "%w (see %s --help)", err, cmd.CommandPath())
	})
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.PersistentFlags().StringVar(&a.stateFlag, "state-dir", "", "the host's state directory (default $MUXHOST_STATE_DIR, else $XDG_STATE_HOME/muxhost)")
	root.PersistentFlags().StringVar(&a.configFlag, "config", "", "the configuration file (default $MUXHOST_CONFIG, else $XDG_CONFIG_HOME/muxhost/config.toml)")
	root.PersistentFlags().StringVar(&a.color, "color", "auto", "auto, always or never")
	root.AddCommand(
		newServe(a), newRun(a), newLs(a), newShow(a), newTail(a), newHistory(a), newSend(a), newCancel(a),
		newFork(a), newExport(a), newReplay(a),
		newInbox(a), newApprove(a), newReject(a), newAnswer(a), newWait(a), newRPC(a), newStatus(a), newStop(a), newVersion(a),
		newBackup(a), newRestore(a), newCheck(a), newCompact(a), newConform(a), newTokens(a), newClients(a),
	)
	root.AddCommand(newTasks(a), newMCPBridge(a), newConfig(a), newAgents(a), newDoctor(a))
	root.AddCommand(newACP(a))
	for _, c := range root.Commands() {
		usageErrors(c)
	}
	return root
}

// noSuchVerb refuses words that are no verb, and names those that are like them.
func noSuchVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see muxhost --help"
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		hint = "did you mean " + strings.Join(like, " or ") + "?"
	}
	return fail(exitUsage, "no verb %q: %s", term.Line(args[0]), hint)
}

// usageErrors makes wrong arguments exit with the code of wrong usage.
func usageErrors(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		usageErrors(c)
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return fail(exitUsage, "%w (see %s --help)", err, cmd.CommandPath())
			}
			return nil
		}
	}
}
