package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

const (
	historyPage = 500
	// maxPreface bounds the transcript that a new session of the agent is told.
	maxPreface = 48 << 10
	// maxReplay bounds the wait for the end of an agent's replay, in quiet periods.
	maxReplay = 30
)

// sessionKind is the vendor event that says which session of the agent this is.
const sessionKind = "session"

// sessionNote is the data of that event, and what the session keeps as its state: a
// log that was trimmed has the event no more.
type sessionNote struct {
	// SessionID is the agent's own; For is the host's session that it belongs to: a
	// fork copies event and state, and must not go on with its source's session.
	SessionID string           `json:"sessionId"`
	For       frames.SessionID `json:"for"`
	Agent     string           `json:"agent,omitempty"`
	Version   string           `json:"version,omitempty"`
}

// past is what the session's log and its state say of earlier turns.
type past struct {
	begun bool       // the log was read before
	seq   frames.Seq // up to which it was read
	id    string     // the agent's session, "" if there is none
	owner frames.SessionID
	last  frames.TurnID // the turn that ended last
	told  string        // the end of the conversation as text, up to the last turn that ended
	fresh string        // what was said in a turn that runs
}

// read reads the log from where it was read before. Where its start was dropped, the
// fold of that is read instead.
func (p *past) read(ctx context.Context, s agent.Session) error {
	for s.History != nil {
		events, err := s.History(ctx, p.seq, historyPage)
		if err != nil {
			return fmt.Errorf("acp: reading the session's log: %w", err)
		}
		if len(events) == 0 { // a page may hold fewer than were asked for
			break
		}
		if events[0].Seq > p.seq+1 {
			based, err := p.rebase(ctx, s)
			if err != nil {
				return err
			}
			if based {
				continue
			}
		}
		for _, e := range events {
			p.seq = e.Seq
			p.take(e)
		}
	}
	if !p.begun { // later the log has what is newer
		p.note(s.State)
	}
	p.begun = true
	return nil
}

// rebase takes the fold of what was dropped from the log, if that goes further than
// what was read.
func (p *past) rebase(ctx context.Context, s agent.Session) (bool, error) {
	if s.Base == nil {
		return false, nil
	}
	v, seq, err := s.Base(ctx)
	if err != nil {
		return false, fmt.Errorf("acp: reading what the session's log began with: %w", err)
	}
	if v == nil || seq <= p.seq {
		return false, nil
	}
	p.seq, p.told, p.fresh = seq, "", ""
	for _, it := range v.Items {
		if it.Kind == frames.ItemUser || it.Kind == frames.ItemAssistant && !it.Partial && !it.Void {
			p.say(it.Kind == frames.ItemUser, it.Content)
		}
	}
	p.settle()
	for _, t := range v.Turns {
		if t.EndSeq > 0 {
			p.last = t.TurnID
		}
	}
	return true, nil
}

func (p *past) note(raw json.RawMessage) {
	var n sessionNote
	if json.Unmarshal(raw, &n) == nil && n.SessionID != "" {
		p.id, p.owner = n.SessionID, n.For
	}
}

// say adds what somebody said to what may be told of the conversation.
func (p *past) say(user bool, content []frames.ContentBlock) {
	who := "You"
	if user {
		who = "User"
	}
	for _, b := range content {
		if b.Type == "text" && b.Text != "" {
			p.fresh = frames.Tail(p.fresh+who+": "+b.Text+"\n\n", maxPreface)
		}
	}
}

// settle makes what was said last a part of what is told.
func (p *past) settle() {
	p.told, p.fresh = frames.Tail(p.told+p.fresh, maxPreface), ""
}

func (p *past) take(e frames.Event) {
	switch e.Type {
	case vendorType(sessionKind):
		p.note(e.Data)
	case frames.TurnEndEvent:
		p.last = e.TurnID
		p.settle()
	case frames.UserMessageEvent, frames.AssistantMessageEvent:
		var m struct {
			Content []frames.ContentBlock `json:"content"`
			Partial bool                  `json:"partial"`
		}
		if json.Unmarshal(e.Data, &m) != nil || m.Partial {
			return
		}
		p.say(e.Type == frames.UserMessageEvent, m.Content)
		if e.TurnID == "" {
			p.settle()
		}
	}
}

