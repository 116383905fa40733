//go:build realagents && linux

package realagents_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/agenttest/stubllm"
	"github.com/muxhost/muxhost/rpc"
)

// play is one scene with one agent: a session that both clients follow.
type play struct {
	*rig

	ctx context.Context //nolint:containedctx // ends with the scene
	cwd string
	sid frames.SessionID
	// crashes says that the host is expected to report failures of the agent.
	crashes bool
}

// open creates the session.
func (r *rig) open(ctx context.Context, scene string, config json.RawMessage) (*play, error) {
	p := &play{rig: r, ctx: ctx, cwd: filepath.Join(r.dir, "work", scene)}
	if err := os.MkdirAll(p.cwd, 0o700); err != nil {
		return nil, err
	}
	s, err := r.desk.Create(ctx, rpc.CreateParams{Agent: r.agent.name, Cwd: p.cwd, Title: scene, Config: config})
	if err != nil {
		return nil, err
	}
	p.sid = s.SessionID
	return p, errors.Join(r.desk.follow(ctx, p.sid), r.phone.follow(ctx, p.sid))
}

// watchers are the two clients.
func (p *play) watchers() []*watcher { return []*watcher{p.desk, p.phone} }

// both waits until both clients see what done says; it is called under a client's lock.
func (p *play) both(what string, done func(*watcher) bool) error {
	for _, w := range p.watchers() {
		if err := w.until(p.ctx, what, func() bool { return done(w) }); err != nil {
			return err
		}
	}
	return nil
}

// prompt begins a turn in which the model plays the steps.
func (p *play) prompt(say string, steps ...stubllm.Step) (frames.TurnID, error) {
	got, err := p.desk.Prompt(p.ctx, rpc.PromptParams{
		SessionID: p.sid, Content: []frames.ContentBlock{frames.Text(say + " " + stubllm.Script(steps...))},
	})
	return got.TurnID, err
}

// ended waits for the end of a turn.
func (p *play) ended(turn frames.TurnID) (t frames.Turn, err error) {
	err = p.both("the end of the turn", func(w *watcher) bool {
		at := w.turn(p.sid, turn)
		if at == nil || at.Reason == "" {
			return false
		}
		t = *at
		return true
	})
	return t, err
}

// completes plays the steps, and fails unless the turn completes and says text.
func (p *play) completes(say, text string, steps ...stubllm.Step) error {
	turn, err := p.prompt(say, steps...)
	if err != nil {
		return err
	}
	return p.completed(turn, text)
}

// completed waits for the turn, and fails unless it completes and ends with text.
func (p *play) completed(turn frames.TurnID, text string) error {
	if err := p.reason(turn, frames.TurnCompleted); err != nil {
		return err
	}
	_, v, err := p.desk.durable(p.sid)
	if err != nil {
		return err
	}
	if got := said(v, turn); got != text {
		return fmt.Errorf("the turn's last message is %q, want %q", got, text)
	}
	return nil
}

// reason waits for the turn, and fails unless it ends for the reason.
func (p *play) reason(turn frames.TurnID, want frames.TurnEndReason) error {
	t, err := p.ended(turn)
	if err == nil && t.Reason != want {
		err = fmt.Errorf("the turn ended %s (%s), want %s", t.Reason, t.Message, want)
	}
	return err
}

// said is the last message of a turn.
func said(v *frames.View, turn frames.TurnID) string {
	var text string
	for _, it := range v.Items {
		if it.Kind == frames.ItemAssistant && it.TurnID == turn && !it.Void {
			text = ""
			for _, b := range it.Content {
				text += b.Text
			}
		}
	}
	return text
}

// asked waits until both clients are shown an approval of the session's tree that
// is not one of seen; it fails once the turn has ended.
func (p *play) asked(turn frames.TurnID, seen ...frames.RequestID) (a *frames.ApprovalRequested, err error) {
	err = p.both("an approval", func(w *watcher) bool {
		if t := w.turn(p.sid, turn); t != nil && t.Reason != "" {
			return true
		}
		for _, r := range w.approvals {
			if r.RootSessionID == p.sid && !slices.Contains(seen, r.ID) {
				a = r
				return true
			}
		}
		return false
	})
	if err == nil && a == nil {
		err = fmt.Errorf("the turn ended, and nobody was asked; its last call came to: %q", p.lastResult())
	}
	return a, err
}

// lastResult is what the last call of the session came to.
func (p *play) lastResult() (text string) {
	_, v, err := p.desk.durable(p.sid)
	if err != nil {
		return err.Error()
	}
	for _, it := range v.Items {
		if it.Tool != nil {
			text = ""
			for _, b := range it.Tool.Content {
				text += b.Text
			}
		}
	}
	return text
}

// answer answers an approval from the phone; both clients must be told.
func (p *play) answer(a *frames.ApprovalRequested, outcome frames.Outcome) error {
	if err := p.phone.Respond(p.ctx, rpc.ApprovalParams{SessionID: a.SessionID, ID: a.ID, Outcome: outcome, InputHash: &a.InputHash}); err != nil {
		return err
	}
	return p.settled(a, outcome)
}

// settled waits until both clients are told the outcome of an approval.
func (p *play) settled(a *frames.ApprovalRequested, outcome frames.Outcome) error {
	return p.both("the outcome "+string(outcome), func(w *watcher) bool {
		r := w.resolved[a.ID]
		return r != nil && r.Outcome == outcome
	})
}

