package shell

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/internal/proc"
)

// Options tune a driver; the zero value works.
type Options struct {
	// Shell is the absolute path of the shell, default /bin/sh.
	Shell string
	// TempDir holds output that is too large for memory while a command runs,
	// default the system's. Files are private and deleted when it ends.
	TempDir string
	// MaxOutput bounds the bytes kept of one command, default 256 MiB; what
	// comes after is dropped, and the result says so.
	MaxOutput int64
	// Grace is how long a cancelled command has between SIGTERM and SIGKILL,
	// default 2 s.
	Grace time.Duration
}

func (o Options) withDefaults() Options {
	if o.Shell == "" {
		o.Shell = "/bin/sh"
	}
	if o.MaxOutput <= 0 {
		o.MaxOutput = 256 << 20
	}
	if o.Grace <= 0 {
		o.Grace = 2 * time.Second
	}
	return o
}

// New returns the driver.
func New(o Options) agent.Driver {
	return driver{o.withDefaults(), proc.NewMarks()}
}

type driver struct {
	opt   Options
	marks *proc.Marks
}

// Info describes the driver.
func (d driver) Info() agent.Info {
	return agent.Info{Name: "shell", Kind: "shell", Capabilities: []string{"steer", "questions", "subagents", "tasks"}}
}

// Open returns an agent for s. It starts nothing and does not block.
func (d driver) Open(_ context.Context, s agent.Session) (agent.Agent, error) {
	if s.Cwd == "" {
		return nil, errors.New("shell: the session has no directory; give cwd when creating it")
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	return &shell{opt: d.opt, marks: d.marks, session: s, ctx: ctx, cancel: cancel}, nil
}

var errClosed = errors.New("shell: the agent was closed")

// shell is one open agent.
type shell struct {
	opt     Options
	marks   *proc.Marks
	session agent.Session
	ctx     context.Context //nolint:containedctx // ends when the agent is closed
	cancel  context.CancelCauseFunc

	mu     sync.Mutex // guards what follows
	closed bool
	turns  sync.WaitGroup // added to under mu, while not closed
	tasks  sync.WaitGroup // commands in the background; begun by turns only
	input  *proc.Stdin    // of the running command, or nil
	coming chan struct{}  // closed once a command that is asked for runs or will not; nil: none is
}

// Prompt runs one turn: a command line, or a line for the agent itself.
func (s *shell) Prompt(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return agent.Result{}, errClosed
	}
	s.turns.Add(1)
	s.mu.Unlock()
	defer s.turns.Done()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(errClosed) })()

	res, err := s.dispatch(ctx, t, strings.TrimSpace(p.Text()))
	if ctx.Err() != nil {
		return agent.Result{Reason: frames.TurnCancelled}, nil
	}
	return res, err
}

func (s *shell) dispatch(ctx context.Context, t agent.Turn, text string) (agent.Result, error) {
	word, rest := text, ""
	if i := strings.IndexAny(text, " \t\n"); i >= 0 {
		word, rest = text[:i], strings.TrimSpace(text[i:])
	}
	switch word {
	case "", "@help":
		return agent.Result{}, say(ctx, t, Help)
	case "@ask":
		return agent.Result{}, ask(ctx, t, rest)
	case "@spawn":
		return agent.Result{}, spawn(ctx, t, text)
	default:
		return s.command(ctx, t, text)
	}
}

// Steer gives a line to the running command's standard input. While a command is
// asked for or starts it blocks until that runs. It is not taken when no command
// runs, or when too much waits to be read already.
func (s *shell) Steer(ctx context.Context, p agent.Prompt) error {
	s.mu.Lock()
	in, coming := s.input, s.coming
	s.mu.Unlock()
	if in == nil && coming != nil {
		select {
		case <-coming:
		case <-ctx.Done():
			return agent.ErrNotTaken
		}
		s.mu.Lock()
		in = s.input
		s.mu.Unlock()
	}
	if in == nil {
		return agent.ErrNotTaken
	}
	text := p.Text()
	if strings.TrimSpace(text) == "@eof" {
		return in.End()
	}
	return in.Write(text + "\n")
}

// setInput says whose input steers go to; nil for nobody's. Those that wait for a
// command that was coming go on.
func (s *shell) setInput(in *proc.Stdin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.input = in
	if s.coming != nil {
		close(s.coming)
		s.coming = nil
	}
}

// awaitCommand makes steers wait for the next setInput.
func (s *shell) awaitCommand() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.coming = make(chan struct{})
}

// Close cancels a running turn, kills what it and earlier ones started, and waits
// for that or for ctx. It is safe to call twice.
func (s *shell) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel(errClosed)
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		s.turns.Wait()
		s.tasks.Wait()
		close(over)
	})
	select {
	case <-over:
		wg.Wait()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("shell: a command is still being ended: %w", context.Cause(ctx))
	}
}

// say writes one message of the assistant.
func say(ctx context.Context, t agent.Turn, text string) error {
	block := t.NewBlock()
	return t.Emit(ctx, frames.AssistantMessage{
		Content: []frames.ContentBlock{frames.Text(text)},
		Blocks:  []int{block},
	})
}
