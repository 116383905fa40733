package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/internal/proc"
)

// Options describe one endpoint and how it is used. BaseURL and Model are needed;
// zero values of the rest work.
type Options struct {
	// Name is the driver's, default "llm".
	Name string
	// Provider names who runs the endpoint, for people.
	Provider string
	// BaseURL is what stands before /chat/completions, such as
	// http://localhost:11434/v1.
	BaseURL string
	// Model is the default; Models are those that a session may choose, default
	// any.
	Model  string
	Models []string
	// APIKey returns the key that is sent as a bearer token; nil or "": none. It
	// is called for every request and must not block.
	APIKey func() string
	// Header is sent with every request. Its values are treated as secrets.
	Header http.Header
	// ContextWindow is the model's, in tokens; 0 means unknown: what is old is
	// summarised only after the server said that a prompt is too long.
	ContextWindow int64
	// MaxTokens bounds an answer; 0 leaves it to the server.
	MaxTokens   int64
	Temperature *float64
	// ReasoningEffort, such as "low", is passed on to models that know it.
	ReasoningEffort string
	// MaxSteps bounds the model requests of a turn, default 100.
	MaxSteps int
	// MaxAttempts bounds the tries of one request, default 5. The pause after the
	// first is Backoff, default 1 s, and doubles up to a minute.
	MaxAttempts int
	Backoff     time.Duration
	// StallTimeout is how long a server may send nothing, default 5 min.
	StallTimeout time.Duration
	// System replaces the system prompt.
	System string
	// Images says that the model takes images.
	Images bool
	// MaxImages bounds the images of one request, in bytes as they are sent (base64),
	// default 24 MiB: older ones are left out.
	MaxImages int
	// Prices are those of models by name; without one no cost is told.
	Prices map[string]Price
	// MaxToolText bounds what the model sees of one tool result, in bytes, default
	// 24 KiB and at most a quarter of the window.
	MaxToolText int
	// HTTPClient is default one without a timeout.
	HTTPClient *http.Client
	// Shell runs commands, default /bin/sh; TempDir, MaxOutput and Grace are those
	// of package shell. ShellTimeout ends a command, default 10 min.
	Shell        string
	TempDir      string
	MaxOutput    int64
	Grace        time.Duration
	ShellTimeout time.Duration
}

func (o Options) withDefaults() Options {
	def := func(p *string, s string) {
		if *p == "" {
			*p = s
		}
	}
	wait := func(p *time.Duration, d time.Duration) {
		if *p <= 0 {
			*p = d
		}
	}
	count := func(p *int, n int) {
		if *p <= 0 {
			*p = n
		}
	}
	def(&o.Name, "llm")
	def(&o.Shell, "/bin/sh")
	count(&o.MaxSteps, 100)
	count(&o.MaxAttempts, 5)
	count(&o.MaxToolText, 24<<10)
	count(&o.MaxImages, 24<<20)
	wait(&o.Backoff, time.Second)
	wait(&o.StallTimeout, 5*time.Minute)
	wait(&o.Grace, 2*time.Second)
	wait(&o.ShellTimeout, 10*time.Minute)
	if o.MaxOutput <= 0 {
		o.MaxOutput = 256 << 20
	}
	if len(o.Models) > 0 && o.Model != "" && !slices.Contains(o.Models, o.Model) {
		o.Models = append([]string{o.Model}, o.Models...)
	}
	if o.ContextWindow > 0 { // a token is about four bytes
		o.MaxToolText = max(min(o.MaxToolText, int(o.ContextWindow)), 1<<10)
	}
	return o
}

// pictures is how many bytes of images the model takes in one request.
func (o Options) pictures() int {
	if !o.Images {
		return 0
	}
	return o.MaxImages
}