// enter opens the agent's session: the one that the log names, a fork of it, or a
// new one that is told what was said before.
func (c *client) enter(ctx context.Context, l *link) error {
	o, fresh, err := c.reopen(ctx, l)
	if ctx.Err() != nil {
		return fmt.Errorf("opening its session: %w", context.Cause(ctx))
	}
	forked := err == nil && fresh
	switch {
	case !fresh:
		o.ID = c.past.id
	case !forked: // whatever the error: the agent does not have it any more
		if !l.alive() {
			return err
		}
		c.preface = c.past.preface()
		if o, err = l.open(ctx, "session/new", ""); err != nil {
			return err
		}
		if o.ID == "" {
			return errors.New("the agent's answer to session/new names no session")
		}
	}
	if !fresh || forked {
		c.d.reached(o.ID, c.past.last)
	}
	l.mode.learn(o)
	if err := l.lane.do(ctx, func() {
		if l.main == nil {
			l.adopt(o.ID, forked)
		}
		l.main.history, l.main.seen = c.session.History, c.past.seq
	}); err != nil {
		return err
	}
	if !l.claim(o.ID) {
		l.unadopt(ctx, o.ID)
		return fmt.Errorf("the agent gave the session the id %q, which another one has that is open", o.ID)
	}
	if forked { // it may have told its source's log
		if err := l.unmute(ctx); err != nil {
			return err
		}
	}
	if fresh {
		c.remember(ctx, l, o.ID)
	}
	return nil
}

// remember notes which session of the agent this is: at once, or else with the next
// turn, which does not begin without it.
func (c *client) remember(ctx context.Context, l *link, id string) {
	c.past.id, c.past.owner = id, c.session.ID
	note := acprpc.Marshal(sessionNote{id, c.session.ID, frames.ValidText(l.caps.Agent.Name), frames.ValidText(l.caps.Agent.Version)})
	c.owed = agent.Raw{Type: vendorType(sessionKind), Data: note}
	_ = c.settle(ctx, c.session.Background.Emit) // the next turn tries again
}

// settle stores what is owed: the state, and the event by emit.
func (c *client) settle(ctx context.Context, emit func(context.Context, ...frames.Payload) error) error {
	if c.owed.Data == nil {
		return nil
	}
	if err := c.session.Background.Save(ctx, c.owed.Data); err != nil {
		return fmt.Errorf("acp: keeping which session of the agent this is: %w", err)
	}
	if err := emit(ctx, c.owed); err != nil {
		return err
	}
	c.owed = agent.Raw{}
	return nil
}

// reopen opens the session that the log names, or a fork of it. fresh says that what was
// opened, if err is nil, is not the session itself.
func (c *client) reopen(ctx context.Context, l *link) (o opened, fresh bool, err error) {
	err, fresh = errors.New("there is none"), true
	switch {
	case c.past.id == "":
	case c.past.owner != c.session.ID:
		if l.caps.can("fork") && c.d.endedWith(c.past.id, c.past.last) {
			o, err = l.open(ctx, "session/fork", c.past.id)
			if err == nil && o.ID == "" {
				err = errors.New("the agent's answer names no session")
			}
		}
	case l.caps.can("resume"):
		o, err = l.open(ctx, "session/resume", c.past.id)
		fresh = err != nil
	case l.caps.Capabilities.Load:
		o, err = l.load(ctx, c.past.id)
		fresh = err != nil
	}
	return o, fresh, err
}

// preface is what a new session of the agent is told first.
func (p *past) preface() string {
	if p.told == "" {
		return ""
	}
	return "This conversation began before; this is how it went, as far as it is kept. It is context, not a request.\n\n" +
		strings.TrimSpace(p.told)
}

// open calls a method that opens a session.
func (l *link) open(ctx context.Context, method, id string) (o opened, err error) {
	params := map[string]any{"cwd": l.s.Cwd, "mcpServers": l.servers()}
	if id != "" {
		params["sessionId"] = id
	}
	err = l.conn.Call(ctx, method, params, &o)
	return o, err
}

// load makes the agent read its own log, and drops what it tells of that until it
// has answered and fallen silent: some answer before they have told all.
func (l *link) load(ctx context.Context, id string) (opened, error) {
	if err := l.lane.do(ctx, func() { l.adopt(id, true) }); err != nil {
		return opened{}, err
	}
	var o opened
	err := fmt.Errorf("its session %q is open for another one", id)
	if l.claim(id) {
		o, err = l.open(ctx, "session/load", id)
	}
	if err != nil {
		l.disclaim(id)
		l.unadopt(ctx, id)
		return o, err
	}
	return o, l.unmute(ctx)
}

// unmute waits until the agent is silent, and counts what it says from then on.
func (l *link) unmute(ctx context.Context) error {
	for range maxReplay {
		silent := l.silence()
		if silent >= l.opt.Quiet {
			break
		}
		select {
		case <-time.After(l.opt.Quiet - silent):
		case <-l.conn.Done():
			return acprpc.ErrGone
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return l.lane.do(ctx, func() { l.main.unmute() })
}
