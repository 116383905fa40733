package doctor_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/config"
	"github.com/muxhost/muxhost/cmd/muxhost/internal/doctor"
	"github.com/muxhost/muxhost/cmd/muxhost/internal/roster"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/store/bolt"
)

// patient is a machine that is well, and what a case changes of it.
type patient struct {
	*doctor.World
	t    *testing.T
	env  map[string]string
	conf string // config.toml
	bin  string // the only directory of the PATH
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	p := &patient{t: t, bin: t.TempDir()}
	p.env = map[string]string{"PATH": p.bin}
	p.World = &doctor.World{
		StateDir: filepath.Join(t.TempDir(), "state"), Version: "1.2.3", Hint: " --state-dir X", Built: time.Now().Add(-time.Hour),
		Getenv: func(name string) string { return p.env[name] }, Now: time.Now,
		Host: func(context.Context) doctor.Host { return doctor.Host{} },
		Free: func(string) (int64, error) { return 10 << 30, nil },
		Listen: func(ctx context.Context, network, addr string) (net.Listener, error) {
			if addr != "127.0.0.1:0" {
				addr = "127.0.0.1:0" // the real port may be taken
			}
			var lc net.ListenConfig
			return lc.Listen(ctx, network, addr)
		},
		Config: func() (*config.Config, error) {
			if p.conf == "" {
				return &config.Config{}, nil
			}
			return config.Load(p.file(filepath.Join(p.bin, "config.toml"), p.conf, 0o600))
		},
	}
	return p
}

