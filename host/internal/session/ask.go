package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/pending"
)

// maxAsk is the largest input that can be asked for, in bytes.
const maxAsk = 4 << 20

// ask is one approval or question: what is recorded of it, and the card that
// clients are shown. It records how it ends.
type ask struct {
	a      *actor
	t      *turn // nil outside of turns
	since  *mark // outside of turns: what was called off before this was asked
	req    pending.Request
	asked  frames.Payload
	card   frames.Frame
	closed bool            // its decision is in the log, or is owed to it
	opened bool            // it was tried to put what was asked into the log
	told   func()          // the decision is in the actor's mailbox, or there is none
	heard  <-chan struct{} // closed by told
}

// verdict is how a request ended that nobody was asked for.
type verdict struct {
	outcome frames.Outcome
	cause   frames.Cause
	grant   frames.GrantID
	why     string // for the agent
}

// Ask implements [agent.Turn].
func (t *turn) Ask(ctx context.Context, ap agent.Approval) (agent.Decision, error) {
	if t.over.Load() {
		return agent.Decision{Outcome: frames.Cancelled, Cause: frames.CauseAbort}, agent.ErrTurnOver
	}
	k, v := t.a.m.freeze(ctx, t.a, t, ap)
	if err := t.step(); err != nil {
		v = notCovered(err)
	}
	return k.approve(ctx, v), nil
}

// notCovered rejects a call that the budget does not cover.
func notCovered(err error) *verdict {
	return &verdict{frames.Rejected, frames.CausePolicy, "", "the call was not run: " + said(err)}
}

// approve has an approval decided, by v where that is so already.
func (k *ask) approve(ctx context.Context, v *verdict) agent.Decision {
	if v == nil {
		v = k.a.m.judge(k)
	}
	if v != nil {
		return k.settleUnasked(*v)
	}
	s, err := k.wait(ctx)
	d := agent.Decision{Outcome: s.Outcome, Cause: s.Cause, By: s.By, Feedback: s.Feedback}
	if err != nil {
		d.Feedback = said(err)
	}
	return k.decision(d)
}

// decision completes what the agent is told. What was cancelled while an answer
// was on its way runs nothing more.
func (k *ask) decision(d agent.Decision) agent.Decision {
	if mk := k.mark(); mk != nil && d.Outcome.Allows() {
		return agent.Decision{Outcome: frames.Cancelled, Cause: mk.cause}
	}
	if d.Outcome.Allows() {
		d.Input = k.req.Approval.Input
	}
	return d
}

