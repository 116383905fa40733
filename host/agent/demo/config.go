package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Config is the `config` of a session; the zero value is the demonstration.
type Config struct {
	// Role is "" or "show", one of its children "explore", "tests" and "fix", or
	// one that makes load: "stream", "asks", "spawns", "tasks", "wide".
	Role string `json:"role,omitempty"`
	// Speed overrides that of [Options].
	Speed *float64 `json:"speed,omitempty"`

	// Chunks, Size (bytes of one) and EveryMs (between two) are of role stream;
	// DurableEvery is after how many chunks a message is stored, 0 only at the end.
	Chunks       int   `json:"chunks,omitempty"`
	Size         int   `json:"size,omitempty"`
	EveryMs      int64 `json:"everyMs,omitempty"`
	DurableEvery int   `json:"durableEvery,omitempty"`

	// Count is how many approvals role asks asks for, Parallel of them at once
	// (default 1), or how many children role spawns starts at each of Depth levels,
	// or how many tasks role tasks begins (at least 1), each with Chunks, Size and
	// EveryMs as above; with Chunks 0 they go on until they are cancelled. Role wide
	// makes Count times Size bytes at once.
	Count    int `json:"count,omitempty"`
	Parallel int `json:"parallel,omitempty"`
	Depth    int `json:"depth,omitempty"`
}

// Bounds of a config.
const (
	maxChunks = 10_000_000
	maxSize   = 64 << 10
	maxCount  = 100_000
	maxDepth  = 16
)

var roles = []string{"", roleShow, roleExplore, roleTests, roleFix, roleStream, roleAsks, roleSpawns, roleTasks, roleWide}

// parse reads a config; it refuses keys and values that it does not know.
func parse(raw json.RawMessage) (Config, error) {
	var c Config
	if len(raw) > 0 {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		if err := d.Decode(&c); err != nil {
			return c, fmt.Errorf("demo: config: %w; see the keys of demo.Config", err)
		}
	}
	return c, c.check()
}

func (c Config) check() error {
	if !slices.Contains(roles, c.Role) {
		return fmt.Errorf("demo: config: role %q is unknown; want one of %s", c.Role, strings.Join(roles[1:], ", "))
	}
	if c.Speed != nil && !(*c.Speed >= 0) {
		return fmt.Errorf("demo: config: speed is %v; want 0 (no delays) or more", *c.Speed)
	}
	for _, b := range []struct {
		key      string
		got, max int64
	}{
		{"chunks", int64(c.Chunks), maxChunks},
		{"size", int64(c.Size), maxSize},
		{"everyMs", c.EveryMs, 3_600_000},
		{"durableEvery", int64(c.DurableEvery), maxChunks},
		{"count", int64(c.Count), maxCount},
		{"parallel", int64(c.Parallel), 1000},
		{"depth", int64(c.Depth), maxDepth},
	} {
		if b.got < 0 || b.got > b.max {
			return fmt.Errorf("demo: config: %s is %d; want 0 to %d", b.key, b.got, b.max)
		}
	}
	return nil
}

// child is the config of a child with another role, at the same pace.
func (c Config) child(role string) (json.RawMessage, error) {
	c.Role = role
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("demo: encoding a child's config: %w", err)
	}
	return b, nil
}
