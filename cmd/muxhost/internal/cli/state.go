package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/rpc/client"
)

// The files of a state directory that other verbs read.
const (
	hostFileName  = "host.json"
	tokenFileName = "token"
)

// hostFile says where a running host listens. The host writes it when it is
// ready and removes it at a clean end.
type hostFile struct {
	URL       string    `json:"url"`
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"startedAt"`
}

// stateDir returns the state directory: the flag, then $MUXHOST_STATE_DIR, then
// $XDG_STATE_HOME/muxhost, then ~/.local/state/muxhost.
func (a *app) stateDir() (string, error) {
	if d := first(a.stateFlag, a.getenv("MUXHOST_STATE_DIR")); d != "" {
		return filepath.Abs(d)
	}
	if d := a.getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "muxhost"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fail(exitUsage, "no home directory (%w): name a state directory with --state-dir", err)
	}
	return filepath.Join(home, ".local", "state", "muxhost"), nil
}

// errNoHost means that no host runs on a state directory.
var errNoHost = errors.New("no host runs")

// readHostFile reads host.json of dir; [errNoHost] if there is none, or if the
// process that it names is gone.
func readHostFile(dir string) (hostFile, error) {
	var h hostFile
	b, err := os.ReadFile(filepath.Join(dir, hostFileName))
	if errors.Is(err, fs.ErrNotExist) {
		return h, errNoHost
	}
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal(b, &h); err != nil {
		return h, fmt.Errorf("%s: %w", filepath.Join(dir, hostFileName), err)
	}
	if !alive(h.PID) {
		return h, errNoHost
	}
	return h, nil
}

// connect dials the host of the state directory.
func (a *app) connect(ctx context.Context) (*client.Client, error) {
	dir, err := a.stateDir()
	if err != nil {
		return nil, err
	}
	_, err = readHostFile(dir)
	if errors.Is(err, errNoHost) {
		return nil, fail(exitUnreachable, "no host runs on %s: start one with\n  muxhost serve%s", dir, a.stateHint())
	}
	if err != nil {
		return nil, err
	}
	return a.dial(ctx, dir)
}

// dial connects, and stays connected to whatever host runs on dir: after a
// restart it may listen elsewhere, with the same token.
func (a *app) dial(ctx context.Context, dir string) (*client.Client, error) {
	token, err := host.LoadToken(dir)
	if err != nil {
		return nil, &exitError{code: exitUnauthorized, err: err}
	}
	where := func(context.Context) (string, error) {
		h, err := readHostFile(dir)
		return h.URL, err
	}
	return client.Dial(ctx, client.Options{URLFunc: where, Token: token, Label: a.label(), OnState: a.away()})
}

// away tells when the host goes away and when it is back. Whoever follows it
// waits meanwhile.
func (a *app) away() func(client.State) {
	gone := false
	return func(s client.State) {
		switch {
		case s == client.StateDisconnected && !gone:
			gone = true
			fmt.Fprintln(a.stderr, a.errStyle.Yellow("the host is away; waiting for it"))
		case s == client.StateResumed && gone:
			gone = false
			fmt.Fprintln(a.stderr, a.errStyle.Yellow("the host is back"))
		}
	}
}

// stateHint repeats --state-dir where it was given.
func (a *app) stateHint() string {
	if a.stateFlag == "" {
		return ""
	}
	return " --state-dir " + a.stateFlag
}
