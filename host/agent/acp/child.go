package acp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

// childGrace is how long a cancelled subagent may take to end; its parent's turn
// goes on meanwhile.
const childGrace = 2 * time.Second

// child is what makes a thread a subagent's. It belongs to the lane, but for done.
type child struct {
	th       *thread
	attached bool // its session's turn runs, or ran
	lost     bool // it has no session; its parent speaks for it
	// cancellable says that the agent takes session/cancel for it.
	cancellable bool

	over   bool
	reason frames.TurnEndReason
	done   chan struct{} // closed when over
}

// childState is what an agent says of a subagent, in its three known forms.
type childState struct {
	id, title, description string
	state, stopReason      string
	capabilities           json.RawMessage
}

func readChild(u update) childState {
	s := childState{
		id: u.text("sessionId"), title: u.text("title"), description: u.text("description"),
		capabilities: u.fields["capabilities"],
	}
	for _, key := range []string{"subagentSessionId", "childSessionId"} {
		if s.id == "" {
			s.id = u.text(key)
		}
	}
	if s.title == "" {
		s.title = u.text("name")
	}
	if s.description == "" {
		s.description = u.text("task")
	}
	var st struct {
		State      string `json:"state"`
		StopReason string `json:"stopReason"`
	}
	if json.Unmarshal(u.fields["state"], &st) == nil {
		s.state, s.stopReason = st.State, st.StopReason
	} else {
		s.state = u.text("state")
	}
	return s
}

// subagent takes news of a subagent of th.
func (th *thread) subagent(u update) {
	s := readChild(u)
	if s.id == "" || th.muted {
		return
	}
	kid := th.l.threads[s.id]
	if kid == nil {
		if th.l.e.another(s.id, th.l) {
			return // a session of its own
		}
		kid = th.adoptChild(s)
	}
	if kid.child == nil {
		return // the main session; nonsense
	}
	if len(s.capabilities) > 0 {
		var c map[string]json.RawMessage
		kid.child.cancellable = json.Unmarshal(s.capabilities, &c) == nil && !acprpc.IsNull(c["cancel"])
	}
	if reason, over := childEnd(s); over {
		kid.finishChild(reason)
	}
}

// childEnd says how a subagent ended, if it has.
func childEnd(s childState) (frames.TurnEndReason, bool) {
	switch s.state {
	case "idle", "completed":
		switch s.stopReason {
		case "cancelled":
			return frames.TurnCancelled, true
		case "refusal":
			return frames.TurnRefused, true
		case "max_tokens":
			return frames.TurnMaxTokens, true
		case "max_turn_requests":
			return frames.TurnMaxSteps, true
		}
		return frames.TurnCompleted, true
	case "failed":
		return frames.TurnError, true
	case "cancelled":
		return frames.TurnCancelled, true
	case "disconnected":
		return frames.TurnInterrupted, true
	}
	return "", false
}

// adoptChild makes a thread for a subagent, and a session of the host for it. Where
// that is refused, or no turn runs, its parent speaks for it.
func (th *thread) adoptChild(s childState) *thread {
	l := th.l
	kid := newThread(l, s.id, th)
	kid.bg = th.bg
	kid.child = &child{th: kid, done: make(chan struct{})}
	l.threads[s.id] = kid
	d := th.desk()
	at, ts := d.th, d.ts
	if ts == nil {
		kid.child.lost = true
		return kid
	}
	token := rand.Text()
	l.d.mu.Lock()
	l.d.kids[token] = kid
	l.d.mu.Unlock()
	at.closeBlock()
	title, _ := frames.Preview(firstOf(s.title, s.description, "subagent"), 200)
	prompt := frames.Text(firstOf(s.description, s.title, "(the agent did not say what it asked of its subagent)"))
	c, err := ts.Spawn(l.ctx, agent.Spawn{
		Agent: l.opt.Name, Title: title, Config: acprpc.Marshal(map[string]string{subagentKey: token}),
		Prompt: []frames.ContentBlock{prompt},
	})
	if err != nil {
		l.d.mu.Lock()
		delete(l.d.kids, token)
		l.d.mu.Unlock()
		kid.child.lost = true
		at.emit(frames.ErrorReported{Code: "subagent", Message: "a subagent has no session of its own: " + err.Error()})
		return kid
	}
	ts.kids, l.kids = append(ts.kids, c), append(l.kids, kid)
	l.wg.Go(func() { l.untaken(kid, token, c) })
	return kid
}

