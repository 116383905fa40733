package config

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// The kinds of agents.
const (
	KindACP   = "acp"   // a program that speaks the Agent Client Protocol
	KindLLM   = "llm"   // the host's own agent, for a model behind an endpoint
	KindShell = "shell" // built in
	KindDemo  = "demo"  // built in
)

// Agent is an [agents.NAME] table. What the file does not say is zero, or nil where
// zero means something.
type Agent struct {
	Name string
	// At is file:line of the table.
	At string
	// Kind is one of the kinds above.
	Kind string
	// Recipe names the recipe that fills in what is not said; nil: the one of the
	// agent's own name, if there is one; "": none.
	Recipe  *string
	Enabled *bool

	// Model and Provider are shown; Model is also what sessions begin with. Models
	// are those that a session may choose.
	Provider, Model string
	Models          []string
	// Rules are those that every session with the agent has.
	Rules []frames.Rule

	Program Program
	LLM     LLM
}

// Program is what [KindACP] takes.
type Program struct {
	Command string   // a path, or a name on the PATH
	Args    []string // nil: not said
	Env     []string // NAME=value
	PassEnv []string // names, taken from the host's environment

	ApprovalMode *string
	Modes        []string
	AuthMethod   string
	Subagents    *bool // show them as sessions
	Tools        *bool // offer the host's tools
	Shared       *bool // one process for several sessions

	StartTimeout, IdleStop, CancelGrace, StallNotice, StallTimeout time.Duration
}

// LLM is what [KindLLM] takes.
type LLM struct {
	BaseURL       string
	APIKeyEnv     string
	ContextWindow int64
	MaxTokens     int64
	MaxSteps      int
	Temperature   *float64
	Images        bool
	System        string
	Prices        map[string]Price
	StallTimeout  time.Duration
}

// Price is what a model costs: decimal strings, per million tokens.
type Price struct{ Input, Output, CacheRead, Currency string }

// On reports whether the agent is offered.
func (a *Agent) On() bool { return a.Enabled == nil || *a.Enabled }

