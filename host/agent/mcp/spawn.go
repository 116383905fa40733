package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

const (
	// maxPrompt bounds what a child is told, in bytes: what the host takes.
	maxPrompt = 192 << 10
	// maxTitle bounds a title, in characters; the rest is cut off.
	maxTitle = 120
	// maxResult bounds what a child's parent is told, in bytes; the rest stands in
	// the child's log.
	maxResult = 128 << 10
)

// spawnArgs are those of spawn_subagent. What is asked for has a Cwd without
// symlinks.
type spawnArgs struct {
	Agent  string `json:"agent,omitempty"`
	Prompt string `json:"prompt"`
	Cwd    string `json:"cwd,omitempty"`
	Title  string `json:"title,omitempty"`
}

// leftovers are the children of a turn for which nobody waits any more, by what they
// were spawned with.
type leftovers struct {
	mu sync.Mutex // a leaf
	by map[string][]agent.Child
}

func (l *leftovers) put(key string, k agent.Child) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = map[string][]agent.Child{}
	}
	l.by[key] = append(l.by[key], k)
}

func (l *leftovers) take(key string) (agent.Child, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ks := l.by[key]
	if len(ks) == 0 {
		return agent.Child{}, false
	}
	l.by[key] = ks[1:]
	return ks[0], true
}

// spawn runs a child and says how it ended.
func (c *call) spawn(in spawnArgs) (string, error) {
	if err := c.d.check(&in); err != nil {
		return "", err
	}
	asked, err := json.Marshal(in)
	if err != nil {
		return "", fmt.Errorf("the arguments cannot be written as JSON: %w", err)
	}
	k, ok := c.run.left.take(string(asked))
	if !ok {
		if k, err = c.start(asked); err != nil {
			return "", err
		}
	}
	end, err := k.Wait(c.ctx)
	if err != nil {
		c.run.left.put(string(asked), k)
		return "", c.failed(fmt.Sprintf("the subagent %s goes on, but was not waited for", k.ID), err)
	}
	return told(k.ID, end)
}

// start asks the policy, and starts what it allows.
func (c *call) start(asked json.RawMessage) (agent.Child, error) {
	var in spawnArgs
	dec, err := c.turn().Ask(c.ctx, agent.Approval{
		Tool: frames.Tool{Name: spawnName, Kind: "other", Title: "Start a subagent"}, Input: asked,
	})
	if err != nil {
		return agent.Child{}, c.failed("the subagent was not started", err)
	}
	if !dec.Allowed() {
		return agent.Child{}, refusal(dec)
	}
	if err := json.Unmarshal(dec.Input, &in); err != nil {
		return agent.Child{}, fmt.Errorf("the subagent was not started: what was allowed cannot be read: %w", err)
	}
	// Somebody may have taken his time: the directory has to be still that one.
	if now, err := c.d.inside(in.Cwd); err != nil || now != in.Cwd {
		return agent.Child{}, errors.New("the subagent was not started: its directory has changed since it was asked for")
	}
	if c.ctx.Err() != nil {
		return agent.Child{}, c.failed("the subagent was not started", c.ctx.Err())
	}
	k, err := c.turn().Spawn(c.ctx, agent.Spawn{
		Agent: in.Agent, Cwd: in.Cwd, Title: in.Title, Prompt: []frames.ContentBlock{frames.Text(in.Prompt)},
	})
	if err != nil {
		return agent.Child{}, c.failed("the subagent was not started", err)
	}
	return k, nil
}

// refusal tells the model why it may not spawn, and not who said so.
func refusal(dec agent.Decision) error {
	dec.By = nil
	_, why := dec.Refusal()
	return fmt.Errorf("the subagent was not started. %s", why)
}

// check refuses what cannot be spawned, and writes the arguments out.
func (d *door) check(in *spawnArgs) error {
	if strings.TrimSpace(in.Prompt) == "" {
		return errors.New(`"prompt" is empty; want all that the subagent must know`)
	}
	if len(in.Prompt) > maxPrompt {
		return fmt.Errorf(`"prompt" has %d bytes, want at most %d: write it to a file in the directory and name the file`, len(in.Prompt), maxPrompt)
	}
	infos := d.s.agents()
	if in.Agent != "" && len(infos) > 0 && !slices.ContainsFunc(infos, func(a agent.Info) bool { return a.Name == in.Agent }) {
		return fmt.Errorf(`"agent" is %q; want one of %s, or leave it out`, in.Agent, quoted(infos))
	}
	cwd, err := d.inside(in.Cwd)
	if err != nil {
		return err
	}
	in.Cwd, in.Title = cwd, clip(in.Title)
	return nil
}

// inside returns the directory without symlinks, if it is the session's own or lies
// below it.
func (d *door) inside(dir string) (string, error) {
	base := d.session.Cwd
	if dir == "" {
		return base, nil
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(base, dir)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf(`"cwd" is %q; want a directory that exists: %w`, dir, err)
	}
	if rel, err := filepath.Rel(base, real); err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf(`"cwd" is %q, which is %q; want %q or a directory below it`, dir, real, base)
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return "", fmt.Errorf(`"cwd" is %q; want a directory`, dir)
	}
	return real, nil
}

// clip makes one short line.
func clip(title string) string {
	runes := []rune(strings.Join(strings.Fields(title), " "))
	return string(runes[:min(len(runes), maxTitle)])
}

// told is what the model hears of a child that ended. One that did not complete its
// work makes an error.
func told(id frames.SessionID, end agent.ChildResult) (string, error) {
	said, how := words(end.Result), string(end.Reason)
	if end.Message != "" {
		how += ": " + end.Message
	}
	if end.Reason == frames.TurnCompleted {
		if said == "" {
			said = "[It said nothing.]"
		}
		return fmt.Sprintf("%s\n\n[subagent %s: %s]", said, id, how), nil
	}
	text := fmt.Sprintf("the subagent %s ended: %s", id, how)
	if said != "" {
		text += "\n\nIts last message:\n" + said
	}
	return "", errors.New(text)
}

// words is the text of a child's last message.
func words(content []frames.ContentBlock) string {
	var parts []string
	for _, b := range content {
		switch {
		case b.Text != "":
			parts = append(parts, b.Text)
		case b.Type != "text":
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("[%s %s]", b.Type, b.Name+b.URI)))
		}
		if b.Truncated != nil {
			parts = append(parts, fmt.Sprintf("[cut: %d bytes in all]", b.Truncated.Bytes))
		}
	}
	text := strings.Join(parts, "\n")
	if len(text) > maxResult {
		text = strings.ToValidUTF8(text[:maxResult], "") + "\n[cut: the rest stands in the subagent's session]"
	}
	return text
}
