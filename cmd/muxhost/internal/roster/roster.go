// Package roster puts together the agents of a host: those that are built in, those
// that recipes find on this machine, and those of config.toml, which change the former
// or come beside them.
//
// An [Entry] says what an agent is, where that is said, and whether it can be run; its
// Driver runs it. What cannot be run is listed with what to do about it, and not
// offered; what is written wrongly is an error. [Rules] is what the person at the host
// and the project files add to the policy of sessions.
//
// roster reads files and the environment when it is asked; it starts nothing but in
// [Probe].
package roster

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/config"
	"github.com/muxhost/muxhost/cmd/muxhost/internal/recipe"
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/llm"
	"github.com/muxhost/muxhost/host/agent/mcp"
)

// State says whether an agent can be run.
type State string

// The states. All but the last two are offered.
const (
	BuiltIn  State = "built-in" // part of the host
	Endpoint State = "endpoint" // part of the host, for a model elsewhere
	OnPath   State = "found"    // its program is here
	ByNpx    State = "npx"      // npx runs it, and downloads it the first time
	Missing  State = "missing"  // its program is not here
	Disabled State = "disabled" // config.toml says so
)

// Entry is one agent.
type Entry struct {
	Name, Kind, Provider, Model string
	State                       State
	// Recipe is the recipe that it is made by, "" if none.
	Recipe string
	// Command is the program and its arguments as a person would call it, nil if there
	// is none.
	Command []string
	// Mode is the approval mode that is set in every session, "" if none is; Asks says
	// in words why it asks then.
	Mode, Asks string
	// Source is "built-in", or file:line.
	Source string
	// Note is what a person should know: what is missing, what will be downloaded.
	Note string
	// EnvNames are the variables that it is given, beside those that all programs get,
	// in order; never their values.
	EnvNames []string
	// Rules are those of its sessions.
	Rules []frames.Rule
	// Tools says that it is offered the host's tools.
	Tools bool
	// Node is the least version of node that it needs, 0 for none.
	Node int
	// ACP and LLM are how it is run, for its kind.
	ACP acp.Options
	LLM llm.Options
}

// Offered reports whether sessions may have the agent.
func (e Entry) Offered() bool { return e.State != Missing && e.State != Disabled }

// Env is the machine as the host sees it.
type Env struct {
	Getenv func(string) string
}

// Build lists the agents: shell and demo, those of recipes, and the further ones of c
// in its order. Its error names what is wrong in c by file and line.
func Build(c *config.Config, env Env) ([]Entry, error) {
	var all []Entry
	var errs []error
	for _, name := range []string{config.KindShell, config.KindDemo} {
		all = append(all, builtIn(name, c.Agent(name)))
	}
	machine := recipe.Env{Getenv: env.Getenv}
	taken := func(name string) bool { return slices.ContainsFunc(all, func(e Entry) bool { return e.Name == name }) }
	for _, f := range recipe.Detect(machine) {
		a := c.Agent(f.Name)
		if a != nil && (a.Kind != config.KindACP || a.Recipe != nil && *a.Recipe != f.Name) {
			continue // another agent has its name
		}
		e, err := program(a, f, machine, env)
		all, errs = append(all, e), append(errs, err)
	}
	for _, a := range c.Agents {
		if taken(a.Name) {
			continue
		}
		e, err := own(a, machine, env)
		all, errs = append(all, e), append(errs, err)
	}
	return all, errors.Join(errs...)
}

func builtIn(name string, a *config.Agent) Entry {
	e := Entry{Name: name, Kind: name, State: BuiltIn, Source: "built-in"}
	e.configured(a)
	return e
}

// configured takes what every kind of agent may be told.
func (e *Entry) configured(a *config.Agent) {
	if a == nil {
		return
	}
	e.Source, e.Rules = a.At, slices.Clone(a.Rules)
	e.Provider, e.Model = cmp.Or(a.Provider, e.Provider), a.Model
	if !a.On() {
		e.State, e.Note = Disabled, "enabled = false at "+a.At
	}
}

// own makes an agent that config.toml alone knows.
func own(a *config.Agent, machine recipe.Env, env Env) (Entry, error) {
	if a.Kind == config.KindLLM {
		return endpoint(a, env), nil
	}
	name := ""
	if a.Recipe != nil {
		name = *a.Recipe
	}
	if name == "" {
		return program(a, recipe.Found{State: recipe.Missing}, machine, env)
	}
	r, ok := recipe.ByName(name)
	if !ok {
		return Entry{Name: a.Name}, fmt.Errorf("%s: agent %q names the recipe %q: want one of %s", a.At, a.Name, name, strings.Join(recipe.Names(), ", "))
	}
	return program(a, recipe.Find(machine, r), machine, env)
}

// program makes an agent that is a program, out of what a recipe says of it and what
// config.toml says beyond that, which may be nothing (nil).
func program(a *config.Agent, f recipe.Found, machine recipe.Env, env Env) (Entry, error) {
	e := Entry{
		Name: f.Name, Kind: config.KindACP, State: State(f.State), Recipe: f.Name, Source: "built-in",
		Provider: f.Provider, Mode: f.Mode, Asks: f.Asks, Note: f.Note, Node: f.Node, Tools: true,
	}
	e.ACP = acp.Options{Modes: f.Modes, StartTimeout: f.Start(), OneSession: f.Alone, Shared: f.Shared, Apart: f.State == recipe.ByNpx}
	if f.Command != "" {
		e.Command = append([]string{f.Command}, f.Args...)
	}
	set := environ{getenv: env.Getenv}
	set.pass(f.Pass())
	var err error
	if a != nil {
		e.Name = a.Name
		err = e.replace(a, f, machine)
		set.pass(a.Program.PassEnv)
	}
	set.add(f.Env)
	if a != nil {
		set.add(a.Program.Env)
		e.configured(a)
	}
	e.finish(set)
	if e.ACP.Apart {
		e.ACP.Args = recipe.Apart(acp.DirEnv, f.Program, e.ACP.Args)
	}
	return e, err
}

