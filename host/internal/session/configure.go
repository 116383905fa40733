package session

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime/debug"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/pending"
)

// Configure changes what a session was created with. Options that the running
// agent refuses change nothing.
func (m *Manager) Configure(ctx context.Context, c ConfigureArgs, placed func(frames.Session)) error {
	title := ""
	if c.Title != nil {
		title = *c.Title
	}
	if err := checkSettings(c.Policy, title, c.Labels); err != nil {
		return err
	}
	if err := checkBudget(c.Budget); err != nil {
		return err
	}
	own := c.Policy
	if own != nil {
		s, ok := m.Get(c.Session)
		if !ok {
			return ErrNoSession
		}
		own = m.given(c.Session, own)
		var err error
		if c.Policy, err = m.withRules(own, s.Agent, s.Cwd); err != nil {
			return err
		}
	}
	if err := m.applyOptions(ctx, c); err != nil {
		return err
	}
	deny := c.Policy != nil && c.Policy.Mode == pending.ModeDeny
	err := m.in(ctx, c.Session, func(a *actor) error { return a.configure(c, own, placed) })
	if err == nil && deny {
		m.table.ModeDeny(m.io, c.Session)
	}
	return err
}

// applyOptions offers options to the agent, where one is open.
func (m *Manager) applyOptions(ctx context.Context, c ConfigureArgs) error {
	if c.Options == nil {
		return nil
	}
	if err := frames.CheckJSON(c.Options, frames.JSONLimits{Bytes: maxConfig}); err != nil || c.Options[0] != '{' {
		return &ParamError{"options", fmt.Sprintf("want a JSON object of at most %d bytes", maxConfig)}
	}
	var to agent.Configurable
	var name string
	if err := m.in(ctx, c.Session, func(a *actor) error {
		to, _ = a.ag.(agent.Configurable)
		name = a.rec.Agent
		return nil
	}); err != nil || to == nil {
		return err
	}
	if err := m.offerOptions(ctx, to, c.Options); err != nil {
		return &RefusedError{name, err}
	}
	return nil
}

// offerOptions asks an agent to take options. A panic there is a refusal.
func (m *Manager) offerOptions(ctx context.Context, to agent.Configurable, options json.RawMessage) (err error) {
	defer func() {
		if r := recover(); r != nil {
			m.log.Error("an agent crashed while it was configured", "stack", string(debug.Stack()))
			err = fmt.Errorf("the agent crashed: %v", r)
		}
	}()
	return to.Configure(ctx, options)
}

func (a *actor) configure(c ConfigureArgs, own *frames.Policy, placed func(frames.Session)) error {
	s := &commit{by: c.By, next: a.rec.clone(), status: true, summary: true}
	if c.Title != nil {
		s.next.Title, s.next.Titled, s.next.Named = frames.ValidText(*c.Title), false, true
		s.add(frames.SessionRenamed{Title: s.next.Title})
	}
	if c.Policy != nil {
		s.next.Policy, s.next.Own = c.Policy, ownOf(own, c.Policy)
	}
	if c.Budget != nil {
		s.next.Budget, s.next.Warned = c.Budget, nil
	}
	if c.Labels != nil {
		s.next.Labels = c.Labels
	}
	if c.Options != nil {
		merged, err := mergeObjects(a.rec.Options, c.Options)
		if err != nil {
			return err
		}
		s.next.Options = merged
	}
	if c.Policy != nil || c.Budget != nil || c.Labels != nil || c.Options != nil {
		s.add(frames.SessionConfigured{Policy: c.Policy, Budget: c.Budget, Labels: c.Labels, Options: c.Options})
	}
	s.placed = func() {
		sum, _ := a.m.Get(a.id)
		_ = place(placed, sum, nil)
	}
	if len(s.events) == 0 && s.err == nil {
		s.placed()
		return nil
	}
	return a.commit(s)
}

// mergeObjects puts the members of b over those of a.
func mergeObjects(a, b json.RawMessage) (json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	for _, o := range []json.RawMessage{a, b} {
		one := map[string]json.RawMessage{}
		if len(o) == 0 {
			continue
		}
		if err := json.Unmarshal(o, &one); err != nil {
			return nil, &ParamError{"options", fmt.Sprintf("want a JSON object: %v", err)}
		}
		maps.Copy(all, one)
	}
	return json.Marshal(all)
}