var (
	agentName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)
	envName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	modelName = regexp.MustCompile(`^[^\x00-\x20\x7f]{1,200}$`)
	decimal   = regexp.MustCompile(`^[0-9]{1,20}(\.[0-9]{1,18})?$`)
	reference = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}|^\$[A-Za-z_][A-Za-z0-9_]*$`)
)

// agents reads the tables of agents.
func (c *Config) agents(t table) {
	for _, name := range t.keys() {
		m, ok := t.m[name].(map[string]any)
		switch {
		case !ok:
			t.fault(name, "agents.%s is %s: want a table, such as [agents.%s]", name, show(t.m[name]), name)
		case !agentName.MatchString(name):
			t.fault(name, "an agent is named %q: want lower case letters, digits and dashes", name)
		default:
			c.Agents = append(c.Agents, readAgent(table{t.doc, t.at(name), m}, name, t.where(name)))
		}
	}
}

func readAgent(t table, name, at string) *Agent {
	a := &Agent{Name: name, At: at, Kind: KindACP}
	if name == KindShell || name == KindDemo {
		a.Kind = name
	}
	kinds := []string{KindACP, KindLLM}
	if a.Kind == name {
		kinds = []string{name}
	}
	if v, ok := t.m["kind"]; ok {
		if err := oneOf(&a.Kind, kinds...)(v); err != nil {
			t.fault("kind", "kind is %s: %v", show(v), err)
		}
	}
	own := a.keysOf(t, a.Kind)
	t.bind(own, func(key string) string { return a.misplaced(key) })
	a.check(t)
	return a
}

// misplaced says why a known key does not belong here.
func (a *Agent) misplaced(name string) string {
	for _, kind := range []string{KindACP, KindLLM} {
		if slices.ContainsFunc(a.keysOf(table{}, kind), func(k key) bool { return k.name == name }) {
			return fmt.Sprintf("%q is for agents of the kind %q; %q is of the kind %q", name, kind, a.Name, a.Kind)
		}
	}
	if slices.Contains(hostKeyNames(), name) {
		return fmt.Sprintf("%q is a setting of the host: put it before the first line in [brackets]", name)
	}
	return ""
}

// check is about keys that hang together.
func (a *Agent) check(t table) {
	if a.Kind == KindLLM && a.On() {
		for _, k := range []string{"base-url", "model"} {
			if _, ok := t.m[k]; !ok {
				t.doc.all = append(t.doc.all, &Error{t.doc.file, t.doc.line(t.path), fmt.Sprintf("agent %q has no %s: an agent of the kind %q needs base-url and model", a.Name, k, KindLLM)})
			}
		}
	}
	if a.Kind == KindLLM && len(a.Models) > 0 && a.Model != "" && !slices.Contains(a.Models, a.Model) {
		a.Models = append([]string{a.Model}, a.Models...)
	}
}

// keysOf are the keys of an agent of that kind.
func (a *Agent) keysOf(t table, kind string) []key {
	keys := []key{
		{"kind", func(any) error { return nil }}, // was read
		{"enabled", pointer(&a.Enabled, truth)},
		{"allow", rules(&a.Rules, "allow")},
		{"ask", rules(&a.Rules, "ask")},
		{"deny", rules(&a.Rules, "deny")},
	}
	switch kind {
	case KindACP:
		return append(append(keys, a.modelKeys()...), a.Program.keys(a, t)...)
	case KindLLM:
		return append(append(keys, a.modelKeys()...), a.LLM.keys(a, t)...)
	}
	return keys
}

func (a *Agent) modelKeys() []key {
	return []key{{"provider", text(&a.Provider)}, {"model", model(&a.Model)}}
}

func model(to *string) func(any) error {
	return func(v any) error {
		s, _ := v.(string)
		if !modelName.MatchString(s) {
			return wants(`the name of a model in quotes, without spaces`)
		}
		*to = s
		return nil
	}
}

func (p *Program) keys(a *Agent, t table) []key {
	return []key{
		{"recipe", recipe(&a.Recipe)},
		{"command", text(&p.Command)},
		{"args", texts(&p.Args, "arguments in quotes", regexp.MustCompile(`^[^\x00]*$`))},
		{"env", func(v any) error { return p.env(v, t) }},
		{"pass-env", passEnv(&p.PassEnv)},
		{"approval-mode", mode(&p.ApprovalMode)},
		{"modes", texts(&p.Modes, "modes in quotes", anyText)},
		{"auth-method", text(&p.AuthMethod)},
		{"subagents", pointer(&p.Subagents, truth)},
		{"tools", pointer(&p.Tools, truth)},
		{"shared", pointer(&p.Shared, truth)},
		{"start-timeout", duration(&p.StartTimeout, time.Second, time.Hour)},
		{"idle-stop", duration(&p.IdleStop, time.Second, 24*time.Hour)},
		{"cancel-grace", duration(&p.CancelGrace, 100*time.Millisecond, time.Minute)},
		{"stall-notice", duration(&p.StallNotice, time.Second, 24*time.Hour)},
		{"stall-timeout", duration(&p.StallTimeout, time.Second, 7*24*time.Hour)},
	}
}

func pointer[T any](to **T, take func(*T) func(any) error) func(any) error {
	return func(v any) error {
		got := new(T)
		if err := take(got)(v); err != nil {
			return err
		}
		*to = got
		return nil
	}
}

// recipe takes the name of a recipe; whether there is one is not known here.
func recipe(to **string) func(any) error {
	return func(v any) error {
		s, ok := v.(string)
		if !ok || s != "" && !agentName.MatchString(s) {
			return wants(`the name of a recipe, such as "claude", or "" for none`)
		}
		*to = &s
		return nil
	}
}

func mode(to **string) func(any) error {
	return func(v any) error {
		s, ok := v.(string)
		if !ok || !line(s) {
			return wants(`the agent's own name of the mode in which it asks, or "" if its own configuration makes it ask`)
		}
		*to = &s
		return nil
	}
}

// env takes a table of strings. Values are handed on as they stand; one that looks
// like a reference to another variable is refused, because nothing replaces it.
func (p *Program) env(v any, t table) error {
	m, ok := v.(map[string]any)
	if !ok {
		return wants(`a table, such as {NAME = "value"}`)
	}
	in := table{t.doc, t.at("env"), m}
	for _, name := range in.keys() {
		s, isText := m[name].(string)
		switch {
		case !envName.MatchString(name):
			in.fault(name, "env has %q: want names of letters, digits and underscores", name)
		case hostsOwn(name):
			in.fault(name, "env has %s: names that begin with MUXHOST_ are the host's own", name)
		case !isText || strings.ContainsRune(s, 0):
			in.fault(name, "env.%s is no text: want its value in quotes", name)
		case reference.MatchString(s):
			in.fault(name, "env.%s refers to a variable, and values are handed on as they stand: to hand on a variable of the host's environment, name it in pass-env", name)
		default:
			p.Env = append(p.Env, name+"="+s)
		}
	}
	return nil
}

func hostsOwn(name string) bool { return strings.HasPrefix(strings.ToUpper(name), "MUXHOST_") }