// finish fills in the driver's options.
func (e *Entry) finish(set environ) {
	e.EnvNames = set.names()
	o := &e.ACP
	o.Name, o.Provider, o.Model, o.ApprovalMode, o.Env = e.Name, e.Provider, e.Model, e.Mode, set.list
	if len(e.Command) > 0 {
		o.Command, o.Args = e.Command[0], e.Command[1:]
	}
	if e.Tools {
		e.Rules = append(e.Rules, mcp.DefaultRules()...)
	}
}

// replace takes what config.toml says of a program.
func (e *Entry) replace(a *config.Agent, f recipe.Found, machine recipe.Env) error {
	p := a.Program
	if err := e.command(a, f, machine); err != nil {
		return err
	}
	switch {
	case p.ApprovalMode != nil:
		e.Mode, e.Asks = *p.ApprovalMode, ""
		if e.Mode == "" {
			e.Asks = "its own configuration makes it ask, as " + a.At + " says"
		}
	case f.Name == "" && a.On():
		return fmt.Errorf("%s: agent %q has no approval-mode: name the mode in which it asks before it acts, or write approval-mode = \"\" if its own configuration makes it ask", a.At, a.Name)
	}
	o := &e.ACP
	if p.Modes != nil {
		o.Modes = p.Modes
	}
	e.Tools = p.Tools == nil || *p.Tools
	o.AuthMethod = p.AuthMethod
	o.NoSubagents = p.Subagents != nil && !*p.Subagents
	if p.Shared != nil {
		o.OneSession, o.Shared = !*p.Shared, *p.Shared
	}
	o.StartTimeout = cmp.Or(p.StartTimeout, o.StartTimeout)
	o.IdleStop, o.CancelGrace, o.StallNotice, o.StallTimeout = p.IdleStop, p.CancelGrace, p.StallNotice, p.StallTimeout
	return nil
}

// command finds the program that config.toml names.
func (e *Entry) command(a *config.Agent, f recipe.Found, machine recipe.Env) error {
	p := a.Program
	switch {
	case p.Command == "" && f.Name == "":
		return fmt.Errorf("%s: agent %q has no command, and no recipe is named so: give it a command, or a recipe out of %s", a.At, a.Name, strings.Join(recipe.Names(), ", "))
	case p.Command == "" && p.Args != nil && f.State != recipe.Missing:
		e.Command = append(slices.Clone(e.Command[:len(e.Command)-len(f.Recipe.Args)]), p.Args...)
		return nil
	case p.Command == "":
		return nil
	}
	args := f.Recipe.Args
	if p.Args != nil {
		args = p.Args
	}
	path := p.Command
	switch {
	case !strings.ContainsAny(path, `/\`):
		path = machine.Look(path)
	case !filepath.IsAbs(path):
		return fmt.Errorf("%s: agent %q has the command %q: want an absolute path, or the name of a program on the PATH", a.At, a.Name, path)
	case !recipe.Runs(path):
		path = ""
	}
	e.ACP.Apart = false
	if path == "" {
		e.State, e.Command, e.Note = Missing, nil, fmt.Sprintf("%s, which %s names, is no program here", p.Command, a.At)
		return nil
	}
	e.State, e.Note, e.Command = OnPath, "", append([]string{path}, args...)
	e.ACP.StartTimeout = recipe.Found{State: recipe.OnPath}.Start()
	return nil
}

// endpoint makes an agent of the host's own, for a model elsewhere.
func endpoint(a *config.Agent, env Env) Entry {
	l := a.LLM
	e := Entry{Name: a.Name, Kind: config.KindLLM, State: Endpoint, Asks: "the host asks before it writes or runs"}
	e.LLM = llm.Options{
		Name: a.Name, Provider: a.Provider, BaseURL: l.BaseURL, Model: a.Model, Models: a.Models,
		ContextWindow: l.ContextWindow, MaxTokens: l.MaxTokens, Temperature: l.Temperature, MaxSteps: l.MaxSteps,
		StallTimeout: l.StallTimeout, System: l.System, Images: l.Images, Prices: map[string]llm.Price{},
	}
	for name, p := range l.Prices {
		e.LLM.Prices[name] = llm.Price{Input: p.Input, Output: p.Output, CacheRead: p.CacheRead, Currency: p.Currency}
	}
	if name := l.APIKeyEnv; name != "" {
		e.EnvNames = []string{name}
		e.LLM.APIKey = func() string { return env.Getenv(name) }
		if env.Getenv(name) == "" {
			e.Note = "the host's environment has no " + name + ", which " + a.At + " names"
		}
	}
	e.configured(a)
	e.Rules = append(e.Rules, llm.DefaultRules()...)
	return e
}

// environ collects variables; of one name the last counts.
type environ struct {
	getenv func(string) string
	list   []string
}

// pass adds variables of the host's that are set.
func (v *environ) pass(names []string) {
	for _, n := range names {
		if s := v.getenv(n); s != "" {
			v.add([]string{n + "=" + s})
		}
	}
}

func (v *environ) add(list []string) {
	for _, kv := range list {
		name, _, _ := strings.Cut(kv, "=")
		v.list = slices.DeleteFunc(v.list, func(old string) bool { return strings.HasPrefix(old, name+"=") })
		v.list = append(v.list, kv)
	}
}

func (v *environ) names() []string {
	names := make([]string, len(v.list))
	for i, kv := range v.list {
		names[i], _, _ = strings.Cut(kv, "=")
	}
	slices.Sort(names)
	return names
}
