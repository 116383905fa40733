package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/editor"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/rpc/client"
)

func newACP(a *app) *cobra.Command {
	var session, agent string
	cmd := &cobra.Command{
		Use:   "acp",
		Short: "Be an agent to an editor: its sessions are the host's",
		Long: `Speaks the Agent Client Protocol, version 1, on stdin and stdout, for editors that
start an agent as a command. Starts a host if none runs. Sessions are the host's: what
happens in them here, in terminals and elsewhere is seen everywhere, and an approval is
answered by whoever is first; the editor's request is then withdrawn.

The editor opens sessions by itself: new ones, or those of the host that it lists, loads
and resumes. With --session its first new session is that one instead, with its history.
A session closed in the editor goes on in the host, and so does everything when the
editor ends; what is pending stays so. MCP servers that the editor names are not started:
the host's configuration says what its agents have.

stderr is the log. Exits with 3 when the host is gone for a minute.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.acp(cmd.Context(), session, agent)
		},
	}
	cmd.Flags().StringVar(&session, "session", "", "session that the editor's first new session is, by its id or the end of it")
	cmd.Flags().StringVar(&agent, "agent", "", "agent of new sessions (default: the host's)")
	return cmd
}

// acp serves an editor until it ends.
func (a *app) acp(ctx context.Context, session, agent string) error {
	in, feed := io.Pipe()
	go func() { // ends with stdin, or with the program
		_, err := io.Copy(feed, a.stdin)
		_ = feed.CloseWithError(err) // nil is the end
	}()
	out, ok := a.stdout.(io.WriteCloser)
	if !ok {
		out = openWriter{a.stdout}
	}
	err := editor.Serve(ctx, editor.Options{
		In: in, Out: out, Session: session, Find: resolveSession, Agent: agent, Version: version(), Dial: a.dialFor, Hint: a.stateHint(),
		Logger: slog.New(slog.NewTextHandler(a.stderr, nil)),
	})
	if errors.Is(err, editor.ErrHostGone) {
		return &exitError{code: exitUnreachable, err: err}
	}
	return err
}

// openWriter is a writer that stays open.
type openWriter struct{ io.Writer }

func (openWriter) Close() error { return nil }

// dialFor connects to the host as label, starting one in the background if none runs.
func (a *app) dialFor(ctx context.Context, label string, onState func(client.State)) (*client.Client, error) {
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
	token, err := host.LoadToken(dir)
	if err != nil {
		return nil, &exitError{code: exitUnauthorized, err: err}
	}
	where := func(context.Context) (string, error) {
		h, err := readHostFile(dir)
		return h.URL, err
	}
	return client.Dial(ctx, client.Options{URLFunc: where, Token: token, Label: label, OnState: onState})
}
