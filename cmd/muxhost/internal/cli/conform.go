package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/term"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/spec/conform"
)

// conformFlags are those of `muxhost conform`.
type conformFlags struct {
	tokenFile string
	opt       conform.Options
	asJSON    bool
}

func newConform(a *app) *cobra.Command {
	var f conformFlags
	cmd := &cobra.Command{
		Use:   "conform URL",
		Short: "Check whether a server keeps the contract",
		Long: `Plays several hundred checks against any server that claims the contract, such as
http://127.0.0.1:7717, and prints what it keeps and what it breaks: what was sent,
what came, what the contract says. It ends with 0 only if everything passed.

It makes sessions of its own with a test agent, and removes them. What the agent of
another server has to do stands in the documentation of the package spec/conform.

Families: ` + strings.Join(conform.Families(), ", "),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.opt.URL = args[0]
			return a.conform(cmd.Context(), f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.tokenFile, "token-file", "", "file that holds a token of the scope admin (default: the state directory's)")
	fl.StringVar(&f.opt.Agent, "agent", "demo", "the test agent")
	fl.StringVar(&f.opt.Cwd, "cwd", "", "a directory on the server's machine to run sessions in (default: that for temporary files)")
	fl.StringArrayVar(&f.opt.Families, "family", nil, "only the checks of this family (repeatable)")
	fl.StringArrayVar(&f.opt.Checks, "check", nil, "only this check, such as approvals/race (repeatable)")
	fl.BoolVar(&f.opt.Brief, "brief", false, "leave out the checks that wait for many seconds")
	fl.BoolVar(&f.asJSON, "json", false, "print JSON lines: one for each check, then the sums")
	return cmd
}

// maxToken bounds a token file.
const maxToken = 4 << 10

// conform runs the kit and prints its report.
func (a *app) conform(ctx context.Context, f conformFlags) error {
	var err error
	if f.opt.Token, err = a.conformToken(f.tokenFile); err != nil {
		return &exitError{code: exitUnauthorized, err: err}
	}
	rep, err := conform.Run(ctx, f.opt)
	switch {
	case errors.Is(err, conform.ErrOptions):
		return &exitError{code: exitUsage, err: err}
	case err != nil:
		return &exitError{code: exitUnreachable, err: err}
	case f.asJSON:
		err = a.conformJSON(rep)
	default:
		var b strings.Builder
		if err = rep.Print(&b); err == nil {
			_, err = fmt.Fprint(a.stdout, term.Clean(b.String()))
		}
	}
	if err == nil && !rep.OK() {
		return &exitError{code: exitFailed}
	}
	return err
}

// conformToken reads the token from a file, or the state directory's.
func (a *app) conformToken(name string) (string, error) {
	if name == "" {
		dir, err := a.stateDir()
		if err != nil {
			return "", err
		}
		token, err := host.LoadToken(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("there is no token in the state directory %s: name the file that holds one of the scope admin, with --token-file", dir)
		}
		return token, err
	}
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	b, err := readAllLimited(file, maxToken)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// conformJSON prints a line for each check, and one with the sums.
func (a *app) conformJSON(rep *conform.Report) error {
	sums := map[string]int{"passed": 0, "failed": 0, "skipped": 0}
	for _, r := range rep.Results {
		sums[string(r.State)]++
		line := map[string]any{
			"id": r.ID, "family": r.Family, "says": r.Says, "section": r.Section,
			"state": r.State, "tookMs": r.Took.Milliseconds(),
		}
		switch r.State {
		case conform.Failed:
			line["sent"], line["came"], line["want"] = r.Sent, r.Came, r.Want
		case conform.Skipped:
			line["why"] = r.Came
		}
		if err := a.jsonLine("check", line); err != nil {
			return err
		}
	}
	return a.jsonLine("conform", map[string]any{"url": rep.URL, "ok": rep.OK(), "checks": sums, "tookMs": rep.Took.Milliseconds()})
}
