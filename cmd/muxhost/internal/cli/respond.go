package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/term"
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

func newApprove(a *app) *cobra.Command {
	var always bool
	var scope, hash string
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "approve ID",
		Short: "Allow what an approval asks for, once or always",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := rpc.ApprovalParams{Outcome: frames.AllowedOnce}
			if hash != "" {
				p.InputHash = &hash
			}
			if always {
				p.Outcome = frames.AllowedAlways
				p.Grant = &rpc.GrantRequest{Scope: scope, ForMs: new(length.Milliseconds())}
			} else if cmd.Flags().Changed("scope") || cmd.Flags().Changed("for") {
				return fail(exitUsage, "--scope and --for go with --always")
			}
			return a.respond(cmd.Context(), args[0], p)
		},
	}
	cmd.Flags().BoolVar(&always, "always", false, "store a grant for this exact call")
	cmd.Flags().StringVar(&scope, "scope", "session", "of the grant: session (this tree) or project (this directory)")
	cmd.Flags().DurationVar(&length, "for", 8*time.Hour, "how long the grant holds")
	cmd.Flags().StringVar(&hash, "hash", "", "the input's sha256 as you saw it; anything else is refused")
	return cmd
}

func newReject(a *app) *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use:   "reject ID",
		Short: "Reject what an approval asks for",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.respond(cmd.Context(), args[0], rpc.ApprovalParams{Outcome: frames.Rejected, Feedback: why})
		},
	}
	cmd.Flags().StringVarP(&why, "message", "m", "", "what to tell the agent")
	return cmd
}

// respond settles the pending approval whose id is, or ends with, id.
func (a *app) respond(ctx context.Context, id string, p rpc.ApprovalParams) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	f, err := findPending(ctx, c, id)
	if err != nil {
		return err
	}
	card, ok := f.(*frames.ApprovalRequested)
	if !ok {
		return fail(exitUsage, "%s is a question: answer it with muxhost answer %s ANSWER", a.line(id), a.line(id))
	}
	if p.Outcome.Allows() && card.Truncated != nil && p.InputHash == nil {
		fmt.Fprintln(a.stderr, a.card(ctx, c, card, a.errStyle))
		return fail(exitUsage, "only a part of the input can be shown: allow all of it with --hash %s", a.line(card.InputHash))
	}
	p.SessionID, p.ID = card.SessionID, card.ID
	if p.InputHash == nil {
		p.InputHash = &card.InputHash
	}
	if err := wonBy(c.Call(ctx, "approval.respond", p, nil)); err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "%s %s: %s\n", p.Outcome, a.line(string(card.ID)), first(commandOf(card.Input), term.Line(card.Tool.Name)))
	return nil
}

