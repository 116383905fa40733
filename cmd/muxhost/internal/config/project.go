package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// ProjectFile is the name of the project file.
const ProjectFile = ".muxhost.toml"

// maxProject bounds one project file.
const maxProject = 64 << 10

// Project is what the project files that hold for a directory say together: the
// strictest of each.
type Project struct {
	// Files are those that were read, the nearest first.
	Files []string
	// Deny says that nothing is asked there.
	Deny bool
	// Rules deny or ask.
	Rules []frames.Rule
	// AskTimeout is 0 where none is named.
	AskTimeout time.Duration
	// Agents are those that may run there, nil for all. At is where that is said.
	Agents []string
	At     string
	// Agent is the agent that `muxhost run` takes there, "" for the host's; AgentAt
	// is where that is said.
	Agent, AgentAt string
}

// Allows refuses an agent that may not run there.
func (p *Project) Allows(agent string) error {
	if p.Agents == nil || slices.Contains(p.Agents, agent) {
		return nil
	}
	return fmt.Errorf("%s allows no agent %q here: choose one of %q, or change the file", p.At, agent, p.Agents)
}

// ReadProject reads the project files that hold for the directory cwd: those in it and
// in the directories around it, up to the first that holds .git, else up to home where
// cwd lies in it, else no further. cwd is absolute and has no symbolic links. A file
// that cannot be read or used is an error, never passed over.
func ReadProject(cwd, home string) (*Project, error) {
	p := new(Project)
	for _, dir := range levels(cwd, home) {
		path := filepath.Join(dir, ProjectFile)
		b, _, err := readFile(path, maxProject)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = p.add(path, b)
		}
		if _, ok := errors.AsType[*Error](err); err != nil && !ok {
			err = fmt.Errorf("the project file: %w", err)
		}
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

// levels lists the directories whose project files hold for cwd, the nearest first.
func levels(cwd, home string) []string {
	var dirs []string
	inHome := -1
	for dir := filepath.Clean(cwd); ; dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dirs
		}
		if home != "" && dir == filepath.Clean(home) {
			inHome = len(dirs)
			break
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return dirs[:max(inHome, 1)]
}

// add tightens p by what a file says.
func (p *Project) add(path string, b []byte) error {
	doc, err := parse(path, b)
	if err != nil {
		return err
	}
	var one Project
	top := doc.top()
	top.bind(one.keys(top), func(name string) string {
		if name == "allow" || slices.Contains(hostKeyNames(), name) || name == "agents" || slices.Contains(agentKeyNames(), name) {
			return fmt.Sprintf("a project file may only tighten, and %q would do more: put it into config.toml (see muxhost config path)", name)
		}
		return ""
	})
	if err := doc.err(); err != nil {
		return err
	}
	p.merge(&one, path)
	return nil
}

func (p *Project) keys(t table) []key {
	return []key{
		{"mode", func(v any) error {
			if v != "deny" {
				return wants(`"deny": a project file may only tighten`)
			}
			p.Deny = true
			return nil
		}},
		{"ask", rules(&p.Rules, "ask")},
		{"deny", rules(&p.Rules, "deny")},
		{"ask-timeout", duration(&p.AskTimeout, time.Second, 7*24*time.Hour)},
		{"agents", func(v any) error {
			p.At = t.where("agents")
			return texts(&p.Agents, "names of agents", agentName)(v)
		}},
		{"agent", func(v any) error {
			s, _ := v.(string)
			if !agentName.MatchString(s) {
				return wants("the name of an agent in quotes")
			}
			p.Agent, p.AgentAt = s, t.where("agent")
			return nil
		}},
	}
}

// merge adds what a file further out says. For the agent of `muxhost run` the nearest
// counts; everything else adds up.
func (p *Project) merge(o *Project, path string) {
	p.Files = append(p.Files, path)
	p.Deny = p.Deny || o.Deny
	p.Rules = append(p.Rules, o.Rules...)
	if o.AskTimeout > 0 && (p.AskTimeout == 0 || o.AskTimeout < p.AskTimeout) {
		p.AskTimeout = o.AskTimeout
	}
	if o.Agents != nil {
		if p.Agents == nil {
			p.Agents = o.Agents
		}
		p.Agents = slices.DeleteFunc(p.Agents, func(a string) bool { return !slices.Contains(o.Agents, a) })
		p.At = o.At
	}
	p.Agent, p.AgentAt = cmp.Or(p.Agent, o.Agent), cmp.Or(p.AgentAt, o.AgentAt)
}

// Policy is what the files add to a session's policy.
func (p *Project) Policy() frames.Policy {
	out := frames.Policy{Rules: slices.Clone(p.Rules), AskTimeoutMs: p.AskTimeout.Milliseconds()}
	if p.Deny {
		out.Mode = "deny"
	}
	return out
}
