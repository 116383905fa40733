package acp

import (
	"encoding/json"
	"slices"

	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

// Facts are what an open agent says of itself. Everything but Protocol may be empty.
type Facts struct {
	Name, Title, Version string
	// Protocol is the version that it speaks.
	Protocol int
	// Capabilities is its `agentCapabilities`, as it wrote them.
	Capabilities json.RawMessage
	// Mode is the one that it was put into, Modes and Models what it offers, by id.
	Mode          string
	Modes, Models []string
	// Auth are the ways to log in, by id.
	Auth []string
	// Shared says that its process can serve several sessions.
	Shared bool
}

// Describe returns what an agent of this package said when it was opened. It is false
// for other agents and for subagents, and where the process is gone. It does not block.
func Describe(a agent.Agent) (Facts, bool) {
	c, ok := a.(*client)
	if !ok {
		return Facts{}, false
	}
	c.mu.Lock()
	l := c.link
	c.mu.Unlock()
	if l == nil || !l.alive() {
		return Facts{}, false
	}
	f := Facts{
		Name: l.caps.Agent.Name, Title: l.caps.Agent.Title, Version: l.caps.Agent.Version,
		Protocol: l.caps.Version, Capabilities: slices.Clone(l.e.said), Shared: !l.e.solo,
	}
	for _, m := range l.caps.Auth {
		f.Auth = append(f.Auth, m.ID)
	}
	l.mode.describe(&f)
	return f, true
}

// describe adds the modes and models that the agent offers.
func (g *guard) describe(f *Facts) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f.Mode = g.want
	if g.known != nil {
		for _, m := range g.known.Available {
			f.Modes = append(f.Modes, m.ID)
		}
		if f.Mode == "" {
			f.Mode = g.known.Current
		}
	}
	if g.models != nil {
		for _, m := range g.models.Available {
			f.Models = append(f.Models, m.ID)
		}
	}
	for _, o := range g.options {
		switch {
		case o.is("mode") && f.Modes == nil:
			f.Modes = o.values()
			if f.Mode == "" {
				f.Mode = acprpc.Plain(o.Current)
			}
		case o.is("model") && f.Models == nil:
			f.Models = o.values()
		}
	}
}