func newAnswer(a *app) *cobra.Command {
	var cancel bool
	cmd := &cobra.Command{
		Use:   "answer ID ANSWER...",
		Short: "Answer a question: a label, its number, or free text",
		Long: `Answers a question. An answer is an option's label or number, several separated by
commas where the question allows it, or free text where it does. With several
questions give one answer for each, in order or as QUESTION-ID=ANSWER.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cancel == (len(args) > 1) {
				return fail(exitUsage, "give answers, or --cancel")
			}
			return a.answer(cmd.Context(), args[0], args[1:], cancel)
		},
	}
	cmd.Flags().BoolVar(&cancel, "cancel", false, "dismiss the question")
	return cmd
}

func (a *app) answer(ctx context.Context, id string, words []string, cancel bool) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	f, err := findPending(ctx, c, id)
	if err != nil {
		return err
	}
	q, ok := f.(*frames.QuestionRequested)
	if !ok {
		return fail(exitUsage, "%s is an approval: settle it with muxhost approve or muxhost reject", a.line(id))
	}
	p := rpc.QuestionParams{SessionID: q.SessionID, ID: q.ID, Cancel: cancel}
	if !cancel {
		if p.Answers, err = answersFrom(q.Questions, words); err != nil {
			return &exitError{code: exitUsage, err: err}
		}
	}
	if err := wonBy(c.Call(ctx, "question.respond", p, nil)); err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "answered %s\n", a.line(string(q.ID)))
	return nil
}

// findPending finds what waits under an id, or the end of one.
func findPending(ctx context.Context, c *client.Client, id string) (frames.Frame, error) {
	all, err := listPending(ctx, c, "")
	if err != nil {
		return nil, err
	}
	f, found, err := byEnd(all, id, func(f frames.Frame) string { _, have := requestOf(f); return string(have) })
	if err == nil && !found {
		err = notPending(ctx, c, id)
	}
	return f, err
}

// notPending says how a request ended that waits no longer, as far as the recent
// past of recent sessions tells.
func notPending(ctx context.Context, c *client.Client, id string) error {
	var recent rpc.ListResult
	if err := c.Call(ctx, "sessions.list", rpc.ListParams{Limit: 50}, &recent); err != nil {
		return err
	}
	for _, s := range recent.Sessions {
		var past rpc.HistoryResult
		if err := c.Call(ctx, "session.history", rpc.HistoryParams{SessionID: s.SessionID, Limit: 200}, &past); err != nil {
			continue // it may be gone by now
		}
		for _, raw := range past.Events {
			if how := endOf(raw, id); how != "" {
				return fail(exitNotPending, "no longer pending: %s", how)
			}
		}
	}
	return fail(exitNotPending, "nothing waits under %q: it was settled long ago, or never was (muxhost inbox lists what waits)", term.Line(id))
}

// endOf says how a request ended, if raw is the event that ended it.
func endOf(raw json.RawMessage, id string) string {
	e, err := frames.DecodeEvent(raw)
	if err != nil || e.Type != frames.ApprovalDecidedEvent && e.Type != frames.QuestionDecidedEvent {
		return ""
	}
	var d frames.ApprovalDecided // a question's end has these fields too
	if json.Unmarshal(e.Data, &d) != nil || string(d.ID) != id && (len(id) < 4 || !strings.HasSuffix(string(d.ID), id)) {
		return ""
	}
	return settledBy(d.Outcome, d.Origin, d.By)
}

// settledBy says how something ended and who or what ended it.
func settledBy(o frames.Outcome, c frames.Cause, by *frames.By) string {
	who := "(" + term.Line(string(c)) + ")"
	if by != nil {
		who = "by " + term.Line(first(by.Label, string(by.ClientID)))
	}
	return term.Line(string(o)) + " " + who
}

// listPending returns what waits, oldest first.
func listPending(ctx context.Context, c *client.Client, tree frames.SessionID) ([]frames.Frame, error) {
	var res rpc.PendingResult
	if err := c.Call(ctx, "pending.list", rpc.PendingParams{Tree: tree}, &res); err != nil {
		return nil, err
	}
	var out []frames.Frame
	for _, p := range res.Pending {
		switch {
		case p.Approval != nil:
			out = append(out, p.Approval)
		case p.Question != nil:
			out = append(out, p.Question)
		}
	}
	return out, nil
}

// wonBy turns a late answer's error into words that say who won.
func wonBy(err error) error {
	e, ok := errors.AsType[*rpc.Error](err)
	if !ok || e.Kind != rpc.KindApprovalNotPending && e.Kind != rpc.KindQuestionNotPending {
		return err
	}
	var d struct {
		Outcome frames.Outcome `json:"outcome"`
		Origin  frames.Cause   `json:"origin"`
		By      *frames.By     `json:"by"`
	}
	raw, ok := e.Details.(json.RawMessage)
	if !ok || json.Unmarshal(raw, &d) != nil || d.Outcome == "" {
		return fail(exitNotPending, "no longer pending")
	}
	return fail(exitNotPending, "no longer pending: %s", settledBy(d.Outcome, d.Origin, d.By))
}
