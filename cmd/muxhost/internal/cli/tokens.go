package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/term"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

func newTokens(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tokens",
		Short: "Who may connect: make, list and revoke tokens",
		Args:  noSuchVerb,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTokensCreate(a), newTokensLs(a), newTokensRevoke(a))
	return cmd
}

func newTokensCreate(a *app) *cobra.Command {
	var p rpc.TokenCreateParams
	var scope string
	var trees []string
	var length time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a token; its secret is shown this once",
		Long: `Makes a token that grants no more than your own, and prints its secret, which the
host does not keep. Scopes include those before them: observe, answer (approvals and
questions), operate (prompts, sessions), admin (tokens).`,
		Example: `  muxhost tokens create --label "my phone" --scope answer --for 720h`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if p.Label == "" || scope == "" {
				return fail(exitUsage, "give --label and --scope (observe, answer, operate or admin)")
			}
			p.Scope = rpc.Scope(scope)
			if cmd.Flags().Changed("for") {
				if length < time.Millisecond {
					return fail(exitUsage, "--for is %v: it takes how long the token is good, such as 720h", length)
				}
				p.ForMs = new(length.Milliseconds())
			}
			return a.createToken(cmd.Context(), p, trees, asJSON)
		},
	}
	cmd.Flags().StringVar(&p.Label, "label", "", `what you recognise its clients by, such as "my phone"`)
	cmd.Flags().StringVar(&scope, "scope", "", "observe, answer, operate or admin")
	cmd.Flags().StringArrayVar(&trees, "tree", nil, "only this session and those below it; may be repeated")
	cmd.Flags().DurationVar(&length, "for", 0, "how long it is good, such as 720h (default: until it is revoked)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the token and its secret as JSON")
	return cmd
}

func (a *app) createToken(ctx context.Context, p rpc.TokenCreateParams, trees []string, asJSON bool) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, id := range trees {
		sid, err := resolveSession(ctx, c, id)
		if err != nil {
			return err
		}
		p.Trees = append(p.Trees, sid)
	}
	var res rpc.TokenCreateResult
	if err := c.Call(ctx, "tokens.create", p, &res); err != nil {
		return err
	}
	if asJSON {
		return a.jsonLine("token", res)
	}
	fmt.Fprintln(a.stdout, a.line(res.Secret))
	fmt.Fprintf(a.stderr, "token %s, %s; the secret above is shown this once\n", a.line(res.Token.ID), tokenGrants(res.Token))
	return nil
}

// tokenGrants says what a token is good for.
func tokenGrants(t rpc.TokenInfo) string {
	s := strongest(t.Scopes)
	switch {
	case len(t.Trees) == 1:
		s += " in the tree " + short(string(t.Trees[0]))
	case t.Trees != nil:
		s += fmt.Sprintf(" in %d trees", len(t.Trees))
	}
	if !t.ExpiresAt.IsZero() {
		s += ", until " + t.ExpiresAt.Local().Format("2006-01-02 15:04")
	}
	return s
}

// strongest returns the last of the scopes, which includes the others.
func strongest(scopes []rpc.Scope) string {
	if len(scopes) == 0 {
		return "nothing"
	}
	return term.Line(string(scopes[len(scopes)-1]))
}

func newTokensLs(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the tokens, oldest first",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.listTokens(cmd.Context(), asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON lines")
	return cmd
}

func (a *app) listTokens(ctx context.Context, asJSON bool) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	var res rpc.TokensResult
	if err := c.Call(ctx, "tokens.list", rpc.Empty{}, &res); err != nil {
		return err
	}
	for _, t := range res.Tokens {
		if asJSON {
			if err := a.jsonLine("token", t); err != nil {
				return err
			}
			continue
		}
		by := "of the host's configuration"
		if t.MadeBy != "" {
			by = "made by " + a.line(shortToken(t.MadeBy))
		}
		fmt.Fprintf(a.stdout, "%-36s  %-24s %s, %s, %s\n", a.line(t.ID), first(a.line(t.Label), "-"), tokenGrants(t), by, connected(t.Clients))
	}
	return nil
}

func connected(n int) string {
	if n == 0 {
		return "not connected"
	}
	return fmt.Sprintf("%d connected", n)
}

func newTokensRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "End a token and those it made, and cut off who uses them",
		Long: `Ends the token whose id is, or ends with, ID, and those that it made. Their clients
are cut off at once, and their logins end.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.revokeToken(cmd.Context(), args[0]) },
	}
}

func (a *app) revokeToken(ctx context.Context, id string) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	t, err := findToken(ctx, c, id)
	if err != nil {
		return err
	}
	if err := c.Call(ctx, "tokens.revoke", rpc.TokenRevokeParams{ID: t.ID}, nil); err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "revoked %s %s\n", a.line(t.ID), a.line(t.Label))
	return nil
}

// findToken returns the token whose id is, or ends with, id.
func findToken(ctx context.Context, c *client.Client, id string) (rpc.TokenInfo, error) {
	var res rpc.TokensResult
	if err := c.Call(ctx, "tokens.list", rpc.Empty{}, &res); err != nil {
		return rpc.TokenInfo{}, err
	}
	t, found, err := byEnd(res.Tokens, id, func(t rpc.TokenInfo) string { return t.ID })
	if err == nil && !found {
		err = fail(exitNotFound, "no token %q: see muxhost tokens ls", term.Line(id))
	}
	return t, err
}

func newClients(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "clients",
		Short: "Who is connected now, this command too",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.clients(cmd.Context(), asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON lines")
	return cmd
}

func (a *app) clients(ctx context.Context, asJSON bool) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	var res rpc.ClientsResult
	if err := c.Call(ctx, "clients.list", rpc.Empty{}, &res); err != nil {
		return err
	}
	now := time.Now()
	for _, x := range res.Clients {
		if asJSON {
			if err := a.jsonLine("client", x); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(a.stdout, "%s  %-24s %-8s %-9s %5s  token %s, from %s\n", short(string(x.ClientID)), a.line(x.Label),
			strongest(x.Scopes), a.line(x.Transport), ago(now, x.ConnectedAt), a.line(shortToken(x.TokenID)), a.line(x.Remote))
	}
	return nil
}

// shortToken shortens the ids that a host mints, and leaves names as they are.
func shortToken(id string) string {
	if len(id) == 36 {
		return short(id)
	}
	return id
}