// cancel cancels the session from the phone.
func (p *play) cancel() error {
	ok, err := p.phone.Cancel(p.ctx, rpc.CancelParams{SessionID: p.sid})
	if err == nil && !ok {
		err = errors.New("there was nothing to cancel")
	}
	return err
}

// forget drops what the clients noted of failures, before the next scene.
func (p *play) forget() {
	for _, w := range p.watchers() {
		w.mu.Lock()
		w.failures = nil
		w.mu.Unlock()
	}
}

// path is a file in the session's directory.
func (p *play) path(name string) string { return filepath.Join(p.cwd, name) }

// absent fails where a file exists.
func (p *play) absent(name string) error {
	if _, err := os.Lstat(p.path(name)); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s exists, though nothing that writes it was allowed (%v)", name, err)
	}
	return nil
}

// holds fails unless a file has a text.
func (p *play) holds(name, want string) error {
	got, err := os.ReadFile(p.path(name))
	if err == nil && string(got) != want {
		err = fmt.Errorf("%s holds %q, want %q", name, got, want)
	}
	return err
}

// account is what happened in the session, for whoever looks into a failure.
func (p *play) account() string {
	_, v, err := p.log(p.sid)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, t := range v.Turns {
		fmt.Fprintf(&b, "turn %s: %s %s\n", t.TurnID, t.Reason, t.Message)
	}
	for _, it := range v.Items {
		line, _ := json.Marshal(it)
		fmt.Fprintf(&b, "  %s\n", line)
	}
	return b.String()
}

// agreeTime bounds how long both clients may take to agree once a scene is over.
const agreeTime = 20 * time.Second

// agree is what must hold at the end of every scene: nothing is open, and both
// clients, the host's own fold and a fold of the log are the same.
func (p *play) agree() error {
	deadline := time.Now().Add(agreeTime)
	for {
		err := p.agreeNow()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-p.ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (p *play) agreeNow() error {
	for _, w := range p.watchers() {
		w.mu.Lock()
		err := w.err
		for _, f := range w.failures {
			if !p.crashes {
				err = errors.Join(err, fmt.Errorf("host/agent-error: %s", f.Message))
			}
		}
		w.mu.Unlock()
		if err != nil {
			return err
		}
	}
	if open, err := p.desk.Pending(p.ctx, p.sid); err != nil || len(open) > 0 {
		return fmt.Errorf("%d requests are still pending, %w", len(open), err)
	}
	p.desk.mu.Lock()
	tree := append([]frames.SessionID{p.sid}, p.desk.below[p.sid]...)
	p.desk.mu.Unlock()
	for _, sid := range tree {
		if err := p.agreeOn(sid); err != nil {
			return fmt.Errorf("session %s: %w", sid, err)
		}
	}
	return nil
}

// agreeOn compares what is known of one session.
func (p *play) agreeOn(sid frames.SessionID) error {
	log, v, err := p.log(sid)
	if err != nil {
		return err
	}
	if err := closed(v); err != nil {
		return err
	}
	got, err := p.desk.Get(p.ctx, rpc.GetParams{SessionID: sid, View: true})
	if err != nil {
		return err
	}
	own := frames.NewView()
	if err := json.Unmarshal(got.View, own); err != nil {
		return err
	}
	hosts, err := json.Marshal(own.Durable())
	if err != nil {
		return err
	}
	if err := equal(log, hosts); err != nil {
		return fmt.Errorf("the log and the host: %w", err)
	}
	for _, w := range p.watchers() {
		seen, _, err := w.durable(sid)
		if err == nil {
			err = equal(log, seen)
		}
		if err != nil {
			return fmt.Errorf("the log and the %s: %w", w.name, err)
		}
	}
	return nil
}

// log folds a session's log anew.
func (p *play) log(sid frames.SessionID) ([]byte, *frames.View, error) {
	v := frames.NewView()
	for after := frames.Seq(0); ; after = v.Seq {
		page, err := p.phone.History(p.ctx, rpc.HistoryParams{SessionID: sid, After: &after})
		if err != nil {
			return nil, nil, err
		}
		for _, raw := range page.Events {
			e, err := frames.DecodeEvent(raw)
			if err == nil {
				err = v.ApplyEvent(e)
			}
			if err != nil {
				return nil, nil, err
			}
		}
		if !page.More {
			break
		}
	}
	b, err := json.Marshal(v.Durable())
	return b, v, err
}

// closed fails where something in the view is still open.
func closed(v *frames.View) error {
	if v.Status != frames.StateIdle || v.TurnID != "" || len(v.Pending()) > 0 || len(v.Queue()) > 0 {
		return fmt.Errorf("it is %s in turn %q with %d pending and %d queued", v.Status, v.TurnID, len(v.Pending()), len(v.Queue()))
	}
	for _, it := range v.Items {
		if it.Tool != nil && it.Tool.Running {
			return fmt.Errorf("the tool call %s (%s) never ended", it.Tool.CallID, it.Tool.Title)
		}
	}
	for _, c := range v.Children() {
		if c.Status == "" {
			return fmt.Errorf("the child %s never ended", c.SessionID)
		}
	}
	for _, task := range v.Tasks() {
		if task.Status == "" {
			return fmt.Errorf("the task %s never ended", task.Label)
		}
	}
	return nil
}
