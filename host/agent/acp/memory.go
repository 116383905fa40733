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

// sessionNote is the data of that event.
type sessionNote struct {
	// SessionID is the agent's own; For is the host's session that it belongs to: a
	// fork copies the event, and must not go on with its source's session.
	SessionID string           `json:"sessionId"`
	For       frames.SessionID `json:"for"`
	Agent     string           `json:"agent,omitempty"`
	Version   string           `json:"version,omitempty"`
}

// past is what the session's log says of earlier turns.
type past struct {
	seq   frames.Seq // up to which the log was read
	id    string     // the agent's session, "" if there is none
	owner frames.SessionID
	began int    // turns, with one that runs
	ended int    // turns
	told  string // the end of the conversation as text, up to the last turn that ended
	fresh string // what was said in a turn that runs
}

// read reads the log from where it was read before.
func (p *past) read(ctx context.Context, s agent.Session) error {
	if s.History == nil {
		return nil
	}
	for {
		events, err := s.History(ctx, p.seq, historyPage)
		if err != nil {
			return fmt.Errorf("acp: reading the session's log: %w", err)
		}
		for _, e := range events {
			p.seq = e.Seq
			p.take(e)
		}
		if len(events) == 0 { // a page may hold fewer than were asked for
			return nil
		}
	}
}

func (p *past) take(e frames.Event) {
	switch e.Type {
	case vendorType(sessionKind):
		var n sessionNote
		if json.Unmarshal(e.Data, &n) == nil && n.SessionID != "" {
			p.id, p.owner = n.SessionID, n.For
		}
	case frames.TurnStartEvent:
		p.began++
	case frames.TurnEndEvent:
		p.ended++
		p.told, p.fresh = frames.Tail(p.told+p.fresh, maxPreface), ""
	case frames.UserMessageEvent, frames.AssistantMessageEvent:
		var m struct {
			Content []frames.ContentBlock `json:"content"`
			Partial bool                  `json:"partial"`
		}
		if json.Unmarshal(e.Data, &m) != nil || m.Partial {
			return
		}
		who := "User"
		if e.Type == frames.AssistantMessageEvent {
			who = "You"
		}
		for _, b := range m.Content {
			if b.Type == "text" && b.Text != "" {
				p.fresh = frames.Tail(p.fresh+who+": "+b.Text+"\n\n", maxPreface)
			}
		}
		if e.TurnID == "" {
			p.told, p.fresh = frames.Tail(p.told+p.fresh, maxPreface), ""
		}
	}
}

// enter opens the agent's session: the one that the log names, a fork of it, or a
// new one that is told what was said before.
func (c *client) enter(ctx context.Context, l *link) error {
	var o opened
	err := errors.New("there is none")
	fresh := true
	switch {
	case c.past.id == "":
	case c.past.owner != c.session.ID:
		if l.caps.can("fork") && c.d.hadTurns(c.past.id, c.past.ended) {
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
	l.mode.learn(o)
	if err := l.lane.do(ctx, func() {
		if l.main == nil {
			l.adopt(o.ID, forked)
		}
	}); err != nil {
		return err
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
	note := sessionNote{id, c.session.ID, frames.ValidText(l.caps.Agent.Name), frames.ValidText(l.caps.Agent.Version)}
	c.owed = agent.Raw{Type: vendorType(sessionKind), Data: acprpc.Marshal(note)}
	if c.session.Background.Emit(ctx, c.owed) == nil {
		c.owed = agent.Raw{}
	}
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
	servers := l.opt.MCPServers
	if servers == nil {
		servers = []json.RawMessage{}
	}
	params := map[string]any{"cwd": l.s.Cwd, "mcpServers": servers}
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
	o, err := l.open(ctx, "session/load", id)
	if err != nil {
		_ = l.lane.do(ctx, func() {
			delete(l.threads, id)
			l.main = nil
		})
		return o, err
	}
	return o, l.unmute(ctx)
}

// unmute waits until the agent is silent, and counts what it says from then on.
func (l *link) unmute(ctx context.Context) error {
	for range maxReplay {
		silent := time.Since(l.conn.Heard())
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
