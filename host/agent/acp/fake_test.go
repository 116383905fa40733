package acp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"sync"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// message is one message as it was on the wire.
type message struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
}

// fake is an agent made of a function, at the other end of pipes in memory.
type fake struct {
	t   *testing.T
	n   int // which start of the agent this is, from 0
	in  *bufio.Reader
	out io.Writer
	log io.Writer
	mu  sync.Mutex // of out
	// term is closed by the first SIGTERM.
	term chan struct{}
	// killed is closed by SIGKILL.
	killed chan struct{}
	// held are messages of the host that nobody has taken yet.
	held []message
}

// recv returns the host's next message, false at the end of the input.
func (f *fake) recv() (message, bool) {
	if len(f.held) > 0 {
		m := f.held[0]
		f.held = f.held[1:]
		return m, true
	}
	line, err := f.in.ReadBytes('\n')
	if err != nil {
		return message{}, false
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		f.t.Errorf("the host wrote %q: %v", line, err)
	}
	return m, true
}

// line writes one line as it is.
func (f *fake) line(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = fmt.Fprintf(f.out, format+"\n", args...) // a host that has gone reads no more
}

func (f *fake) result(m message, result string) {
	f.line(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// update sends a session/update of the session "s1".
func (f *fake) update(update string) { f.updateOf("s1", update) }

func (f *fake) updateOf(session, update string) {
	f.line(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":%s}}`, session, update)
}

// say sends one chunk of a message.
func (f *fake) say(text string) {
	f.update(fmt.Sprintf(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":%q}}`, text))
}

const options = `[{"optionId":"always","name":"Always","kind":"allow_always"},{"optionId":"once","name":"Once","kind":"allow_once"},{"optionId":"no","name":"No","kind":"reject_once"}]`

// ask sends a permission request with an id as it is written.
func (f *fake) ask(id, session, call string) {
	f.line(`{"jsonrpc":"2.0","id":%s,"method":"session/request_permission","params":{"sessionId":%q,"toolCall":{"toolCallId":%q,"title":"rm x","kind":"execute","status":"pending","rawInput":{"command":"rm x"}},"options":%s}}`,
		id, session, call, options)
}

// until takes messages until one is the method, or answers the id, that is wanted;
// those before it are dropped.
func (f *fake) until(method string) (message, bool) {
	for {
		m, ok := f.recv()
		if !ok || m.Method == method {
			return m, ok
		}
	}
}

// answered returns the host's answer to a request; other messages are kept.
func (f *fake) answered(id string) (message, bool) {
	var kept []message
	defer func() { f.held = append(kept, f.held...) }()
	for {
		m, ok := f.recv()
		if !ok || m.Method == "" && string(m.ID) == id {
			return m, ok
		}
		kept = append(kept, m)
	}
}

// modes is what the fake says of its modes.
const modes = `"modes":{"currentModeId":"auto","availableModes":[{"id":"auto"},{"id":"ask"},{"id":"plan"}]}`

// serve answers as an agent does, and hands prompts on. It returns when the input
// ends.
func (f *fake) serve(prompt func(message)) {
	for {
		m, ok := f.recv()
		if !ok {
			return
		}
		switch m.Method {
		case "initialize":
			f.result(m, `{"protocolVersion":1,"agentCapabilities":{"promptCapabilities":{"embeddedContext":true}}}`)
		case "session/new":
			f.result(m, `{"sessionId":"s1",`+modes+`}`)
		case "session/set_mode":
			f.result(m, `{}`)
		case "session/prompt":
			prompt(m)
		}
	}
}

func (f *fake) end(m message, reason string) { f.result(m, fmt.Sprintf(`{"stopReason":%q}`, reason)) }

// driver returns a driver whose every agent plays play.
func driver(t *testing.T, o acp.Options, play func(*fake)) agent.Driver {
	if o.Name == "" {
		o.Name = "fake"
	}
	o.Command = "/fake"
	starts := 0
	return acp.NewTest(o, func(agent.Session) (acp.TestPeer, error) {
		n := starts
		starts++
		return startFake(t, n, play), nil
	})
}

// startFake runs play as an agent.
func startFake(t *testing.T, n int, play func(*fake)) acp.TestPeer {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	logR, logW := io.Pipe()
	f := &fake{
		t: t, n: n, in: bufio.NewReader(inR), out: outW, log: logW,
		term: make(chan struct{}), killed: make(chan struct{}),
	}
	exited := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		play(f)
		inR.Close()
		outW.Close()
		logW.Close()
		close(exited)
	})
	var term, kill sync.Once
	how := "exit 0"
	return acp.TestPeer{
		In: inW, Out: outR, Log: logR, Exited: exited,
		Term: func() { term.Do(func() { close(f.term) }) },
		Kill: func() string {
			kill.Do(func() {
				select {
				case <-exited:
				default:
					how = "ended by killed"
				}
				close(f.killed)
				inR.Close()
				outW.Close()
				logW.Close()
				wg.Wait()
			})
			return how
		},
	}
}

// shut closes a driver, also one in another.
func shut(t *testing.T, d agent.Driver) {
	t.Helper()
	c, ok := d.(interface{ Close(context.Context) error })
	for !ok {
		inner, is := reflect.ValueOf(d).FieldByName("Driver").Interface().(agent.Driver)
		if !is {
			t.Fatalf("a driver %T that cannot be closed", d)
		}
		d = inner
		c, ok = d.(interface{ Close(context.Context) error })
	}
	if err := c.Close(context.Background()); err != nil {
		t.Errorf("closing the driver: %v", err)
	}
}

// open opens a session of the driver, and closes it when the test ends.
func open(t *testing.T, sc agenttest.Script, d agent.Driver) *agenttest.Session {
	t.Helper()
	if sc.Cwd == "" {
		sc.Cwd = "/src/demo"
	}
	h := agenttest.New(sc, d)
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
		shut(t, d)
	})
	s, err := h.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// rawOf returns the data of the vendor events of a kind.
func rawOf(s *agenttest.Session, kind string) []string {
	var out []string
	for _, e := range s.Events() {
		if r, ok := e.(agent.Raw); ok && string(r.Type) == "acp.agentclientprotocol.com/"+kind {
			out = append(out, string(bytes.TrimSpace(r.Data)))
		}
	}
	return out
}

// keepRaw keeps the data of vendor events of a kind.
func keepRaw(kind string, into *[]string) func(*agenttest.Session, frames.Payload) error {
	return func(_ *agenttest.Session, p frames.Payload) error {
		if r, ok := p.(agent.Raw); ok && string(r.Type) == "acp.agentclientprotocol.com/"+kind {
			*into = append(*into, string(r.Data))
		}
		return nil
	}
}