// untaken gives up on a subagent's session whose turn ended without being shown.
func (l *link) untaken(kid *thread, token string, c agent.Child) {
	_, _ = c.Wait(l.ctx) // however it ended
	l.d.mu.Lock()
	delete(l.d.kids, token)
	l.d.mu.Unlock()
	_ = l.lane.do(l.ctx, func() {
		if kid.opening() {
			kid.child.abandon()
		}
	})
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// finishChild notes the end of a subagent's work.
func (th *thread) finishChild(reason frames.TurnEndReason) {
	if c := th.child; !c.over {
		c.over, c.reason = true, reason
		close(c.done)
	}
}

// abandon gives up on a session that does not open while too much waits for it.
func (c *child) abandon() {
	c.lost = true
	backlog := c.th.backlog
	c.th.backlog = nil
	for _, f := range backlog {
		f()
	}
}

// below reports whether th is top or a subagent below it.
func (th *thread) below(top *thread) bool {
	for ; th != nil; th = th.parent {
		if th == top {
			return true
		}
	}
	return false
}

// childAgent is the agent of a subagent's session. It has one turn: what the
// subagent does by itself.
type childAgent struct {
	thread  *thread
	session agent.Session

	mu      sync.Mutex // guards what follows; taken alone
	used    bool
	closed  bool
	busy    sync.WaitGroup
	closing chan struct{} // closed by the first Close
}

var errOneTurn = errors.New("acp: this session shows a subagent, which takes no prompts of its own; prompt its parent instead")

func (c *childAgent) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return errClosed
	case c.used:
		return errOneTurn
	}
	c.used = true
	c.busy.Add(1)
	return nil
}

// Prompt shows what the subagent does, and returns when it has ended.
func (c *childAgent) Prompt(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
	if err := c.enter(); err != nil {
		return agent.Result{}, err
	}
	defer c.busy.Done()
	th, l := c.thread, c.thread.l
	r := newRun(ctx, l, t)
	ts := r.ts
	defer ts.cancel(nil)
	if err := l.lane.do(l.ctx, func() {
		th.bg, th.child.attached = c.session.Background, true
		th.history = c.session.History
		th.begin(ts)
	}); err != nil {
		return agent.Result{}, errChildGone
	}
	err := c.wait(r)
	if err == nil && ts.ctx.Err() == nil {
		r.awaitKids()
	}
	if over, failed := r.end(th); over {
		return agent.Result{Reason: frames.TurnCancelled}, failed
	}
	if err != nil {
		return agent.Result{}, err
	}
	return agent.Result{Reason: th.child.reason}, nil
}

var errChildGone = errors.New("acp: the connection to the subagent was lost; how its work ended is not known")

// wait waits for the end of the subagent's work; where the turn is cancelled the
// subagent is told so, if it takes that.
func (c *childAgent) wait(r *run) error {
	th, l := c.thread, c.thread.l
	select {
	case <-th.child.done:
		return nil
	case <-l.ended:
		return errChildGone
	case <-c.closing:
		r.ts.cancel(errClosed)
	case <-r.ts.ctx.Done():
	}
	ids, tell := map[string]bool{}, false
	_ = l.lane.do(l.ctx, func() {
		tell = th.child.cancellable && !th.child.over
		for id, t := range l.threads {
			ids[id] = t.below(th)
		}
	})
	l.conn.GiveUpAll(func(in acprpc.Inbound) bool { return ids[acprpc.SessionOf(in)] })
	if tell {
		l.conn.Notify("session/cancel", map[string]string{"sessionId": th.id})
		after(th.child.done, childGrace)
	}
	return nil
}

// Steer is never taken.
func (c *childAgent) Steer(context.Context, agent.Prompt) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	return agent.ErrNotTaken
}

// Close ends the running turn and waits for that. The subagent's process is its
// parent's.
func (c *childAgent) Close(context.Context) error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.closing)
	}
	c.mu.Unlock()
	c.busy.Wait()
	th, l := c.thread, c.thread.l
	_ = l.lane.do(l.ctx, func() { // from now on its parent speaks for it
		th.child.attached, th.child.lost, th.bg = false, true, th.parent.bg
	})
	return nil
}
