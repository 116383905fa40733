package acp

import (
	"context"
	"encoding/json"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

// toolsName is what agents call the server of the host's tools.
const toolsName = "muxhost"

// Names of the variables in which a bridge finds the server of the host's tools.
const (
	ToolsURLEnv   = "MUXHOST_MCP_URL"
	ToolsTokenEnv = "MUXHOST_MCP_TOKEN" //nolint:gosec // a name
)

// offers reports whether there is a way from the agent to the host's tools.
func (e *engine) offers() bool {
	return e.opt.Tools != nil && (e.caps.Capabilities.MCP.HTTP || len(e.opt.ToolsCommand) > 0)
}

// offerTools opens a door to the host's tools for this conversation. An agent without them can work all the same.
func (l *link) offerTools() {
	if !l.e.offers() {
		return
	}
	offer, err := l.opt.Tools.Offer(l.s)
	if err != nil {
		l.s.Background.Failed(l.opt.Name + " works without the host's tools: " + err.Error())
		return
	}
	l.offer = offer
}

// closeTools shuts the door.
func (l *link) closeTools() {
	if l.offer != nil {
		l.offer.Close()
	}
}

// servers are the servers of tools that the agent's session is given, in the
// protocol's form.
func (l *link) servers() []json.RawMessage {
	servers := append([]json.RawMessage{}, l.opt.MCPServers...) // never null
	type pair struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	switch {
	case l.offer == nil:
		return servers
	case l.caps.Capabilities.MCP.HTTP:
		return append(servers, acprpc.Marshal(map[string]any{
			"type": "http", "name": toolsName, "url": l.offer.URL(),
			"headers": []pair{{"Authorization", "Bearer " + l.offer.Token()}},
		}))
	}
	return append(servers, acprpc.Marshal(map[string]any{
		"name": toolsName, "command": l.opt.ToolsCommand[0], "args": append([]string{}, l.opt.ToolsCommand[1:]...),
		"env": []pair{{ToolsURLEnv, l.offer.URL()}, {ToolsTokenEnv, l.offer.Token()}},
	}))
}

// beginTools lets the agent call the host's tools in t until end is called.
func (l *link) beginTools(t agent.Turn) (end func()) {
	if l.offer == nil {
		return func() {}
	}
	return l.offer.Begin(toolTurn{t, l})
}

// toolTurn is a turn in which the host's tools are called. While one of them waits the
// agent is silent because it has to be.
type toolTurn struct {
	agent.Turn
	l *link
}

// Ask implements [agent.Turn].
func (t toolTurn) Ask(ctx context.Context, a agent.Approval) (agent.Decision, error) {
	defer t.l.await()()
	return t.Turn.Ask(ctx, a)
}

// Question implements [agent.Turn].
func (t toolTurn) Question(ctx context.Context, q ...frames.Question) (agent.Answers, error) {
	defer t.l.await()()
	return t.Turn.Question(ctx, q...)
}

// Spawn implements [agent.Turn].
func (t toolTurn) Spawn(ctx context.Context, s agent.Spawn) (agent.Child, error) {
	c, err := t.Turn.Spawn(ctx, s)
	if wait := c.Wait; err == nil {
		c.Wait = func(ctx context.Context) (agent.ChildResult, error) {
			defer t.l.await()()
			return wait(ctx)
		}
	}
	return c, err
}

// await counts as if the agent went on speaking, until done is called.
func (l *link) await() (done func()) {
	l.awaited.Add(1)
	return func() { l.hear(); l.awaited.Add(-1) }
}