// file writes a file.
func (p *patient) file(path, text string, mode os.FileMode) string {
	p.t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// used makes the state directory that of a host that ran, and ended.
func (p *patient) used() {
	p.t.Helper()
	if err := host.PrepareStateDir(p.StateDir); err != nil {
		p.t.Fatal(err)
	}
	if _, _, err := host.EnsureToken(p.StateDir); err != nil {
		p.t.Fatal(err)
	}
	db, err := bolt.Open(p.in("muxhost.db"), bolt.Options{})
	if err == nil {
		err = errors.Join(db.Close(), os.Mkdir(p.in("blobs"), 0o700))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *patient) in(name string) string { return filepath.Join(p.StateDir, name) }

// results runs the checks.
func (p *patient) results() (all []doctor.Result) {
	for r := range p.Run(p.t.Context()) {
		all = append(all, r)
	}
	return all
}

// has reports whether a result is so. A fix of "" is none.
func has(all []doctor.Result, want doctor.Result) bool {
	for _, r := range all {
		if r.Check == want.Check && r.Level == want.Level && strings.Contains(r.What, want.What) &&
			strings.Contains(r.Fix, want.Fix) && (r.Fix == "") == (want.Fix == "") {
			return true
		}
	}
	return false
}

func show(all []doctor.Result) string {
	var b strings.Builder
	for _, r := range all {
		fmt.Fprintf(&b, "%s %s: %s → %s\n", r.Level, r.Check, r.What, r.Fix)
	}
	return b.String()
}

// A machine where all is well, with and without a state directory, gets no warning,
// and nothing is left behind in either case.
func TestHealthyMachine(t *testing.T) {
	for _, used := range []bool{false, true} {
		p := newPatient(t)
		if used {
			p.used()
		}
		before := tree(t, p.StateDir)
		all := p.results()
		for _, r := range all {
			if r.Level == doctor.Warn || r.Level == doctor.Fail || r.What == "" || r.Check == "" {
				t.Errorf("used %v: %+v; want nothing to warn of", used, r)
			}
		}
		if after := tree(t, p.StateDir); after != before {
			t.Errorf("used %v: the state directory held %q, and holds %q now", used, before, after)
		}
		for _, check := range []string{"config", "state", "disk", "clock", "host", "port", "encryption", "loopback", "node", "agents"} {
			if !strings.Contains(show(all), " "+check+": ") {
				t.Errorf("used %v: nobody looked at %s:\n%s", used, check, show(all))
			}
		}
	}
}

// tree lists what a directory holds, but for the lock file, which stays where a
// database was.
func tree(t *testing.T, dir string) string {
	t.Helper()
	names, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var all []string
	for _, n := range names {
		all = append(all, n.Name())
	}
	return strings.Join(all, " ")
}

// ill is one thing that is wrong, and what is told of it.
type ill struct {
	ill  func(t *testing.T, p *patient)
	want doctor.Result
}

func illFiles() map[string]ill {
	return map[string]ill{
		"config":      {func(_ *testing.T, p *patient) { p.conf = "lisen = \"x\"\n" }, doctor.Result{"config", doctor.Fail, "config.toml:1", "muxhost config validate"}},
		"config mode": {func(_ *testing.T, p *patient) { p.conf = "name = \"x\"\n"; p.open() }, doctor.Result{"config", doctor.Warn, "changed by others", "chmod"}},
		"config agent": {
			func(_ *testing.T, p *patient) { p.conf = "[agents.mine]\ncommand = \"mine\"\n" },
			doctor.Result{"config", doctor.Fail, "approval-mode", "muxhost config validate"},
		},
		"project": {func(t *testing.T, p *patient) {
			p.Cwd = t.TempDir()
			p.file(filepath.Join(p.Cwd, config.ProjectFile), "allow = [\"*\"]\n", 0o600)
		}, doctor.Result{"project", doctor.Fail, config.ProjectFile + ":1", "no session"}},
		"state mode":    {func(t *testing.T, p *patient) { p.used(); chmod(t, p.StateDir, 0o755) }, doctor.Result{"state", doctor.Fail, "0755", "chmod"}},
		"state file":    {func(_ *testing.T, p *patient) { p.file(p.StateDir, "", 0o600) }, doctor.Result{"state", doctor.Fail, "not a directory", "another"}},
		"token mode":    {func(t *testing.T, p *patient) { p.used(); chmod(t, p.in("token"), 0o644) }, doctor.Result{"token", doctor.Fail, "0644", "chmod"}},
		"token short":   {func(_ *testing.T, p *patient) { p.used(); p.file(p.in("token"), "x\n", 0o600) }, doctor.Result{"token", doctor.Fail, "token", "remove"}},
		"database mode": {func(t *testing.T, p *patient) { p.used(); chmod(t, p.in("muxhost.db"), 0o644) }, doctor.Result{"database", doctor.Fail, "0644", "chmod 600"}},
		"database damaged": {
			func(_ *testing.T, p *patient) {
				p.used()
				p.file(p.in("muxhost.db"), strings.Repeat("x", 1<<16), 0o600)
			},
			doctor.Result{"database", doctor.Fail, "", "muxhost restore --force --state-dir X FILE"},
		},
		"database directory": {func(t *testing.T, p *patient) {
			p.used()
			if err := errors.Join(os.Remove(p.in("muxhost.db")), os.Mkdir(p.in("muxhost.db"), 0o700)); err != nil {
				t.Fatal(err)
			}
		}, doctor.Result{"database", doctor.Fail, "no regular file", "--state-dir"}},
		"blobs mode": {func(t *testing.T, p *patient) { p.used(); chmod(t, p.in("blobs"), 0o755) }, doctor.Result{"blobs", doctor.Warn, "0755", "chmod 700"}},
		"blobs file": {func(t *testing.T, p *patient) {
			p.used()
			if err := os.Remove(p.in("blobs")); err != nil {
				t.Fatal(err)
			}
			p.file(p.in("blobs"), "", 0o600)
		}, doctor.Result{"blobs", doctor.Fail, "no directory", "directory"}},
	}
}

func illMachine() map[string]ill {
	return map[string]ill{
		"disk full": {func(_ *testing.T, p *patient) { p.Free = func(string) (int64, error) { return 63 << 20, nil } }, doctor.Result{"disk", doctor.Fail, "63 MiB", "make room"}},
		"disk low":  {func(_ *testing.T, p *patient) { p.Free = func(string) (int64, error) { return 1000 << 20, nil } }, doctor.Result{"disk", doctor.Warn, "1000 MiB", "make room"}},
		"disk unknown": {func(_ *testing.T, p *patient) {
			p.Free = func(string) (int64, error) { return 0, errors.New("no idea") }
		}, doctor.Result{"disk", doctor.Info, "no idea", ""}},
		"clock before the build": {
			func(_ *testing.T, p *patient) { p.Now = func() time.Time { return p.Built.Add(-time.Hour) } },
			doctor.Result{"clock", doctor.Fail, "was made at", "set the clock"},
		},
		"clock set back": {
			func(_ *testing.T, p *patient) { p.used(); p.Now = func() time.Time { return p.Built.Add(time.Minute) } },
			doctor.Result{"clock", doctor.Warn, "muxhost.db was written", "set back"},
		},
		"host killed":  {is(doctor.Host{Told: true, PID: 7}), doctor.Result{"host", doctor.Warn, "process 7, was killed", "muxhost serve --state-dir X"}},
		"host silent":  {is(doctor.Host{Told: true, Running: true, PID: 7, URL: "http://h", Err: errors.New("nothing came")}), doctor.Result{"host", doctor.Fail, "nothing came", "muxhost stop --state-dir X"}},
		"host older":   {is(doctor.Host{Told: true, Running: true, PID: 7, URL: "http://h", Version: "1.2.2"}), doctor.Result{"host", doctor.Warn, "version 1.2.2; this program is 1.2.3", "muxhost stop"}},
		"host well":    {is(doctor.Host{Told: true, Running: true, PID: 7, URL: "http://h", Version: "1.2.3"}), doctor.Result{"host", doctor.OK, "http://h", ""}},
		"host unknown": {is(doctor.Host{Err: errors.New("host.json: no JSON")}), doctor.Result{"host", doctor.Warn, "no JSON", "remove"}},
	}
}

func illNetwork() map[string]ill {
	return map[string]ill{
		"port taken": {busy(syscall.EADDRINUSE), doctor.Result{"port", doctor.Fail, "in use", "--listen"}},
		"port taken, host elsewhere": {func(t *testing.T, p *patient) {
			busy(syscall.EADDRINUSE)(t, p)
			is(doctor.Host{Told: true, Running: true, PID: 7, URL: "http://127.0.0.1:9", Version: "1.2.3"})(t, p)
		}, doctor.Result{"port", doctor.Info, "listens elsewhere", ""}},
		"port of the host": {func(t *testing.T, p *patient) {
			busy(syscall.EADDRINUSE)(t, p)
			is(doctor.Host{Told: true, Running: true, PID: 7, URL: "http://127.0.0.1:7717", Version: "1.2.3"})(t, p)
		}, doctor.Result{"port", doctor.OK, "the host's", ""}},
		"port forbidden":    {busy(syscall.EACCES), doctor.Result{"port", doctor.Fail, "may not be taken", "1024"}},
		"plain text":        {func(_ *testing.T, p *patient) { p.conf = "listen = \"0.0.0.0:7717\"\n" }, doctor.Result{"encryption", doctor.Fail, "not a loopback", "tls-cert"}},
		"no certificate":    {func(_ *testing.T, p *patient) { p.conf = "tls-cert = \"/none\"\ntls-key = \"/none\"\n" }, doctor.Result{"encryption", doctor.Fail, "/none", "PEM"}},
		"certificate over":  {certificate(-48*time.Hour, -time.Hour), doctor.Result{"encryption", doctor.Fail, "which is over", "renew"}},
		"certificate soon":  {certificate(-48*time.Hour, 48*time.Hour), doctor.Result{"encryption", doctor.Warn, "holds until", "renew"}},
		"certificate early": {certificate(48*time.Hour, 9000*time.Hour), doctor.Result{"encryption", doctor.Fail, "from", "clock"}},
		"certificate well":  {certificate(-48*time.Hour, 9000*time.Hour), doctor.Result{"encryption", doctor.OK, "holds until", ""}},
		"loopback": {func(_ *testing.T, p *patient) {
			p.Listen = func(context.Context, string, string) (net.Listener, error) { return nil, errors.New("sandboxed") }
		}, doctor.Result{"loopback", doctor.Fail, "sandboxed", "firewalls"}},
		"proxy": {
			func(_ *testing.T, p *patient) { p.program("opencode"); p.env["http_proxy"] = "http://secret@proxy" },
			doctor.Result{"loopback", doctor.Warn, "http_proxy is set", "NO_PROXY=127.0.0.1"},
		},
		"proxy left out": {func(_ *testing.T, p *patient) {
			p.program("opencode")
			p.env["http_proxy"], p.env["no_proxy"] = "http://proxy", "localhost, 127.0.0.1"
		}, doctor.Result{"loopback", doctor.OK, "", ""}},
	}
}

// Whatever is wrong is told at its level, with what to do.
func TestWhatIsWrongIsTold(t *testing.T) {
	all := illFiles()
	maps.Copy(all, illMachine())
	maps.Copy(all, illNetwork())
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			p := newPatient(t)
			c.ill(t, p)
			if all := p.results(); !has(all, c.want) || strings.Contains(show(all), "secret") {
				t.Errorf("results:\n%s\nwant %+v", show(all), c.want)
			}
		})
	}
}

