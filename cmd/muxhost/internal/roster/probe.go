package roster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/config"
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/llm"
)

// Report is what an agent showed when it was started.
type Report struct {
	// Agent and Version are what it calls itself, "" if it does not say.
	Agent, Version string
	// Mode is the approval mode that it acknowledged, "" if none was set.
	Mode string
	// Offers are what it can do beyond the least, by the protocol's words: "load",
	// "resume", "image", "mcp http", …
	Offers []string
	// Modes and Models are those that sessions may be put into.
	Modes, Models []string
	// Shared says that one process serves several sessions in a host, which may offer
	// the agent its tools.
	Shared bool
	// Notes are what it said beside that, one fact each.
	Notes []string
	Took  time.Duration
}

// Probe starts the agent with driver d, which is e's, opens one session in cwd, and
// closes it again: no prompt is sent. env is what its processes see beside what e
// gives them. It blocks as long as the agent takes to start; an error says what failed
// and what helps. What it learned is in the report even then. Closing d is the
// caller's.
func Probe(ctx context.Context, e Entry, d agent.Driver, env []string, cwd string) (r Report, err error) {
	start := time.Now()
	defer func() { r.Took = time.Since(start) }()
	switch {
	case !e.Offered():
		return r, fmt.Errorf("%s is %s: %s", e.Name, e.State, e.Note)
	case e.Kind == config.KindLLM:
		r.Models, err = llm.ListModels(ctx, e.LLM)
		if err == nil && !slices.Contains(r.Models, e.Model) {
			err = fmt.Errorf("the endpoint has no model %q; it has %s", e.Model, Some(r.Models))
		}
		return r, err
	}
	var b listener
	ag, err := d.Open(ctx, agent.Session{ID: "probe", Cwd: cwd, Env: env, Background: &b})
	r.Agent, r.Version, r.Notes = b.told()
	if err != nil {
		return r, explain(e, err)
	}
	r.Mode = e.Mode
	if f, ok := acp.Describe(ag); ok {
		r.Agent, r.Version = cmp.Or(f.Title, f.Name), f.Version
		r.Offers, r.Modes, r.Models = offers(f.Capabilities), f.Modes, f.Models
		r.Shared = f.Shared && (e.ACP.Shared || !e.Tools) // d may be without tools
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), agent.CloseTimeout)
	defer cancel()
	if err := ag.Close(stop); err != nil {
		return r, fmt.Errorf("it started, and did not end: %w", err)
	}
	return r, nil
}

// offers names what an agent's capabilities say that it can do.
func offers(capabilities json.RawMessage) (out []string) {
	var c struct {
		Load    bool           `json:"loadSession"`
		Session map[string]any `json:"sessionCapabilities"`
		Prompt  map[string]any `json:"promptCapabilities"`
		MCP     map[string]any `json:"mcpCapabilities"`
	}
	if json.Unmarshal(capabilities, &c) != nil {
		return nil
	}
	if c.Load {
		out = append(out, "load")
	}
	for _, group := range []struct {
		prefix string
		m      map[string]any
	}{{"", c.Session}, {"", c.Prompt}, {"mcp ", c.MCP}} {
		for _, name := range slices.Sorted(maps.Keys(group.m)) {
			if v := group.m[name]; v != nil && v != false && name != "_meta" {
				out = append(out, group.prefix+name)
			}
		}
	}
	return out
}

// Some lists the first of many words.
func Some(words []string) string {
	const most = 20
	if len(words) > most {
		return strings.Join(words[:most], ", ") + fmt.Sprintf(" and %d more", len(words)-most)
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// explain adds what helps to the error of a start.
func explain(e Entry, err error) error {
	help := ""
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		help = "a first start through npx downloads; give it more time with start-timeout in config.toml"
	case strings.Contains(err.Error(), "has no mode"):
		help = "this version may not have it: name another with approval-mode in config.toml, one in which it asks before it acts"
	case e.State == ByNpx:
		help = "try the command by hand: " + strings.Join(e.Command, " ")
	default:
		help = "try the command by hand: " + strings.Join(e.Command, " ") + "; its login and its variables (see pass-env) are the usual reasons"
	}
	return fmt.Errorf("%w\n%s", err, help)
}

// listener hears what an agent says outside of turns. Nobody is there to answer.
type listener struct {
	mu    sync.Mutex // guards what follows
	state json.RawMessage
	notes []string
}

var errNobody = errors.New("nobody is asked while an agent is only tried")

// Emit takes events; none is kept.
func (l *listener) Emit(context.Context, ...frames.Payload) error { return nil }

// Failed keeps the words.
func (l *listener) Failed(message string) {
	const most = 32
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.notes) < most {
		l.notes = append(l.notes, message)
	}
}

// Ask rejects.
func (l *listener) Ask(context.Context, agent.Approval) (agent.Decision, error) {
	return agent.Decision{Outcome: frames.Rejected, Cause: frames.CausePolicy}, nil
}

// Question is not answered.
func (l *listener) Question(context.Context, ...frames.Question) (agent.Answers, error) {
	return agent.Answers{}, errNobody
}

// Save keeps the state, which says what the agent is.
func (l *listener) Save(_ context.Context, state json.RawMessage) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = state
	return nil
}

// Title is not kept.
func (l *listener) Title(context.Context, string) error { return nil }

// told returns what was heard: name, version, and the rest.
func (l *listener) told() (name, version string, notes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var n struct{ Agent, Version string }
	if json.Unmarshal(l.state, &n) != nil {
		n.Agent, n.Version = "", ""
	}
	return n.Agent, n.Version, slices.Clone(l.notes)
}
