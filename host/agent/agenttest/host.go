package agenttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// Script is how the host and the person behave. Its functions may block until
// ctx is done, and may be called at the same time for different sessions.
type Script struct {
	// Approve decides a tool call; nil allows everything once. A decision that
	// allows and has no Input gets the one that was asked for.
	Approve func(ctx context.Context, s *Session, a agent.Approval) agent.Decision
	// Answer answers questions; nil picks first options, or says "yes".
	Answer func(ctx context.Context, s *Session, q []frames.Question) agent.Answers
	// Event sees every durable event before it is stored; an error refuses it.
	Event func(s *Session, p frames.Payload) error
	// Progress sees every piece of tool progress.
	Progress func(s *Session, call frames.CallID, text string)
	// Output sees every piece of a task's output.
	Output func(s *Session, k *Task, text string)
	// Streamed is told of every piece of text, reasoning and progress.
	Streamed func(s *Session)
	// Cwd and Env are those of root sessions, and of children by default.
	Cwd string
	Env []string
}

// Host is a fake host.
type Host struct {
	script  Script
	drivers []agent.Driver
	ctx     context.Context //nolint:containedctx // the lifetime of all turns
	cancel  context.CancelCauseFunc
	wg      sync.WaitGroup

	mu       sync.Mutex // guards what follows; taken alone
	sessions []*Session
	blobs    map[frames.BlobID][]byte
	ids      int
}

// ErrClosed is the cause of what is cancelled by [Host.Close].
var ErrClosed = errors.New("agenttest: the host is closed")

// New returns a host whose first driver is the default. The caller closes it.
func New(script Script, drivers ...agent.Driver) *Host {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Host{script: script, drivers: drivers, ctx: ctx, cancel: cancel, blobs: map[frames.BlobID][]byte{}}
}

// Close cancels all turns, closes all agents and waits for both.
func (h *Host) Close() error {
	h.cancel(ErrClosed)
	h.wg.Wait()
	var errs []error
	for _, s := range h.Sessions() {
		errs = append(errs, s.Close(context.Background()))
	}
	return errors.Join(errs...)
}

// Sessions returns all sessions in the order in which they were opened.
func (h *Host) Sessions() []*Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.sessions)
}

// Blob returns the bytes of a blob, nil if there is none.
func (h *Host) Blob(id frames.BlobID) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.blobs[id]
}

// Open opens a root session on the default driver.
func (h *Host) Open(ctx context.Context, config json.RawMessage) (*Session, error) {
	return h.open(ctx, nil, agent.Spawn{Config: config})
}

func (h *Host) open(ctx context.Context, parent *Session, sp agent.Spawn) (*Session, error) {
	d := h.drivers[0]
	if sp.Agent != "" {
		i := slices.IndexFunc(h.drivers, func(d agent.Driver) bool { return d.Info().Name == sp.Agent })
		if i < 0 {
			return nil, fmt.Errorf("agenttest: no driver %q was given to New", sp.Agent)
		}
		d = h.drivers[i]
	}
	s := &Session{host: h, Parent: parent, Title: sp.Title, open: map[int]string{}, progress: map[frames.CallID]string{}}
	info := agent.Session{
		ID: frames.SessionID(h.id("session")), Cwd: h.script.Cwd, Env: h.script.Env, Config: sp.Config,
		History: s.history, Background: background{s}, ReadBlob: h.readBlob,
		Base: func(context.Context) (*frames.View, frames.Seq, error) { return nil, 0, nil },
	}
	if parent != nil {
		info.Parent, info.Depth, info.Cwd = parent.Info.ID, parent.Info.Depth+1, parent.Info.Cwd
	}
	if sp.Cwd != "" {
		info.Cwd = sp.Cwd
	}
	s.Info = info
	a, err := d.Open(ctx, info)
	if err != nil {
		return nil, err
	}
	s.Agent = a
	h.mu.Lock()
	h.sessions = append(h.sessions, s)
	h.mu.Unlock()
	return s, nil
}

func (h *Host) readBlob(_ context.Context, id frames.BlobID) (io.ReadCloser, error) {
	b := h.Blob(id)
	if b == nil {
		return nil, fmt.Errorf("agenttest: no blob %s", id)
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (h *Host) id(kind string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids++
	return fmt.Sprintf("%s-%d", kind, h.ids)
}