func passEnv(to *[]string) func(any) error {
	return func(v any) error {
		list, ok := v.([]any)
		if !ok {
			return wants(`a list of names of variables, such as ["OPENAI_API_KEY"]`)
		}
		names := []string{}
		for i, e := range list {
			name, _ := e.(string)
			if !envName.MatchString(name) { // it may be a value: it is not repeated
				return wants("a list of names of variables; its entry %d is none", i+1)
			}
			if hostsOwn(name) {
				return wants("no name that begins with MUXHOST_: %s is the host's own", name)
			}
			names = append(names, name)
		}
		*to = names
		return nil
	}
}

func (l *LLM) keys(a *Agent, t table) []key {
	return []key{
		{"base-url", func(v any) error { return l.baseURL(v, t) }},
		{"models", texts(&a.Models, "names of models", modelName)},
		{"api-key-env", func(v any) error { return l.keyEnv(v, t) }},
		{"context-window", count(&l.ContextWindow, 256, math.MaxInt32)},
		{"max-tokens", count(&l.MaxTokens, 1, math.MaxInt32)},
		{"max-steps", count(&l.MaxSteps, 1, 100_000)},
		{"temperature", temperature(&l.Temperature)},
		{"images", truth(&l.Images)},
		{"system", func(v any) error {
			s, ok := v.(string)
			if !ok {
				return wants("text in quotes")
			}
			l.System = s
			return nil
		}},
		{"prices", func(v any) error { return l.prices(v, t) }},
		{"stall-timeout", duration(&l.StallTimeout, time.Second, 24*time.Hour)},
	}
}

// baseURL takes the address of the endpoint. What is wrong with it does not repeat
// it: it may hold a password.
func (l *LLM) baseURL(v any, t table) error {
	l.BaseURL, _ = v.(string)
	if err := checkURL(l.BaseURL); err != nil {
		t.fault("base-url", `base-url does not do (%v): want what stands before /chat/completions, such as "http://localhost:11434/v1"`, err)
	}
	return nil
}

// keyEnv takes the name of a variable, and does not repeat what is none: it may be
// the key itself.
func (l *LLM) keyEnv(v any, t table) error {
	l.APIKeyEnv, _ = v.(string)
	if !envName.MatchString(l.APIKeyEnv) || hostsOwn(l.APIKeyEnv) {
		t.fault("api-key-env", `api-key-env is no name: want that of the host's environment variable that holds the key, such as "OPENAI_API_KEY"; never the key itself`)
	}
	return nil
}

func temperature(to **float64) func(any) error {
	return func(v any) error {
		f, ok := v.(float64)
		if n, whole := v.(int64); whole {
			f, ok = float64(n), true
		}
		if !ok || !(f >= 0 && f <= 10) {
			return wants("a number from 0 to 10, without quotes")
		}
		*to = &f
		return nil
	}
}

// prices takes a table of models, each with a table of prices.
func (l *LLM) prices(v any, t table) error {
	models, ok := v.(map[string]any)
	if !ok {
		return wants(`a table of models, such as {"qwen3" = {input = "0.10", output = "0.40"}}`)
	}
	all := table{t.doc, t.at("prices"), models}
	l.Prices = map[string]Price{}
	for _, name := range all.keys() {
		m, ok := models[name].(map[string]any)
		if !ok {
			all.fault(name, `prices.%s is %s: want {input = "…", output = "…"} per million tokens`, name, show(models[name]))
			continue
		}
		var p Price
		table{t.doc, all.at(name), m}.bind([]key{
			{"input", money(&p.Input)},
			{"output", money(&p.Output)},
			{"cache-read", money(&p.CacheRead)},
			{"currency", text(&p.Currency)},
		}, nil)
		l.Prices[name] = p
	}
	return nil
}

func money(to *string) func(any) error {
	return func(v any) error {
		s, _ := v.(string)
		if !decimal.MatchString(s) {
			return wants(`a decimal number in quotes, such as "0.25"`)
		}
		*to = s
		return nil
	}
}

// agentKeyNames and hostKeyNames list all keys, for hints.
func agentKeyNames() (names []string) {
	a := new(Agent)
	for _, kind := range []string{KindACP, KindLLM} {
		for _, k := range a.keysOf(table{}, kind) {
			names = append(names, k.name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func hostKeyNames() (names []string) {
	for _, k := range new(Config).hostKeys(table{}) {
		names = append(names, k.name)
	}
	return names
}

// Keys lists every key that config.toml may have, at its top or in an agent's table.
func Keys() []string { return append(hostKeyNames(), agentKeyNames()...) }
