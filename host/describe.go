package host

import (
	"cmp"
	"slices"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/blob"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/rpc"
)

// describe tells everything of a host.describe but who the client is.
func (h *Host) describe() rpc.DescribeResult {
	d := rpc.DescribeResult{
		HostID: h.id, Name: h.cfg.Name, Version: h.cfg.Version, ProtocolVersion: frames.ProtocolVersion,
		DefaultAgent: h.cfg.DefaultAgent, Agents: []rpc.Agent{}, Limits: h.limits(), Features: features(),
	}
	for _, driver := range h.cfg.Drivers {
		d.Agents = append(d.Agents, agentOf(driver.Info()))
	}
	slices.SortFunc(d.Agents, func(a, b rpc.Agent) int { return cmp.Compare(a.Name, b.Name) })
	return d
}

func agentOf(i agent.Info) rpc.Agent {
	caps := i.Capabilities
	if caps == nil {
		caps = []string{}
	}
	return rpc.Agent{Name: i.Name, Kind: i.Kind, Provider: i.Provider, Model: i.Model, Models: i.Models, Capabilities: caps}
}

// limits are what a client can run into, with the unit as the name's suffix.
func (h *Host) limits() map[string]int64 {
	return map[string]int64{
		"maxMessageBytes":   frames.MaxMessage,
		"maxFrameBytes":     frames.MaxFrame,
		"maxEventBytes":     frames.MaxEvent,
		"maxDepth":          frames.MaxDepth,
		"blobPageBytes":     blob.MaxPage,
		"blobChunkBytes":    blob.MaxChunk,
		"blobUploadBytes":   blob.MaxUpload,
		"askTimeoutMs":      h.cfg.AskTimeout.Milliseconds(),
		"drainTimeoutMs":    h.cfg.DrainTimeout.Milliseconds(),
		"maxQueue":          int64(h.cfg.MaxQueue),
		"maxTree":           int64(h.cfg.MaxTree),
		"maxTreeDepth":      int64(h.cfg.MaxDepth),
		"spawnsPerMinute":   int64(h.cfg.SpawnRate),
		"maxTasks":          session.MaxTasks,
		"taskOutputBytes":   session.MaxTaskOutput,
		"taskWaitMs":        rpc.MaxTaskWaitMs,
		"maxConns":          int64(h.cfg.MaxConns),
		"maxConnsPerToken":  int64(h.cfg.MaxConnsPerToken),
		"maxInFlight":       int64(cmp.Or(h.cfg.MaxInFlight, rpc.DefaultMaxInFlight)),
		"errorBudget":       rpc.DefaultErrorBudget,
		"heartbeatMinMs":    minHeartbeat * 1000,
		"heartbeatMaxMs":    maxHeartbeat * 1000,
		"sessionsListLimit": rpc.MaxListLimit,
		"historyLimit":      rpc.MaxHistoryLimit,
		"historyBytes":      rpc.MaxHistoryBytes,
	}
}

// features are the methods that this host answers: a client that finds a name here
// may call it.
func features() []string {
	var out []string
	for _, m := range rpc.Methods() {
		out = append(out, m.Name)
	}
	return out
}
