package agenttest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// Session is one session of a fake host and the record of what its agent said.
type Session struct {
	Info   agent.Session
	Title  string
	Parent *Session
	Agent  agent.Agent
	host   *Host

	mu       sync.Mutex // guards what follows; taken alone
	events   []frames.Payload
	seqs     []frames.Event
	open     map[int]string
	progress map[frames.CallID]string
	deltas   int
	failures []string
	last     *turn
	tasks    []*Task
	state    json.RawMessage
	named    string
}

// Prompt runs one turn with text and returns when it has ended.
func (s *Session) Prompt(ctx context.Context, text string) (agent.Result, error) {
	return s.run(ctx, []frames.ContentBlock{frames.Text(text)})
}

func (s *Session) run(ctx context.Context, content []frames.ContentBlock) (agent.Result, error) {
	t := &turn{s: s, id: frames.TurnID(s.host.id("turn"))}
	s.mu.Lock()
	s.last = t
	s.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.host.ctx, func() { cancel(ErrClosed) })()
	t.ctx = ctx
	defer t.children.Wait()
	defer cancel(agent.ErrTurnOver)
	defer t.end()
	return s.Agent.Prompt(ctx, t, agent.Prompt{ID: frames.PromptID(s.host.id("prompt")), Content: content})
}

// Steer hands text to the running turn.
func (s *Session) Steer(ctx context.Context, text string) error {
	return s.Agent.Steer(ctx, agent.Prompt{Content: []frames.ContentBlock{frames.Text(text)}})
}

// Close closes the agent.
func (s *Session) Close(ctx context.Context) error { return s.Agent.Close(ctx) }

// LastTurn returns the turn that began last, which may be over.
func (s *Session) LastTurn() agent.Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Events returns the durable events so far, in order.
func (s *Session) Events() []frames.Payload {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// Types returns the types of the durable events so far, in order.
func (s *Session) Types() []frames.EventType {
	var types []frames.EventType
	for _, e := range s.Events() {
		types = append(types, e.EventType())
	}
	return types
}

// Text returns what was streamed into a block, text or reasoning.
func (s *Session) Text(block int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[block]
}

// Deltas returns how many pieces of text, reasoning and progress were streamed.
func (s *Session) Deltas() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deltas
}

// Progress returns the whole progress of a tool call.
func (s *Session) Progress(call frames.CallID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress[call]
}

// Failures returns what was said through Background.Failed.
func (s *Session) Failures() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.failures)
}

// State returns what the agent kept last.
func (s *Session) State() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.state)
}

// Named returns the title that the agent gave.
func (s *Session) Named() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.named
}

// Last returns the last event of type P, or its zero value.
func Last[P frames.Payload](s *Session) P {
	var last P
	for _, e := range s.Events() {
		if p, ok := e.(P); ok {
			last = p
		}
	}
	return last
}

// emit stores events in one step, or none of them.
func (s *Session) emit(turn frames.TurnID, events []frames.Payload) error {
	var stored []frames.Event
	for _, e := range events {
		if f := s.host.script.Event; f != nil {
			if err := f(s, e); err != nil {
				return err
			}
		}
		data, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("agenttest: a payload of %s that is no JSON: %w", e.EventType(), err)
		}
		stored = append(stored, frames.Event{Type: e.EventType(), TurnID: turn, Data: data})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range stored {
		stored[i].Seq = frames.Seq(len(s.seqs) + 1)
		s.seqs = append(s.seqs, stored[i])
	}
	s.events = append(s.events, events...)
	return nil
}

func (s *Session) history(_ context.Context, after frames.Seq, limit int) ([]frames.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := min(int(after), len(s.seqs))
	return slices.Clone(s.seqs[from:min(from+limit, len(s.seqs))]), nil
}

type background struct{ s *Session }

func (b background) Emit(ctx context.Context, events ...frames.Payload) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return b.s.emit("", events)
}

func (b background) Failed(message string) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.s.failures = append(b.s.failures, message)
}

func (b background) Ask(ctx context.Context, a agent.Approval) (agent.Decision, error) {
	return b.outside().Ask(ctx, a)
}

func (b background) Question(ctx context.Context, q ...frames.Question) (agent.Answers, error) {
	return b.outside().Question(ctx, q...)
}

// outside is a turn without an id, for what belongs to none.
func (b background) outside() *turn { return &turn{s: b.s, ctx: b.s.host.ctx} }

func (b background) Save(ctx context.Context, state json.RawMessage) error {
	if err := frames.CheckJSON(state, frames.JSONLimits{Bytes: agent.MaxState}); err != nil {
		return fmt.Errorf("agenttest: a state of %d bytes; want a JSON value of at most %d: %w", len(state), agent.MaxState, err)
	}
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.s.state = slices.Clone(state)
	return context.Cause(ctx)
}

func (b background) Title(ctx context.Context, title string) error {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if title = strings.Join(strings.Fields(title), " "); title != "" && b.s.Title == "" {
		b.s.named = title
	}
	return context.Cause(ctx)
}
