package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/config"
	"github.com/muxhost/muxhost/cmd/muxhost/internal/roster"
)

// dialTimeout bounds a connection to this machine.
const dialTimeout = 2 * time.Second

// running looks at the host that should run.
func (v *visit) running() {
	h := v.host
	switch {
	case !h.Running && h.Err != nil:
		v.say("host", Warn, fmt.Sprintf("whether one runs is not known: %v", h.Err), "remove the file if no host runs; the next start writes it anew")
	case h.Told && !h.Running:
		v.say("host", Warn, fmt.Sprintf("none runs; the last one, process %d, was killed", h.PID), "start it again with muxhost serve"+v.Hint+", which repairs what was left open")
	case !h.Running:
		v.say("host", Info, "none runs; muxhost serve"+v.Hint+" starts one", "")
	case h.Err != nil:
		v.say("host", Fail, fmt.Sprintf("process %d should be one, at %s, and does not answer: %v", h.PID, h.URL, h.Err),
			fmt.Sprintf("end it with muxhost stop%s, or process %d if that does not help, and start it again", v.Hint, h.PID))
	case h.Version != v.Version:
		v.say("host", Warn, fmt.Sprintf("it answers at %s, with version %s; this program is %s", h.URL, h.Version, v.Version),
			"muxhost stop"+v.Hint+", then muxhost serve"+v.Hint+": sessions survive")
	default:
		v.say("host", OK, fmt.Sprintf("it answers at %s, with this version", h.URL), "")
	}
}

// port looks whether the address to listen on is free, or the host's own.
func (v *visit) port() {
	addr := v.setting("listen", defaultListen)
	_, port, err := net.SplitHostPort(addr)
	switch {
	case err != nil:
		return // encryption says what is wrong with it
	case port == "0":
		v.say("port", OK, "any free one is taken", "")
		return
	case v.host.Running && v.host.Err == nil && portOf(v.host.URL) == port:
		v.say("port", OK, addr+" is the host's", "")
		return
	}
	ln, err := v.Listen(v.ctx, "tcp", addr)
	other := "choose another, such as muxhost serve --listen 127.0.0.1:0" + v.Hint + ", or listen in config.toml"
	switch {
	case err == nil:
		_ = ln.Close() // nobody used it
		v.say("port", OK, addr+" is free", "")
	case errors.Is(err, syscall.EADDRINUSE) && v.host.Running && v.host.Err == nil:
		v.say("port", Info, addr+" is in use by another program; the host listens elsewhere", "")
	case errors.Is(err, syscall.EADDRINUSE):
		v.say("port", Fail, addr+" is in use by another program", other)
	case errors.Is(err, syscall.EACCES):
		v.say("port", Fail, addr+" may not be taken by this user", other+"; ports from 1024 on are for everyone")
	default:
		v.failed("port", fmt.Errorf("%s cannot be listened on: %w", addr, err), other)
	}
}

func portOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Port()
}

// loopback looks whether agents can reach the host's tools.
func (v *visit) loopback() {
	ln, err := v.Listen(v.ctx, "tcp4", "127.0.0.1:0")
	if err == nil {
		err = dialed(v.ctx, ln)
	}
	if err != nil {
		v.failed("loopback", fmt.Errorf("agents cannot reach the host's tools at 127.0.0.1: %w", err), "let programs of this machine connect to each other there: look at firewalls and sandboxes")
		return
	}
	if name := v.proxied(); name != "" {
		v.say("loopback", Warn, name+" is set, and NO_PROXY does not leave out 127.0.0.1: agents may send calls of the host's tools to the proxy",
			"export NO_PROXY=127.0.0.1,localhost for the host")
		return
	}
	v.say("loopback", OK, "programs reach each other at 127.0.0.1", "")
}

// dialed connects to a listener, and closes it.
func dialed(ctx context.Context, ln net.Listener) error {
	d := net.Dialer{Timeout: dialTimeout}
	c, err := d.DialContext(ctx, "tcp", ln.Addr().String())
	if err == nil {
		err = c.Close()
	}
	return errors.Join(err, ln.Close())
}

// proxied names the variable that sends agents to a proxy also on this machine.
func (v *visit) proxied() string {
	if !slices.ContainsFunc(v.entries, func(e roster.Entry) bool { return e.Offered() && e.Kind == config.KindACP && e.Tools }) {
		return ""
	}
	for out := range strings.SplitSeq(v.Getenv("NO_PROXY")+","+v.Getenv("no_proxy"), ",") {
		switch strings.TrimSpace(out) {
		case "*", "127.0.0.1", "127.0.0.0/8":
			return ""
		}
	}
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"} {
		if v.Getenv(name) != "" {
			return name
		}
	}
	return ""
}
