package agenttest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// turn is one running turn of a fake session.
type turn struct {
	s        *Session
	id       frames.TurnID
	ctx      context.Context //nolint:containedctx // the lifetime of the turn
	children sync.WaitGroup

	mu     sync.Mutex // guards what follows; taken alone
	over   bool
	blocks int
}

func (t *turn) end() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
}

// check says why nothing can be done: the turn is over, or ctx is done.
func (t *turn) check(ctx context.Context) error {
	t.mu.Lock()
	over := t.over
	t.mu.Unlock()
	if over {
		return agent.ErrTurnOver
	}
	return context.Cause(ctx)
}

func (t *turn) ID() frames.TurnID { return t.id }

func (t *turn) Emit(ctx context.Context, events ...frames.Payload) error {
	if err := t.check(ctx); err != nil {
		return err
	}
	return t.s.emit(t.id, events)
}

func (t *turn) NewBlock() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.blocks++
	return t.blocks - 1
}

func (t *turn) Text(ctx context.Context, block int, text string) error {
	return t.delta(ctx, func() { t.s.open[block] += text })
}

func (t *turn) Reasoning(ctx context.Context, block int, text string) error {
	return t.delta(ctx, func() { t.s.open[block] += text })
}

func (t *turn) Progress(ctx context.Context, call frames.CallID, text string) error {
	err := t.delta(ctx, func() { t.s.progress[call] += text })
	if f := t.s.host.script.Progress; f != nil && err == nil {
		f(t.s, call, text)
	}
	return err
}

func (t *turn) delta(ctx context.Context, add func()) error {
	if err := t.check(ctx); err != nil {
		return err
	}
	t.s.mu.Lock()
	t.s.deltas++
	add()
	t.s.mu.Unlock()
	if f := t.s.host.script.Streamed; f != nil {
		f(t.s)
	}
	return nil
}

func (t *turn) Ask(ctx context.Context, a agent.Approval) (agent.Decision, error) {
	if err := t.check(ctx); err != nil {
		return agent.Decision{}, err
	}
	frozen := slices.Clone(a.Input)
	id := frames.RequestID(t.s.host.id("approval"))
	if err := t.s.emit(t.id, []frames.Payload{
		frames.ApprovalAsked{ID: id, CallID: a.Call, Tool: a.Tool, Input: frozen, Reason: a.Reason},
	}); err != nil {
		return agent.Decision{}, err
	}
	d := agent.Decision{Outcome: frames.AllowedOnce, Cause: frames.CauseReply}
	if f := t.s.host.script.Approve; f != nil {
		d = f(ctx, t.s, a)
	}
	if ctx.Err() != nil {
		d = agent.Decision{Outcome: frames.Cancelled, Cause: frames.CauseAbort}
	}
	if d.Outcome.Allows() && d.Input == nil {
		d.Input = frozen
	}
	err := t.s.emit(t.id, []frames.Payload{frames.ApprovalDecided{
		ID: id, Outcome: d.Outcome, Origin: d.Cause, By: d.By, Feedback: d.Feedback,
	}})
	if err != nil {
		return agent.Decision{Outcome: frames.Unavailable, Cause: frames.CauseAbort}, nil
	}
	return d, nil
}

func (t *turn) Question(ctx context.Context, q ...frames.Question) (agent.Answers, error) {
	if err := t.check(ctx); err != nil {
		return agent.Answers{}, err
	}
	id := frames.RequestID(t.s.host.id("question"))
	if err := t.s.emit(t.id, []frames.Payload{frames.QuestionAsked{ID: id, Questions: q}}); err != nil {
		return agent.Answers{}, err
	}
	var a agent.Answers
	if f := t.s.host.script.Answer; f != nil {
		a = f(ctx, t.s, q)
	} else {
		a = first(q)
	}
	if ctx.Err() != nil {
		a = agent.Answers{Outcome: frames.Cancelled, Cause: frames.CauseAbort}
	}
	return a, t.s.emit(t.id, []frames.Payload{
		frames.QuestionDecided{ID: id, Outcome: a.Outcome, Origin: a.Cause, Answers: a.Answers},
	})
}

// first picks the first option of every question, or says "yes".
func first(q []frames.Question) agent.Answers {
	a := agent.Answers{Outcome: frames.Answered, Cause: frames.CauseReply}
	for _, one := range q {
		if len(one.Options) > 0 {
			a.Answers = append(a.Answers, frames.Answer{ID: one.ID, Labels: []string{one.Options[0].Label}})
		} else {
			a.Answers = append(a.Answers, frames.Answer{ID: one.ID, Text: "yes"})
		}
	}
	return a
}

// Spawn opens a child on the host's drivers; its turn is cancelled with this one.
func (t *turn) Spawn(ctx context.Context, sp agent.Spawn) (agent.Child, error) {
	if err := t.check(ctx); err != nil {
		return agent.Child{}, err
	}
	child, err := t.s.host.open(ctx, t.s, sp)
	if err != nil {
		return agent.Child{}, err
	}
	id := child.Info.ID
	if err := t.s.emit(t.id, []frames.Payload{
		frames.AgentSpawned{ChildSessionID: id, CallID: sp.Call, Agent: sp.Agent, Title: sp.Title},
	}); err != nil {
		return agent.Child{}, err
	}
	var res agent.ChildResult
	done := make(chan struct{})
	t.children.Go(func() {
		defer close(done)
		res = child.complete(t.ctx, sp.Prompt)
		// The record of a turn that is over takes this too, as the host's does.
		_ = t.s.emit(t.id, []frames.Payload{frames.AgentCompleted{
			ChildSessionID: id, CallID: sp.Call, Status: string(res.Reason), Result: res.Result,
		}})
	})
	wait := func(ctx context.Context) (agent.ChildResult, error) {
		select {
		case <-done:
			return res, nil
		case <-ctx.Done():
			return agent.ChildResult{}, context.Cause(ctx)
		}
	}
	return agent.Child{ID: id, Wait: wait}, nil
}

// complete runs the child's first turn and says how it ended.
func (s *Session) complete(ctx context.Context, prompt []frames.ContentBlock) agent.ChildResult {
	res, err := s.run(ctx, prompt)
	out := agent.ChildResult{Reason: res.Reason, Message: res.Message, Result: Last[frames.AssistantMessage](s).Content}
	switch {
	case ctx.Err() != nil:
		out.Reason = frames.TurnCancelled
	case err != nil:
		out.Reason = frames.TurnError
	case out.Reason == "":
		out.Reason = frames.TurnCompleted
	}
	return out
}

func (t *turn) Blob(ctx context.Context, r io.Reader) (frames.BlobID, int64, error) {
	if err := t.check(ctx); err != nil {
		return "", 0, err
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return "", 0, fmt.Errorf("agenttest: reading a blob: %w", err)
	}
	id := frames.BlobID(fmt.Sprintf("sha256-%x", sha256.Sum256(b)))
	h := t.s.host
	h.mu.Lock()
	defer h.mu.Unlock()
	h.blobs[id] = b
	return id, int64(len(b)), nil
}
