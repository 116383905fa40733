// Package doctor looks whether a host can run here, and says what to do where it
// cannot.
//
// A [World] is the machine as the checks see it: what could surprise, hang or cost
// something is a function that a test gives another meaning. [World.Run] yields a
// [Result] for each thing that was looked at. Checks change nothing: a file that one
// writes to see whether that works is removed at once, and a database that somebody
// uses is left alone. No check starts an agent unless the world has a Probe. Results
// name environment variables and never show their values.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"strings"
	"time"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/config"
	"github.com/muxhost/muxhost/cmd/muxhost/internal/roster"
)

// Level says how good a result is.
type Level string

// The levels. Only Fail means that something does not work.
const (
	OK   Level = "ok"
	Info Level = "info" // nothing is wrong, and something is worth knowing
	Warn Level = "warn" // it works, and may not for long, or not as wanted
	Fail Level = "fail"
)

// Result is what came of one check.
type Result struct {
	// Check is what was looked at, a word or two.
	Check string `json:"check"`
	Level Level  `json:"level"`
	What  string `json:"what"`
	// Fix is what to do, "" where there is nothing to do.
	Fix string `json:"fix,omitempty"`
}

// Host is what is known of the host on a state directory.
type Host struct {
	// Told says that host.json is there; Running, that the process it names is.
	Told, Running bool
	PID           int
	URL, Version  string
	// Err says why it does not answer, or why nothing is known of it; nil if it does.
	Err error
}

// World is the machine. All of it is needed but Probe.
type World struct {
	// StateDir is absolute; Cwd and Home have no symbolic links, and may be "".
	StateDir, Cwd, Home string
	// Version is this program's, Built when it was made, zero if nobody knows.
	Version string
	Built   time.Time
	// Hint follows commands that are advised, such as " --state-dir DIR".
	Hint   string
	Getenv func(string) string
	Now    func() time.Time
	Config func() (*config.Config, error)
	Host   func(ctx context.Context) Host
	Listen func(ctx context.Context, network, addr string) (net.Listener, error)
	// Free returns how many bytes a directory's disk has left for this user.
	Free func(dir string) (int64, error)
	// Probe starts an agent and ends it again; nil leaves them alone.
	Probe func(ctx context.Context, e roster.Entry) (roster.Report, error)
}

// visit is one run of the checks: what later ones take from earlier ones.
type visit struct {
	*World
	ctx     context.Context //nolint:containedctx // that of the run
	tell    func(Result) bool
	over    bool
	conf    *config.Config
	entries []roster.Entry
	// broken says that the configuration does not hold, and the defaults stand in.
	broken bool
	host   Host
}

// Run looks at everything, one thing after the other, and yields what it finds. It
// blocks between results as long as the world does.
func (w *World) Run(ctx context.Context) iter.Seq[Result] {
	return func(yield func(Result) bool) {
		v := &visit{World: w, ctx: ctx, tell: yield, conf: &config.Config{}, host: w.Host(ctx)}
		for _, check := range []func(){
			v.config, v.project, v.state, v.disk, v.clock, v.running, v.port, v.encryption, v.loopback, v.node, v.agents,
		} {
			if v.over || ctx.Err() != nil {
				return
			}
			check()
		}
	}
}

func (v *visit) say(check string, level Level, what, fix string) {
	if !v.over {
		v.over = !v.tell(Result{check, level, what, fix})
	}
}

// failed tells of an error. What mends it may stand in its words.
func (v *visit) failed(check string, err error, fix string) {
	what := err.Error()
	for _, sep := range []string{"; to mend it: ", "; run: "} {
		if before, after, ok := strings.Cut(what, sep); ok {
			what, fix = before, after
		}
	}
	v.say(check, Fail, what, fix)
}

// each yields the errors that err joins.
func each(err error) iter.Seq[error] {
	return func(yield func(error) bool) {
		if all, ok := errors.AsType[interface {
			error
			Unwrap() []error
		}](err); ok {
			for _, e := range all.Unwrap() {
				if !yield(e) {
					return
				}
			}
			return
		}
		yield(err)
	}
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