// mark returns why what asks is cancelled, nil if it is not.
func (k *ask) mark() *mark {
	m, e := k.a.m, k.a.e
	if k.t != nil {
		return m.markOf(k.t)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if e.hush != k.since || e.closing > 0 {
		return e.hush
	}
	return nil
}

// turn returns the id of the turn that asks, "" outside of turns.
func (k *ask) turn() frames.TurnID { return k.req.Turn }

// freeze makes the request of an approval. What cannot be asked is rejected.
func (m *Manager) freeze(ctx context.Context, a *actor, t *turn, ap agent.Approval) (*ask, *verdict) {
	k := m.newAsk(a, t, ap.Call, pending.KindApproval)
	ap.Tool = frames.Tool{Name: clip(ap.Tool.Name), Kind: clip(ap.Tool.Kind), Title: clip(ap.Tool.Title)}
	p := &pending.Approval{
		Tool: ap.Tool, KindOnly: ap.KindOnly, Input: bytes.Clone(ap.Input), Reason: clip(ap.Reason),
		Options: []frames.Outcome{frames.AllowedOnce, frames.AllowedAlways, frames.Rejected},
	}
	k.req.Approval = p
	m.mu.RLock()
	p.Agent, p.Cwd = a.e.sum.Agent, a.e.sum.Cwd
	m.mu.RUnlock()
	shown, cut := json.RawMessage(p.Input), (*frames.Truncated)(nil)
	why := ""
	var err error
	if len(p.Input) > maxAsk {
		why = fmt.Sprintf("its input has %d bytes, want at most %d", len(p.Input), maxAsk)
	} else if p.Canonical, p.Hash, err = frames.InputHash(p.Input); err != nil {
		why = fmt.Sprintf("its input is not I-JSON: %v", err)
	}
	if why != "" || len(p.Input) > maxInput {
		p.Truncated = true
		cut = &frames.Truncated{Bytes: int64(len(p.Input))}
		shown = previewJSON(p.Input)
	}
	if why == "" && cut != nil {
		if cut.Blob, err = m.keep(ctx, p.Input); err != nil {
			m.log.Error("the input of a call could not be kept", "session", string(a.id), "error", err)
			why = "its input is too large for an event, and the whole could not be kept"
		}
	}
	if ap.NoAlways || p.Truncated {
		p.Options = []frames.Outcome{frames.AllowedOnce, frames.Rejected}
	}
	k.describe(shown, cut)
	if why != "" {
		return k, &verdict{frames.Rejected, frames.CausePolicy, "", "the call was not run: " + why}
	}
	return k, nil
}

// describe makes the audit event and the card of an approval.
func (k *ask) describe(input json.RawMessage, cut *frames.Truncated) {
	r, p := &k.req, k.req.Approval
	k.asked = frames.ApprovalAsked{
		ID: r.ID, CallID: r.Call, Tool: p.Tool, Input: input, InputHash: p.Hash, Truncated: cut,
		Reason: p.Reason, Options: p.Options, ExpiresAt: frames.At(r.ExpiresAt),
	}
	k.card = &frames.ApprovalRequested{
		SessionID: r.Session, ID: r.ID, RootSessionID: r.Root, ParentSessionID: r.Parent, Depth: r.Depth,
		TurnID: r.Turn, CallID: r.Call, Tool: p.Tool, Input: input, InputHash: p.Hash, Truncated: cut,
		Reason: p.Reason, Options: p.Options, AskedAt: frames.At(r.AskedAt), ExpiresAt: frames.At(r.ExpiresAt),
	}
}

// newAsk makes a request with its lineage and deadline.
func (m *Manager) newAsk(a *actor, t *turn, call frames.CallID, kind pending.Kind) *ask {
	m.mu.RLock()
	defer m.mu.RUnlock()
	e := a.e
	heard := make(chan struct{})
	k := &ask{a: a, t: t, heard: heard, told: sync.OnceFunc(func() { close(heard) })}
	at := time.Now()
	k.req = pending.Request{
		ID: frames.RequestID(m.cfg.NewID()), Session: e.id, Root: e.sum.RootSessionID, Parent: e.sum.ParentSessionID,
		Depth: e.sum.Depth, Ancestors: ids(e.ancestors()), Call: call, Kind: kind, AskedAt: at,
	}
	if t != nil {
		k.req.Turn = t.id
	}
	if kind == pending.KindApproval {
		wait := m.cfg.AskTimeout
		if p := e.policy; p != nil && p.AskTimeoutMs != 0 {
			wait = pending.AskTimeout(*p)
		}
		k.req.ExpiresAt = at.Add(wait)
	}
	return k
}

// judge decides what policy and grants decide now; nil means that a person is
// asked. A deny rule of an ancestor denies here too.
func (m *Manager) judge(k *ask) *verdict {
	m.mu.RLock()
	policy := frames.Policy{}
	if p := k.a.e.policy; p != nil {
		policy = *p
	}
	m.mu.RUnlock()
	if k.req.Kind == pending.KindQuestion {
		if policy.Mode == pending.ModeDeny {
			return &verdict{outcome: frames.Cancelled, cause: frames.CausePolicy}
		}
		return nil
	}
	line := append(slices.Clone(k.req.Ancestors), k.req.Session, k.req.Root)
	v, g := m.table.Decide(policy, k.req.Approval, line...)
	switch {
	case v.Decision == pending.Deny || m.deniedAbove(k):
		return &verdict{frames.Rejected, frames.CausePolicy, "", "the session's policy does not allow this call"}
	case g != nil:
		return &verdict{outcome: frames.AllowedAlways, cause: frames.CausePolicy, grant: g.ID}
	case v.Decision == pending.Allow:
		return &verdict{outcome: frames.AllowedOnce, cause: frames.CausePolicy}
	}
	return nil
}

// deniedAbove reports whether a deny rule of an ancestor matches.
func (m *Manager) deniedAbove(k *ask) bool {
	var above []*frames.Policy
	m.mu.RLock()
	for _, e := range k.a.e.ancestors() {
		if e.policy != nil {
			above = append(above, e.policy)
		}
	}
	m.mu.RUnlock()
	for _, p := range above {
		v := pending.Judge(*p, k.req.Approval.Tool.Name, k.req.Approval.Canonical)
		if v.Decision == pending.Deny && v.Rule > 0 {
			return true
		}
	}
	return false
}

// settleUnasked records a request that is decided already; an allow counts only
// once it is on disk.
func (k *ask) settleUnasked(v verdict) agent.Decision {
	m := k.a.m
	if mk := k.mark(); mk != nil && (mk.why == nil || v.cause != frames.CausePolicy || v.outcome != frames.Rejected) {
		<-mk.placed
		v = verdict{outcome: frames.Cancelled, cause: mk.cause}
	}
	err := k.record(pending.Settlement{Outcome: v.outcome, Cause: v.cause, Grant: v.grant, Feedback: v.why})
	if err == errChanged {
		v = verdict{frames.Rejected, frames.CausePolicy, "", "the policy or a grant changed while the call was judged"}
		err = k.record(pending.Settlement{Outcome: v.outcome, Cause: v.cause, Feedback: v.why})
	}
	if err != nil && v.outcome.Allows() {
		return agent.Decision{Outcome: frames.Unavailable, Cause: frames.CauseAbort, Feedback: said(err)}
	}
	if v.grant != "" {
		if err := m.table.Grants().Use(m.io, v.grant); err != nil {
			k.a.log.Warn("the use of a grant could not be counted", "grant", string(v.grant), "error", err)
		}
	}
	return k.decision(agent.Decision{Outcome: v.outcome, Cause: v.cause, Feedback: v.why})
}

// errChanged means that what a request was judged by is no longer so.
var errChanged = errors.New("session: the policy changed meanwhile")

// record appends both audit events of a request that nobody was asked for. What
// allowed it has to hold in this step still: a policy that is in the log, and a
// revocation that was acknowledged, count for all that comes after.
func (k *ask) record(s pending.Settlement) error {
	a := k.a
	return a.do(a.m.io, func() error {
		if s.Outcome.Allows() {
			if v := a.m.judge(k); v == nil || v.outcome != s.Outcome || v.grant != s.Grant {
				return errChanged
			}
		}
		c := &commit{turn: k.turn()}
		c.add(k.asked)
		c.add(k.decidedEvent(s))
		err := a.commit(c)
		switch {
		case err == nil:
		case k.t != nil:
			a.fail(k.t, err)
		default:
			k.oweRecord(c, s, err)
		}
		return err
	})
}

// wait asks and blocks until somebody, or the clock, has decided.
func (k *ask) wait(ctx context.Context) (pending.Settlement, error) {
	m := k.a.m
	s, err := m.table.Ask(ctx, k.req, k, k.open)
	if errors.Is(err, errChanged) { // nobody was asked
		s.Outcome, s.Cause, err = frames.Rejected, frames.CauseModeChange, nil
		if k.req.Kind == pending.KindQuestion {
			s.Outcome = frames.Cancelled
		}
	}
	if errors.Is(err, errHushed) {
		s, err = pending.Settlement{Outcome: frames.Cancelled, Cause: frames.CauseAbort}, nil
		if mk := k.mark(); mk != nil {
			s.Cause = mk.cause
		}
	}
	if err == nil && !k.opened {
		if mk := k.mark(); mk != nil {
			<-mk.placed
		}
		_ = k.record(s) // it stands in any case
	}
	if err == nil && k.opened && (s.Cause == frames.CauseReply || s.Cause == frames.CauseTimeout) {
		select { // what the agent does next comes behind the decision
		case <-k.heard:
		case <-ctx.Done():
		}
	}
	return s, err
}

// open records that the request is asked, and shows its card.
func (k *ask) open(ctx context.Context) error {
	a := k.a
	return a.do(ctx, func() error {
		if err := k.mayOpen(); err != nil {
			return err
		}
		if v := a.m.judge(k); v != nil && !v.outcome.Allows() {
			return errChanged
		}
		c := &commit{turn: k.turn(), asked: true, notices: []Notice{{Key: string(k.req.ID), Frame: k.card}}}
		c.add(k.asked)
		c.then = func() { a.m.deal(k) }
		if k.t == nil {
			c.next = a.rec.clone()
			c.next.Asks = append(c.next.Asks, k.openAsk())
		}
		k.opened = true
		err := a.commit(c)
		if err != nil {
			k.told()
			k.withhold(c)
			k.gaveUp(c, err)
		}
		return err
	})
}

// withhold shows nobody a request that may be in the log though storing it
// failed; if it is, its end follows.
func (k *ask) withhold(c *commit) {
	a := k.a
	if !a.unknown(c) {
		return
	}
	c.notices, c.asked = nil, false
	c.then = func() {
		if k.closed {
			return
		}
		s := pending.Settlement{Outcome: frames.Unavailable, Cause: frames.CauseAbort}
		if k.req.Kind == pending.KindQuestion {
			s.Outcome = frames.Cancelled
		}
		end := &commit{turn: k.turn()}
		end.add(k.decidedEvent(s))
		k.owe(end)
	}
}

// Decided implements [pending.Recorder].
func (k *ask) Decided(ctx context.Context, _ pending.Request, s pending.Settlement, placed func()) error {
	a := k.a
	if !s.Outcome.Allows() {
		ctx = a.m.io // it stands, so it is told however long that takes
	}
	q := msg{step: func() error { return k.decided(s, placed) }, done: make(chan error, 1)}
	err := a.send(ctx, q)
	k.told()
	if err != nil {
		return err
	}
	return a.result(q)
}

func (k *ask) decided(s pending.Settlement, placed func()) error {
	a := k.a
	k.closed = true
	c := &commit{turn: k.turn(), by: s.By, asked: true, notices: []Notice{{Key: string(k.req.ID), Settle: true, Frame: k.resolved(s)}}}
	c.add(k.decidedEvent(s))
	if k.t == nil {
		c.next = a.rec.clone()
		c.next.answered(k.req.ID)
	}
	if s.Outcome == frames.AllowedAlways && s.Grant != "" {
		c.rows = append(c.rows, given(s.Grant))
	}
	c.then, c.placed = func() { a.m.collect(k) }, placed
	err := a.commit(c)
	if err == nil {
		return nil
	}
	a.broke(err)
	notices := c.notices
	if a.unknown(c) { // they are told below, or with what an allow turns into
		c.notices, c.asked = nil, false
	}
	if s.Outcome.Allows() {
		return err
	}
	a.m.collect(k)
	if a.unknown(c) {
		c.lost = func() { k.owe(c) }
	} else {
		k.owe(c)
	}
	a.log.Error("a decision could not be stored yet", "request", string(k.req.ID), "error", err)
	a.publish(Update{Notices: notices}, true, false)
	a.m.pokeAbove(a.e)
	return err
}

func (k *ask) decidedEvent(s pending.Settlement) frames.Payload {
	if k.req.Kind == pending.KindQuestion {
		return frames.QuestionDecided{ID: k.req.ID, Outcome: s.Outcome, Origin: s.Cause, By: s.By, Answers: s.Answers}
	}
	return frames.ApprovalDecided{
		ID: k.req.ID, Outcome: s.Outcome, Origin: s.Cause, InputHash: k.req.Approval.Hash,
		By: s.By, Feedback: s.Feedback, Grant: s.Grant,
	}
}

func (k *ask) resolved(s pending.Settlement) frames.Frame {
	if k.req.Kind == pending.KindQuestion {
		return &frames.QuestionResolved{SessionID: k.req.Session, ID: k.req.ID, Outcome: s.Outcome, Origin: s.Cause, By: s.By, Answers: s.Answers}
	}
	return &frames.ApprovalResolved{SessionID: k.req.Session, ID: k.req.ID, Outcome: s.Outcome, Origin: s.Cause, By: s.By, Feedback: s.Feedback}
}

// Question implements [agent.Turn].
func (t *turn) Question(ctx context.Context, qs ...frames.Question) (agent.Answers, error) {
	none := agent.Answers{Outcome: frames.Cancelled, Cause: frames.CauseAbort}
	if t.over.Load() {
		return none, agent.ErrTurnOver
	}
	return t.a.m.newAsk(t.a, t, "", pending.KindQuestion).question(ctx, qs)
}

// question asks and blocks until answered or cancelled.
func (k *ask) question(ctx context.Context, qs []frames.Question) (agent.Answers, error) {
	none := agent.Answers{Outcome: frames.Cancelled, Cause: frames.CauseAbort}
	if err := k.questions(qs); err != nil {
		return none, err
	}
	if v := k.a.m.judge(k); v != nil {
		d := k.settleUnasked(*v)
		return agent.Answers{Outcome: d.Outcome, Cause: d.Cause}, nil
	}
	s, err := k.wait(ctx)
	if err != nil {
		return none, err
	}
	return agent.Answers{Outcome: s.Outcome, Cause: s.Cause, Answers: s.Answers}, nil
}

// questions checks what is asked; questions without an id get their number.
func (k *ask) questions(qs []frames.Question) error {
	if len(qs) == 0 {
		return fmt.Errorf("question: want at least one")
	}
	seen := map[string]bool{}
	r := &k.req
	for i, q := range qs {
		if q.ID == "" {
			q.ID = strconv.Itoa(i + 1)
		}
		if seen[q.ID] {
			return fmt.Errorf("question: two have the id %q", q.ID)
		}
		seen[q.ID] = true
		r.Questions = append(r.Questions, q)
	}
	asked := frames.QuestionAsked{ID: r.ID, Questions: r.Questions}
	if e, err := frames.NewEvent(asked); err != nil || len(e.Data) > maxInput {
		return fmt.Errorf("question: %w: want at most %d bytes", ErrTooLarge, maxInput)
	}
	k.asked = asked
	k.card = &frames.QuestionRequested{
		SessionID: r.Session, ID: r.ID, RootSessionID: r.Root, ParentSessionID: r.Parent, Depth: r.Depth,
		TurnID: r.Turn, CallID: r.Call, Questions: r.Questions, AskedAt: frames.At(r.AskedAt),
	}
	return nil
}
