package acp

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/internal/proc"
)

// peer is a running agent: its pipes and its life.
type peer interface {
	// pipes returns the agent's input, output and log.
	pipes() (in io.WriteCloser, out, log io.Reader)
	// exited is closed when the agent's first process has ended.
	exited() <-chan struct{}
	// terminate asks the agent to end.
	terminate()
	// kill ends the agent and everything it started, waits for that, and says how
	// it ended. It may be called more than once, also at the same time.
	kill() string
}

// process is an agent that is a real process.
type process struct{ *proc.Peer }

// DirEnv is the variable in which a command that is [Options.Apart] finds the directory
// of its agent.
const DirEnv = "MUXHOST_AGENT_DIR"

func startProcess(o Options, marks *proc.Marks, s agent.Session) (peer, error) {
	dir, env := s.Cwd, slices.Concat(s.Env, o.Env)
	if o.Apart {
		dir = home(filepath.VolumeName(dir)+string(filepath.Separator), env)
		env = append(env, DirEnv+"="+s.Cwd)
	}
	p, err := marks.Converse(proc.Command{Argv: append([]string{o.Command}, o.Args...), Dir: dir, Env: env})
	if err != nil {
		return nil, err
	}
	return process{p}, nil
}

// home is the home directory that an environment names, or else dir.
func home(dir string, env ...[]string) string {
	for _, kv := range slices.Concat(env...) {
		at, ok := strings.CutPrefix(kv, "HOME=")
		if fi, err := os.Stat(at); ok && filepath.IsAbs(at) && err == nil && fi.IsDir() {
			dir = at
		}
	}
	return dir
}

func (p process) pipes() (io.WriteCloser, io.Reader, io.Reader) { return p.Stdin, p.Stdout, p.Stderr }
func (p process) exited() <-chan struct{}                       { return p.Exited() }
func (p process) terminate()                                    { p.Terminate() }
func (p process) kill() string                                  { return p.Kill().String() }

// maxTail bounds what is kept of an agent's log.
const maxTail = 8 << 10

// tail keeps the end of what an agent writes into its log.
type tail struct {
	mu  sync.Mutex // guards what follows
	rep proc.Repairer
	buf string
}

// drain reads the log until it ends.
func (t *tail) drain(r io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		t.add(buf[:n])
		if err != nil {
			return
		}
	}
}

func (t *tail) add(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = frames.Tail(t.buf+t.rep.Text(b), maxTail)
}

// text is the end of the log without terminal escapes.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(unescape(t.buf))
}

// unescape removes terminal escape sequences of the common kind (CSI).
func unescape(s string) string {
	var b strings.Builder
	for {
		i := strings.Index(s, "\x1b[")
		if i < 0 {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		s = s[i+2:]
		end := strings.IndexFunc(s, func(r rune) bool { return r >= '@' && r <= '~' })
		if end < 0 {
			return b.String()
		}
		s = s[end+1:]
	}
}
