package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
	"github.com/muxhost/muxhost/host/agent/internal/proc"
)

// Options configure a driver. Name and Command are needed.
type Options struct {
	// Name is what `session.create` calls the agent: lower case, digits, dashes.
	Name string
	// Provider and Model are shown to clients.
	Provider, Model string
	// Command is the absolute path of the program, Args its arguments.
	Command string
	Args    []string
	// Env holds NAME=value entries for the agent, beside [agent.Session.Env].
	Env []string
	// ApprovalMode is the mode in which the agent asks before it acts, by the
	// agent's own id of it. It is set after every new, loaded or resumed session.
	// Empty sets none: then the agent's own configuration must make it ask.
	ApprovalMode string
	// Modes are further modes that a session may be configured to.
	Modes []string
	// AuthMethod, if set, is what `authenticate` is called with.
	AuthMethod string
	// MCPServers are handed to every session, in the protocol's form.
	MCPServers []json.RawMessage
	// Tools, if set, are the host's own, offered to every session over HTTP where the
	// agent takes that.
	Tools agent.Tools
	// ToolsCommand is a program, an absolute path, and its arguments for agents that do
	// not: it speaks the protocol over its standard input and output, and finds the
	// server in the variables [ToolsURLEnv] and [ToolsTokenEnv]. Empty: such agents have
	// no tools of the host.
	ToolsCommand []string
	// NoSubagents does not offer to show subagents as sessions of their own.
	NoSubagents bool
	// Shared says that the agent keeps what belongs to its sessions apart, the servers of
	// tools that they were given too. It must be set where sessions are to share a process
	// although they are offered the host's tools.
	Shared bool
	// OneSession gives every session a process of its own, which then runs in the
	// session's directory. Otherwise sessions share one, as far as the agent can open
	// a session again that it lost; that one runs in the home directory.
	OneSession bool
	// Apart says that Command only starts the agent, and heeds what lies in the directory
	// in which it runs, as npx does with settings and programs: it runs in the home
	// directory, whatever the session's, and finds in [DirEnv] where the agent has to run.
	Apart bool

	// StartTimeout bounds start, login and session, default 3 min; StartNotice is after
	// how long a start is told of, default 5 s.
	StartTimeout, StartNotice time.Duration
	// IdleStop is how long a shared process is kept after its last session left,
	// default 30 s.
	IdleStop time.Duration
	// CancelGrace is how long a cancelled turn may take to end before the agent
	// is killed, default 8 s.
	CancelGrace time.Duration
	// StopWait is how long an agent has to exit after its input ended, default
	// 5 s; TermWait how long after SIGTERM, default 2 s.
	StopWait, TermWait time.Duration
	// Quiet is how long an agent must be silent after a load before what it says
	// counts, default 1 s; it is also how long text outside turns is collected.
	Quiet time.Duration
	// StallNotice is after how long a silent agent is reported, default 5 min;
	// StallTimeout after how long its turn is cancelled, default 1 h. Time in
	// which a person is asked does not count.
	StallNotice, StallTimeout time.Duration

	maxLine int // smaller in tests
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		at  *time.Duration
		def time.Duration
	}{
		{&o.StartTimeout, 3 * time.Minute},
		{&o.StartNotice, 5 * time.Second},
		{&o.IdleStop, 30 * time.Second},
		{&o.CancelGrace, 8 * time.Second},
		{&o.StopWait, 5 * time.Second},
		{&o.TermWait, 2 * time.Second},
		{&o.Quiet, time.Second},
		{&o.StallNotice, 5 * time.Minute},
		{&o.StallTimeout, time.Hour},
	} {
		if *d.at <= 0 {
			*d.at = d.def
		}
	}
	if o.maxLine == 0 {
		o.maxLine = acprpc.MaxLine
	}
	return o
}

func (o Options) check() error {
	if o.Name == "" || !filepath.IsAbs(o.Command) {
		return fmt.Errorf("acp: agent %q with command %q: want a name and the absolute path of a program", o.Name, o.Command)
	}
	return nil
}

// New returns a driver for the agent that o describes. Options that cannot work
// are reported when a session opens. Whoever is done with the driver calls its
// Close(ctx), after its sessions are closed: it ends the processes that are left, and
// waits for that.
func New(o Options) agent.Driver {
	o = o.withDefaults()
	marks := proc.NewMarks()
	return newDriver(o, func(s agent.Session) (peer, error) { return startProcess(o, marks, s) })
}

func newDriver(o Options, start func(agent.Session) (peer, error)) *driver {
	d := &driver{opt: o, start: start, kids: map[string]*thread{}, turns: map[string]frames.TurnID{}}
	d.pool.init()
	return d
}

type driver struct {
	opt   Options
	start func(agent.Session) (peer, error)
	pool  pool

	mu    sync.Mutex               // guards what follows; taken alone
	kids  map[string]*thread       // subagents whose session is being opened, by token
	turns map[string]frames.TurnID // the last turn that an agent's session saw
}

var _ agent.Closer = (*driver)(nil)

// Info describes the driver.
func (d *driver) Info() agent.Info {
	caps := []string{"questions", "images"}
	if !d.opt.NoSubagents {
		caps = append(caps, "subagents")
	}
	return agent.Info{
		Name: d.opt.Name, Kind: "acp", Provider: d.opt.Provider, Model: d.opt.Model, Capabilities: caps,
	}
}

// Open starts the agent and its session, or attaches to a subagent that a running
// agent announced. It blocks until the agent acknowledged its approval mode.
func (d *driver) Open(ctx context.Context, s agent.Session) (agent.Agent, error) {
	if err := d.opt.check(); err != nil {
		return nil, err
	}
	token, conf, err := decodeConfig(s.Config, s.Options)
	if err != nil {
		return nil, err
	}
	if token != "" {
		return d.openChild(token, s)
	}
	life, cancel := context.WithCancelCause(context.Background())
	c := &client{d: d, session: s, ctx: life, cancel: cancel, conf: conf}
	if err := c.connect(ctx); err != nil {
		cancel(errClosed)
		return nil, err
	}
	return c, nil
}

// openChild takes the subagent that token stands for.
func (d *driver) openChild(token string, s agent.Session) (agent.Agent, error) {
	d.mu.Lock()
	th := d.kids[token]
	delete(d.kids, token)
	d.mu.Unlock()
	if th == nil {
		return nil, errors.New("acp: this session showed a subagent, which is over; prompt its parent instead")
	}
	return &childAgent{thread: th, session: s, closing: make(chan struct{})}, nil
}

// reached notes the last turn that an agent's session has seen.
func (d *driver) reached(id string, turn frames.TurnID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turns[id] = turn
}

// endedWith reports whether turn is known to be the last that an agent's session saw.
func (d *driver) endedWith(id string, turn frames.TurnID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	last, known := d.turns[id]
	return known && last == turn
}

var errClosed = errors.New("acp: the agent was closed")

// vendor is the prefix of event types that are the protocol's own.
const vendor = "acp.agentclientprotocol.com/"

func vendorType(kind string) frames.EventType {
	if len(kind) > 64 || kind == "" {
		kind = "update"
	}
	return frames.EventType(vendor + kind)
}
