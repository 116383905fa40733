package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/config"
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

// runFlags are those of `muxhost run`.
type runFlags struct {
	agent, cwd, title, approve string
	json, detach               bool
	timeout                    time.Duration
}

func newRun(a *app) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run PROMPT",
		Short: "Create a session, run one prompt, stream it, and exit with its code",
		Long: `Creates a session and gives it one prompt. With the shell agent (the default) the
prompt is a command line: an approval card shows exactly what would run, and it
runs after y. Lines you type at a terminal while it runs go to its standard input,
@eof ends that; where this is no terminal, answer with muxhost approve and feed it
with muxhost send --steer.

The first Ctrl-C cancels the turn, the second leaves at once; the session stays.
Exits with the command's own code; 7 when it was rejected or cancelled; 8 after
--timeout.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.run(cmd.Context(), args[0], f) },
	}
	cmd.Flags().StringVar(&f.agent, "agent", "", "agent to run it (default: what "+config.ProjectFile+" says, else the host's)")
	cmd.Flags().StringVar(&f.cwd, "cwd", "", "directory to run it in (default: this one)")
	cmd.Flags().StringVar(&f.title, "title", "", "title of the session")
	cmd.Flags().StringVar(&f.approve, "approve", "ask", "ask: show cards here and elsewhere; reject: ask nobody, reject everything")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the session's frames as JSON lines")
	cmd.Flags().BoolVar(&f.detach, "detach", false, "print the session's id and leave it running")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "cancel the turn after this long")
	return cmd
}

func (a *app) run(ctx context.Context, prompt string, f runFlags) error {
	if f.approve != "ask" && f.approve != "reject" {
		return fail(exitUsage, "--approve is %q: it takes ask or reject", f.approve)
	}
	cwd, err := a.cwd(f.cwd)
	if err != nil {
		return err
	}
	if f.agent == "" {
		if f.agent, err = a.projectAgent(cwd); err != nil {
			return err
		}
	}
	c, err := a.connectOrStart(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	sid, err := createFor(ctx, c, prompt, cwd, f)
	if err != nil {
		return err
	}
	if f.detach {
		if _, err := promptSession(ctx, c, sid, prompt, frames.ModeQueue); err != nil {
			return err
		}
		fmt.Fprintln(a.stdout, a.line(string(sid)))
		return nil
	}
	return a.watchRun(ctx, c, sid, prompt, f)
}

func createFor(ctx context.Context, c *client.Client, prompt, cwd string, f runFlags) (frames.SessionID, error) {
	p := rpc.CreateParams{Agent: f.agent, Cwd: cwd, Title: first(f.title, firstLine(prompt, 60))}
	if f.approve == "reject" {
		p.Policy = &frames.Policy{Mode: "deny"}
	}
	var res rpc.SessionResult
	if err := c.Call(ctx, "session.create", p, &res); err != nil {
		return "", err
	}
	return res.Session.SessionID, nil
}

func promptSession(ctx context.Context, c *client.Client, sid frames.SessionID, text string, mode frames.PromptMode) (rpc.PromptResult, error) {
	return promptContent(ctx, c, sid, []frames.ContentBlock{frames.Text(text)}, mode)
}

// watchRun subscribes before it prompts, so that nothing is missed.
func (a *app) watchRun(ctx context.Context, c *client.Client, sid frames.SessionID, prompt string, f runFlags) error {
	since := frames.Seq(0)
	sub := rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{{SessionID: sid, Since: &since}}, Tree: true}
	if _, err := c.Subscribe(ctx, sub); err != nil {
		return err
	}
	res, err := promptSession(ctx, c, sid, prompt, frames.ModeQueue)
	if err != nil {
		return err
	}
	w := newWatcher(a, c, sid, res.TurnID, f.json)
	w.interact = f.approve == "ask" && !f.json && a.interactive() // no card is shown with --json
	if f.approve == "ask" && !w.interact && !f.json {
		fmt.Fprintf(a.stderr, "session %s: answer its approvals with muxhost inbox, muxhost approve ID\n", a.line(string(sid)))
	}
	return w.until(ctx, f.timeout)
}

// watcher follows one turn to its end, showing cards and taking answers.
type watcher struct {
	a        *app
	c        *client.Client
	sid      frames.SessionID
	turn     frames.TurnID
	n        *narrator
	desk     *desk
	json     bool
	interact bool

	code   int  // of the last command of the session itself
	coded  bool // a command told its code
	denied bool // a command was not allowed to run
}

func newWatcher(a *app, c *client.Client, sid frames.SessionID, turn frames.TurnID, json bool) *watcher {
	w := &watcher{a: a, c: c, sid: sid, turn: turn, json: json}
	w.n = newNarrator(a.outPrinter(), a.errPrinter(), a.errStyle)
	w.n.quiet = true
	w.n.session(sid)
	w.desk = newDesk(a, c)
	return w
}

// until handles frames, typed lines and signals until the turn is over.
func (w *watcher) until(ctx context.Context, timeout time.Duration) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sig := make(chan os.Signal, 2)
	signal.Notify(sig, os.Interrupt)
	defer signal.Stop(sig)
	w.n.rest = func(blob frames.BlobID, from int) error { return copyBlob(ctx, w.c, blob, int64(from), w.n.out) }
	fr := pump(ctx, w.c)
	defer fr.stop()
	var lines <-chan string
	if w.interact {
		lines = w.a.lines()
	}
	var late <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		late = t.C
	}
	return w.loop(ctx, fr.c, lines, sig, late)
}

func (w *watcher) loop(ctx context.Context, fr <-chan received, lines <-chan string, sig <-chan os.Signal, late <-chan time.Time) error {
	interrupted, timedOut := false, false
	for {
		select {
		case r := <-fr:
			if r.err != nil {
				return r.err
			}
			end, err := w.frame(ctx, r.frame)
			if err != nil {
				return err
			}
			if end != nil {
				return w.outcome(end, interrupted, timedOut)
			}
		case line, ok := <-lines:
			if !ok {
				lines = nil
				continue
			}
			w.typed(ctx, line)
		case <-sig:
			if interrupted {
				return &exitError{code: exitInterrupted}
			}
			interrupted = true
			w.cancel(ctx)
		case <-late:
			timedOut = true
			w.cancel(ctx)
		}
	}
}

func (w *watcher) cancel(ctx context.Context) {
	w.n.note(w.sid, w.a.errStyle.Yellow("cancelling …"))
	if err := w.c.Call(ctx, "session.cancel", rpc.CancelParams{SessionID: w.sid}, nil); err != nil {
		w.n.note(w.sid, w.a.errStyle.Red(w.a.line(err.Error())))
	}
}

// frame shows f; it returns the turn's end when f brings it.
func (w *watcher) frame(ctx context.Context, f frames.Frame) (*frames.TurnEnd, error) {
	if w.json {
		if err := w.a.jsonFrame(f); err != nil {
			return nil, err
		}
	} else if err := w.n.frame(f); err != nil {
		return nil, err
	}
	w.desk.frame(f)
	if !w.json && w.desk.unseen() {
		w.n.apart()
		w.desk.show(ctx, w.interact)
	}
	if un, ok := f.(*frames.SessionUnsubscribed); ok && un.SessionID == w.sid {
		return nil, fail(exitFailed, "session %s ended before its turn: %s", un.SessionID, un.Reason)
	}
	ev, ok := f.(*frames.SessionEvent)
	if !ok || ev.SessionID != w.sid {
		return nil, nil
	}
	e, err := frames.DecodeEvent(ev.Event)
	if err != nil || e.TurnID != w.turn {
		return nil, err
	}
	p, err := e.Payload()
	if err != nil {
		return nil, err
	}
	switch p := p.(type) {
	case *frames.ToolResult:
		if c, ok := exitCode(p.Details); ok {
			w.code, w.coded = c, true
		}
		w.denied = w.denied || p.IsError && p.ErrorCode == "rejected"
	case *frames.TurnEnd:
		return p, nil
	}
	return nil, nil
}

// typed takes a line: an answer to the card on top, or input for the command.
func (w *watcher) typed(ctx context.Context, line string) {
	if w.desk.top() != nil {
		if err := w.desk.answer(ctx, line); err != nil {
			w.n.note(w.sid, w.a.errStyle.Red(w.a.line(err.Error())))
		}
		return
	}
	if _, err := promptSession(ctx, w.c, w.sid, line, frames.ModeSteer); err != nil {
		w.n.note(w.sid, w.a.errStyle.Red(w.a.line(err.Error())))
	}
}

// outcome turns the end of the turn into the program's end.
func (w *watcher) outcome(end *frames.TurnEnd, interrupted, timedOut bool) error {
	w.n.out.endLine()
	if err := errors.Join(w.n.out.err, w.n.notes.err); err != nil {
		return err
	}
	switch {
	case timedOut:
		return &exitError{code: exitTimeout}
	case interrupted:
		return &exitError{code: exitInterrupted}
	case end.Reason == frames.TurnCancelled || end.Reason == frames.TurnRefused:
		return &exitError{code: exitRefused}
	case end.Reason != frames.TurnCompleted:
		return &exitError{code: exitFailed}
	case w.coded && w.code != 0:
		return &exitError{code: w.code}
	case w.denied:
		return &exitError{code: exitRefused}
	}
	return nil
}

func firstLine(s string, most int) string {
	for i, r := range s {
		if r == '\n' || i >= most {
			return s[:i]
		}
	}
	return s
}