// New returns the driver. Options that do not hold together are reported by Open,
// to the person who creates a session.
func New(o Options) agent.Driver {
	o = o.withDefaults()
	d := &driver{opt: o, marks: proc.NewMarks(), rates: map[string]*rates{}}
	d.client, d.err = newClient(o)
	if o.Model == "" {
		d.err = errors.Join(d.err, errors.New("llm: no model is named; give this agent one"))
	}
	for name, p := range o.Prices {
		r, err := p.rates()
		if err != nil {
			d.err = errors.Join(d.err, fmt.Errorf("llm: model %q: %w", name, err))
		}
		d.rates[name] = r
	}
	return d
}

type driver struct {
	opt    Options
	client *client
	marks  *proc.Marks
	rates  map[string]*rates
	err    error
}

// Info describes the driver.
func (d *driver) Info() agent.Info {
	i := agent.Info{
		Name: d.opt.Name, Kind: "llm", Provider: d.opt.Provider, Model: d.opt.Model, Models: slices.Clone(d.opt.Models),
		Capabilities: []string{"steer", "questions", "subagents"},
	}
	if d.opt.Images {
		i.Capabilities = append(i.Capabilities, "images")
	}
	return i
}

// Config is the config of a session, and the shape of its options.
type Config struct {
	// Model is one of the driver's.
	Model string `json:"model,omitempty"`
	// System is put after the system prompt.
	System string `json:"system,omitempty"`
	// MaxSteps lowers the driver's bound.
	MaxSteps int `json:"maxSteps,omitempty"`
	// Temperature replaces the driver's.
	Temperature *float64 `json:"temperature,omitempty"`
	// ReasoningEffort replaces the driver's.
	ReasoningEffort string `json:"reasoningEffort,omitempty"`
	// Tools names the tools that the model has, default all.
	Tools []string `json:"tools,omitzero"`
}

var configKeys = []string{"model", "system", "maxSteps", "temperature", "reasoningEffort", "tools"}

// own returns the members of options that this agent knows: others may have been
// stored while it was closed, and cannot be taken back.
func own(options json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(options, &all) != nil {
		return nil
	}
	for name := range all {
		if !slices.Contains(configKeys, name) {
			delete(all, name)
		}
	}
	b, err := marshal(all)
	if err != nil {
		return nil // cannot happen: it was JSON
	}
	return b
}

// merge puts what raw says over c.
func (c Config) merge(raw json.RawMessage) (Config, error) {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return c, nil
	}
	c.Tools = slices.Clone(c.Tools) // decoding writes into what it finds
	if c.Temperature != nil {
		c.Temperature = new(*c.Temperature)
	}
	if err := strict(raw, &c, configKeys...); err != nil {
		return c, fmt.Errorf("llm: the config: %w", err)
	}
	return c, nil
}

var (
	modelName  = regexp.MustCompile(`^[^\x00-\x20\x7f]{1,200}$`)
	effortName = regexp.MustCompile(`^[a-z]{0,20}$`)
)

// check makes sure that c can be used.
func (d *driver) check(c Config) error {
	switch {
	case !modelName.MatchString(c.Model):
		return fmt.Errorf("llm: %q is no model name; want 1 to 200 characters without spaces", c.Model)
	case len(d.opt.Models) > 0 && !slices.Contains(d.opt.Models, c.Model):
		return fmt.Errorf("llm: there is no model %q; choose one of %q", c.Model, d.opt.Models)
	case !effortName.MatchString(c.ReasoningEffort):
		return fmt.Errorf("llm: %q is no reasoningEffort; want a word such as low, medium or high", c.ReasoningEffort)
	case c.MaxSteps < 0:
		return fmt.Errorf("llm: maxSteps is %d; want at least 1", c.MaxSteps)
	}
	for _, name := range c.Tools {
		if !offered(nil, name) {
			return fmt.Errorf("llm: there is no tool %q; choose from %q", name, toolNames())
		}
	}
	return nil
}

