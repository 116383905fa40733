package mcp

import "github.com/muxhost/muxhost/host/agent"

// Running returns how many calls run behind a door.
func Running(o agent.ToolOffer) int {
	d := o.(*door)
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.running)
}
