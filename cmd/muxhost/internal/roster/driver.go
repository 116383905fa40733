package roster

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/config"
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/demo"
	"github.com/muxhost/muxhost/host/agent/llm"
	"github.com/muxhost/muxhost/host/agent/shell"
)

// Deps are what drivers need of the host; zero fields leave out what they are for.
type Deps struct {
	// Tools are the host's tools. Bridge is a program, an absolute path and its
	// arguments, by which agents reach them that start tools as processes only.
	Tools  agent.Tools
	Bridge []string
}

// Driver returns the driver of an agent that is offered. It starts nothing. It may
// be an [agent.Closer].
func (e Entry) Driver(d Deps) agent.Driver {
	switch e.Kind {
	case config.KindShell:
		return shell.New(shell.Options{})
	case config.KindDemo:
		return demo.New(demo.Options{Speed: 1})
	case config.KindLLM:
		return llm.New(e.LLM)
	}
	o := e.ACP
	if e.Tools {
		o.Tools, o.ToolsCommand = d.Tools, d.Bridge
	}
	if e.Model != "" {
		return preset{acp.New(o), e.Model}
	}
	return acp.New(o)
}

// preset is a driver whose sessions begin with a model.
type preset struct {
	agent.Driver
	model string
}

// Open opens an agent with the model, unless the session names one, or shows a
// subagent of an agent that runs.
func (p preset) Open(ctx context.Context, s agent.Session) (agent.Agent, error) {
	conf := map[string]json.RawMessage{}
	if len(s.Config) > 0 {
		if err := json.Unmarshal(s.Config, &conf); err != nil {
			return p.Driver.Open(ctx, s) // which says what is wrong
		}
	}
	_, named := conf["model"]
	_, shown := conf["acpSubagent"]
	if !named && !shown {
		if conf == nil { // it was null
			conf = map[string]json.RawMessage{}
		}
		b, err := json.Marshal(p.model)
		if err == nil {
			conf["model"] = b
			s.Config, err = json.Marshal(conf)
		}
		if err != nil {
			return nil, fmt.Errorf("the model of the configuration: %w", err)
		}
	}
	return p.Driver.Open(ctx, s)
}

// Close implements [agent.Closer].
func (p preset) Close(ctx context.Context) error {
	if c, ok := p.Driver.(agent.Closer); ok {
		return c.Close(ctx)
	}
	return nil
}

// Rules returns what the person at the host and the project files add to the policy of
// a session with that agent in that directory, which has no symbolic links. Its error
// refuses the session: a project file that cannot be used, or that allows other agents
// only. home bounds the search for project files.
func Rules(entries []Entry, home string) func(name, cwd string) (frames.Policy, error) {
	of := map[string][]frames.Rule{}
	for _, e := range entries {
		of[e.Name] = e.Rules
	}
	return func(name, cwd string) (frames.Policy, error) {
		p, err := config.ReadProject(cwd, home)
		if err != nil {
			return frames.Policy{}, err
		}
		if err := p.Allows(name); err != nil {
			return frames.Policy{}, err
		}
		out := p.Policy()
		out.Rules = append(out.Rules, of[name]...)
		return out, nil
	}
}
