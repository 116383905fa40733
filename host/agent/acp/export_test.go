package acp

import (
	"io"

	"github.com/muxhost/muxhost/host/agent"
)

// TestPeer is an agent made of functions, for tests.
type TestPeer struct {
	In       io.WriteCloser
	Out, Log io.Reader
	Exited   <-chan struct{}
	Term     func()
	Kill     func() string
}

type testPeer struct{ TestPeer }

func (p testPeer) pipes() (io.WriteCloser, io.Reader, io.Reader) { return p.In, p.Out, p.Log }
func (p testPeer) exited() <-chan struct{}                       { return p.Exited }
func (p testPeer) terminate()                                    { p.Term() }
func (p testPeer) kill() string                                  { return p.Kill() }

// NewTest returns a driver whose agents come from start.
func NewTest(o Options, start func(agent.Session) (TestPeer, error)) agent.Driver {
	return newDriver(o.withDefaults(), func(s agent.Session) (peer, error) {
		p, err := start(s)
		return testPeer{p}, err
	})
}

// WithMaxLine returns o with a limit for lines.
func WithMaxLine(o Options, n int) Options {
	o.maxLine = n
	return o
}