func is(h doctor.Host) func(*testing.T, *patient) {
	return func(_ *testing.T, p *patient) { p.Host = func(context.Context) doctor.Host { return h } }
}

// busy makes every port but a free one fail.
func busy(err error) func(*testing.T, *patient) {
	return func(_ *testing.T, p *patient) {
		listen := p.Listen
		p.Listen = func(ctx context.Context, network, addr string) (net.Listener, error) {
			if addr != "127.0.0.1:0" {
				return nil, &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", err)}
			}
			return listen(ctx, network, addr)
		}
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// open lets others change the configuration.
func (p *patient) open() {
	p.Config = func() (*config.Config, error) {
		return config.Load(p.file(filepath.Join(p.bin, "config.toml"), p.conf, 0o666))
	}
}

// program puts a program on the PATH.
func (p *patient) program(name string) string {
	return p.file(filepath.Join(p.bin, name), "#!/bin/sh\nexit 1\n", 0o755)
}

// certificate makes the host use a certificate that holds from one time to another.
func certificate(from, to time.Duration) func(*testing.T, *patient) {
	return func(t *testing.T, p *patient) {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(to)}
		der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		cert := p.file(filepath.Join(p.bin, "cert.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), 0o600)
		private := p.file(filepath.Join(p.bin, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})), 0o600)
		p.conf = fmt.Sprintf("listen = \"0.0.0.0:7717\"\ntls-cert = %q\ntls-key = %q\n", cert, private)
	}
}

// A database that somebody has open is left alone, and who has it is told: the host,
// which is fine, or another program.
func TestDatabaseThatIsOpenIsLeftAlone(t *testing.T) {
	p := newPatient(t)
	p.used()
	db, err := bolt.Open(p.in("muxhost.db"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for pid, want := range map[int]doctor.Result{
		os.Getpid(): {"database", doctor.OK, fmt.Sprintf("the host has it open, process %d", os.Getpid()), ""},
		1:           {"database", doctor.Warn, fmt.Sprintf("process %d has it open", os.Getpid()), "wait"},
	} {
		is(doctor.Host{Told: true, Running: true, PID: pid, Version: "1.2.3"})(t, p)
		if all := p.results(); !has(all, want) {
			t.Errorf("host %d: results:\n%s\nwant %+v", pid, show(all), want)
		}
	}
}

// A broken configuration does not keep the rest from being looked at.
func TestBrokenConfigIsNotTheEnd(t *testing.T) {
	p := newPatient(t)
	p.conf = "lisen = 1\nask-timeout = \"soon\"\n[agents.x]\nkind = \"y\"\n"
	all := p.results()
	faults := 0
	for _, r := range all {
		if r.Check == "config" && r.Level == doctor.Fail {
			faults++
		}
	}
	if faults < 3 || !has(all, doctor.Result{"agents", doctor.Info, "not looked at", ""}) || !has(all, doctor.Result{"port", doctor.OK, "127.0.0.1:7717 is free", ""}) {
		t.Errorf("results:\n%s\nwant each fault, and the rest", show(all))
	}
}

// Who stops reading stops the checks.
func TestChecksEndWithTheirReader(t *testing.T) {
	p := newPatient(t)
	n := 0
	for range p.Run(t.Context()) {
		n++
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for r := range p.Run(ctx) {
		t.Errorf("%+v after the end", r)
	}
	if n != 1 {
		t.Errorf("%d results; want one", n)
	}
}

const someAgents = `
[agents.local]
kind = "llm"
base-url = "http://localhost:11434/v1"
model = "qwen3"
api-key-env = "LOCAL_KEY"

[agents.mine]
command = "mine"
approval-mode = "ask"

[agents.off]
kind = "llm"
base-url = "http://localhost:1/v1"
model = "m"
enabled = false
`

// Agents are told of by how they can be run, with the names of their keys and never
// their values; none is started.
func TestAgentsAreToldOf(t *testing.T) {
	p := newPatient(t)
	p.conf = someAgents
	opencode := p.program("opencode")
	p.env["ANTHROPIC_API_KEY"] = "sk-secret"
	all := p.results()
	for _, want := range []doctor.Result{
		{"agent shell", doctor.OK, "part of the host", ""},
		{"agent opencode", doctor.OK, "found: " + opencode + " acp; it gets ANTHROPIC_API_KEY", ""},
		{"agent local", doctor.Warn, "no LOCAL_KEY", "api-key-env"},
		{"agent local", doctor.OK, "model qwen3 at localhost:11434", ""},
		{"agent mine", doctor.Fail, "no program here", "config.toml:8"},
		{"agent off", doctor.Info, "enabled = false", ""},
		{"agents", doctor.Info, "not on this machine: claude, codex, gemini", "muxhost agents ls"},
		{"agents", doctor.Info, "none was started", "--agents"},
		{"node", doctor.Info, "none with npx", "install node"},
	} {
		if !has(all, want) {
			t.Errorf("want %+v in\n%s", want, show(all))
		}
	}
	if strings.Contains(show(all), "sk-secret") {
		t.Errorf("a key is told:\n%s", show(all))
	}
}

// A node that is too old is worth a warning where somebody configured what needs it.
func TestOldNode(t *testing.T) {
	for conf, want := range map[string]doctor.Level{"": doctor.Info, "[agents.claude]\nmodel = \"x\"\n": doctor.Warn} {
		p := newPatient(t)
		p.program("npx")
		p.conf = conf
		old := filepath.Join(p.bin, "v18.1.0", "bin")
		if err := os.MkdirAll(old, 0o700); err != nil {
			t.Fatal(err)
		}
		p.file(filepath.Join(old, "node"), "#!/bin/sh\n", 0o755)
		p.env["PATH"] += string(filepath.ListSeparator) + old
		if all := p.results(); !has(all, doctor.Result{Check: "node", Level: want, What: "18.1.0"}) {
			t.Errorf("%q: results:\n%s\nwant %s for node 18.1.0", conf, show(all), want)
		}
	}
}

// Agents that are started say who they are; one that fails counts where somebody
// configured it. What npx would download unasked is not started.
func TestAgentsAreStarted(t *testing.T) {
	p := newPatient(t)
	p.program("node")
	p.program("npx")
	p.program("opencode")
	p.program("mine")
	p.env["LOCAL_KEY"] = "sk-secret"
	p.conf = someAgents + "[agents.gemini]\nmodel = \"x\"\n"
	started := map[string]bool{}
	p.Probe = func(_ context.Context, e roster.Entry) (roster.Report, error) {
		started[e.Name] = true
		switch e.Name {
		case "opencode", "mine":
			return roster.Report{}, errors.New("it ended at once\ntry it by hand\nor not")
		case "local":
			return roster.Report{Models: []string{"qwen3"}, Took: time.Second}, nil
		}
		return roster.Report{Agent: "Gemini", Version: "9", Mode: "default", Took: 1500 * time.Millisecond}, nil
	}
	all := p.results()
	for _, want := range []doctor.Result{
		{"agent opencode", doctor.Warn, "does not answer: it ended at once", "try it by hand; or not"},
		{"agent mine", doctor.Fail, "does not answer: it ended at once", "try it by hand"},
		{"agent local", doctor.OK, "it answers and has 1 model, this one among them (1s)", ""},
		{"agent gemini", doctor.OK, `it is Gemini 9, and acknowledged the mode "default" (1.5s)`, ""},
		{"agent claude", doctor.OK, "through npx: ", ""},
		{"node", doctor.Warn, "which one this is was not found out", "node --version"},
	} {
		if !has(all, want) {
			t.Errorf("want %+v in\n%s", want, show(all))
		}
	}
	if len(started) != 4 || started["claude"] || strings.Contains(show(all), "none was started") {
		t.Errorf("started %v; want opencode, mine, local, gemini", started)
	}
}