// Open returns an agent for s. It sends no request and does not block.
func (d *driver) Open(_ context.Context, s agent.Session) (agent.Agent, error) {
	if d.err != nil {
		return nil, d.err
	}
	if s.Cwd == "" {
		return nil, errors.New("llm: the session has no directory; give cwd when creating it")
	}
	c, err := Config{Model: d.opt.Model, Temperature: d.opt.Temperature, ReasoningEffort: d.opt.ReasoningEffort}.merge(s.Config)
	if err != nil {
		return nil, err
	}
	if c, err = c.merge(own(s.Options)); err != nil {
		return nil, err
	}
	if err := d.check(c); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	return &llm{driver: d, session: s, config: c, conv: newConversation(s), ctx: ctx, cancel: cancel}, nil
}

var errClosed = errors.New("llm: the agent was closed")

// llm is one open agent.
type llm struct {
	*driver
	session agent.Session
	conv    *conversation   // of the turn that runs; turns come one at a time
	ctx     context.Context //nolint:containedctx // ends when the agent is closed
	cancel  context.CancelCauseFunc

	mu      sync.Mutex // guards what follows; nothing blocks under it
	config  Config
	closed  bool
	taking  bool           // a turn runs that will ask the model once more
	steered []*steer       // and wait for that
	turns   sync.WaitGroup // added to under mu, while not closed
}

// Prompt runs one turn.
func (l *llm) Prompt(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return agent.Result{}, errClosed
	}
	l.turns.Add(1)
	l.taking, l.steered = true, nil
	l.mu.Unlock()
	defer l.turns.Done()
	defer l.stopTaking()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(errClosed) })()

	r := &run{llm: l, t: t}
	res, err := r.turn(ctx, p)
	res.Usage = r.used
	switch {
	case errors.Is(err, agent.ErrBudget):
		return agent.Result{Reason: frames.TurnBudgetExceeded, Message: err.Error(), Usage: r.used}, nil
	case ctx.Err() != nil:
		return agent.Result{Reason: frames.TurnCancelled, Usage: r.used}, nil
	}
	return res, err
}

// maxSteered bounds the steers that wait for the next step.
const maxSteered = 32

// steer waits until the turn takes it, or is over.
type steer struct {
	prompt  agent.Prompt
	settled chan struct{} // closed when that is known
	taken   bool          // written before that, under the agent's mutex
}

// Steer hands text to the running turn: it blocks until the model is asked again,
// which is when it is taken. It is not taken once the turn's last answer has come.
func (l *llm) Steer(ctx context.Context, p agent.Prompt) error {
	s := &steer{prompt: p, settled: make(chan struct{})}
	l.mu.Lock()
	if l.closed || !l.taking || len(l.steered) >= maxSteered {
		l.mu.Unlock()
		return agent.ErrNotTaken
	}
	l.steered = append(l.steered, s)
	l.mu.Unlock()
	select {
	case <-s.settled:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steered = slices.DeleteFunc(l.steered, func(o *steer) bool { return o == s })
	if !s.taken {
		return agent.ErrNotTaken
	}
	return nil
}

// takeSteers takes what waits to be taken.
func (l *llm) takeSteers() (ps []agent.Prompt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.steered {
		ps = append(ps, s.prompt)
		s.taken = true
		close(s.settled)
	}
	l.steered = nil
	return ps
}

// lastAnswer reports whether no steer waits; then none is taken any more.
func (l *llm) lastAnswer() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taking = len(l.steered) > 0
	return !l.taking
}

// stopTaking lets go the steers that were not taken.
func (l *llm) stopTaking() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.steered {
		close(s.settled)
	}
	l.taking, l.steered = false, nil
}

// Configure takes the options of [Config]. They count from the next step.
func (l *llm) Configure(_ context.Context, options json.RawMessage) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, err := l.config.merge(options)
	if err != nil {
		return err
	}
	if err := l.check(c); err != nil {
		return err
	}
	l.config = c
	return nil
}

func (l *llm) configured() Config {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.config
}

// Close cancels a running turn with everything it started, and waits for that or
// for ctx. It is safe to call twice.
func (l *llm) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel(errClosed)
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		l.turns.Wait()
		close(over)
	})
	select {
	case <-over:
		wg.Wait()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("llm: a turn is still being ended: %w", context.Cause(ctx))
	}
}
