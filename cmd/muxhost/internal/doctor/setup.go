package doctor

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/config"
	"github.com/muxhost/muxhost/cmd/muxhost/internal/roster"
	"github.com/muxhost/muxhost/host"
)

// defaultListen is where a host listens that is not told otherwise.
const defaultListen = "127.0.0.1:7717"

// config reads config.toml and puts the agents together.
func (v *visit) config() {
	c, err := v.Config()
	if err == nil {
		v.conf = c
		v.entries, err = roster.Build(c, roster.Env{Getenv: v.Getenv})
	}
	if err != nil {
		v.broken, v.conf, v.entries = true, &config.Config{}, nil
		if errors.Is(err, fs.ErrNotExist) {
			v.say("config", Fail, err.Error(), "a file that is named has to be there; without one the defaults hold")
			return
		}
		for e := range each(err) {
			v.say("config", Fail, e.Error(), "edit the file; muxhost config validate"+v.Hint+" says whether it holds")
		}
		return
	}
	if c.Path == "" {
		v.say("config", OK, "there is no file; the defaults hold", "")
	} else {
		v.say("config", OK, fmt.Sprintf("%s holds: %s, %s", c.Path, count(len(c.Settings), "setting"), count(len(c.Agents), "agent")), "")
	}
	for _, w := range c.Warnings {
		v.say("config", Warn, w, "close it: chmod 600 "+c.Path)
	}
}

// project reads the project files that hold here.
func (v *visit) project() {
	if v.Cwd == "" {
		return
	}
	p, err := config.ReadProject(v.Cwd, v.Home)
	switch {
	case err != nil:
		for e := range each(err) {
			v.say("project", Fail, e.Error(), "edit the file; until then no session can be created in "+v.Cwd)
		}
	case len(p.Files) > 0:
		v.say("project", OK, strings.Join(p.Files, ", ")+" tightens what sessions here may do", "")
	}
}

// setting is what config.toml says of a setting, def if nothing.
func (v *visit) setting(key, def string) string {
	for _, s := range v.conf.Settings {
		if s.Key == key && len(s.Values) > 0 {
			return s.Values[0]
		}
	}
	return def
}

// encryption checks that what passes beyond this machine is encrypted, and for how
// long the certificate holds.
func (v *visit) encryption() {
	addr, cert, key := v.setting("listen", defaultListen), v.setting("tls-cert", ""), v.setting("tls-key", "")
	if err := host.CheckListen(addr, cert != ""); err != nil {
		v.failed("encryption", err, "set tls-cert and tls-key in config.toml, or listen on "+defaultListen)
		return
	}
	if cert == "" {
		v.say("encryption", OK, "none is needed: it listens on this machine only", "")
		return
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		v.failed("encryption", fmt.Errorf("the certificate: %w", err), "tls-cert and tls-key in config.toml name two PEM files that belong together")
		return
	}
	ends := pair.Leaf.NotAfter
	shown := fmt.Sprintf("the certificate %s holds until %s", filepath.Base(cert), ends.Format("2006-01-02"))
	switch left := ends.Sub(v.Now()); {
	case left <= 0:
		v.say("encryption", Fail, shown+", which is over", "renew it, and start the host again")
	case v.Now().Before(pair.Leaf.NotBefore):
		v.say("encryption", Fail, fmt.Sprintf("the certificate %s holds from %s on", filepath.Base(cert), pair.Leaf.NotBefore.Format("2006-01-02")), "look at the clock, or use another one")
	case left < certificateNotice:
		v.say("encryption", Warn, shown, "renew it, and start the host again")
	default:
		v.say("encryption", OK, shown, "")
	}
}
