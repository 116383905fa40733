package mux

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// Config sets the limits of a [Hub]. The zero value works; zero fields take the
// defaults named here.
type Config struct {
	// RingBytes is how much of each subscribed session is kept ready to send;
	// default 512 KiB. A cursor further behind reads the log.
	RingBytes int
	// QueueBytes bounds one connection's control queue (responses, notices,
	// status); default 256 KiB. A message that comes while the queue is over it
	// ends the connection with 4008.
	QueueBytes int
	// WriteChunk is how much one write to a socket carries, and one page of the
	// log; default 64 KiB. One frame alone may be larger.
	WriteChunk int
	// PingInterval is the time between pings; default 20 s. A peer from which
	// nothing came for two of them is closed with 4008.
	PingInterval time.Duration
	// Heartbeat is the longest silence before a `mux/heartbeat`; default 15 s.
	Heartbeat time.Duration
	// WriteTimeout is how long a peer may take for one write; default 30 s.
	// After it the connection is closed with 4008.
	WriteTimeout time.Duration
	// MessageTimeout is how long a message may take to arrive whole, from its
	// first frame on; default 10 s.
	MessageTimeout time.Duration
	// CloseTimeout bounds each step of closing: flushing, sending the close
	// frame, waiting for the peer's; default 1 s.
	CloseTimeout time.Duration
	// Logger gets Debug lines; default none.
	Logger *slog.Logger
}

// withDefaults returns c with its zero fields filled.
func (c Config) withDefaults() Config {
	c.RingBytes = cmp.Or(c.RingBytes, 512<<10)
	c.QueueBytes = cmp.Or(c.QueueBytes, 256<<10)
	c.WriteChunk = cmp.Or(c.WriteChunk, 64<<10)
	c.PingInterval = cmp.Or(c.PingInterval, 20*time.Second)
	c.Heartbeat = cmp.Or(c.Heartbeat, 15*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 30*time.Second)
	c.MessageTimeout = cmp.Or(c.MessageTimeout, 10*time.Second)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// AcceptOptions says whose socket is accepted. The caller has already checked
// who it is, and the Host and Origin headers.
type AcceptOptions struct {
	ID    frames.ClientID
	Label string
	// Trees limits what the client may see to these sessions and their
	// descendants. Nil does not limit; empty lets it see nothing.
	Trees []frames.SessionID
	// Heartbeat replaces [Config.Heartbeat] when it is not zero.
	Heartbeat time.Duration
	// Subprotocol is the one that is offered; default "muxhost.v1".
	Subprotocol string
}
