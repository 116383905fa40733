//go:build realagents && linux

package realagents_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// child is a running `muxhost serve`.
type child struct {
	cmd   *exec.Cmd
	wg    sync.WaitGroup
	ended chan struct{}
	err   error // how it ended; guarded by ended
}

const (
	startTime = 30 * time.Second // bounds the start of a host
	stopTime  = time.Minute      // bounds its orderly end
)

// startHost starts a host below dir and waits until it listens.
func startHost(ctx context.Context, dir, addr string) (*child, error) {
	home := filepath.Join(dir, "home")
	cmd := exec.Command(os.Getenv("MUXHOST_AGENTS_PROGRAM"), "serve", "--listen", addr)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + filepath.Join(home, "tmp"), "LANG=C.UTF-8",
		"MUXHOST_STATE_DIR=" + filepath.Join(dir, "state"), "MUXHOST_CONFIG=" + filepath.Join(dir, "config.toml"),
	}
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // should this program be killed
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, ended: make(chan struct{})}
	c.wg.Go(func() { // ends with the process, for which stop and kill wait
		c.err = cmd.Wait()
		close(c.ended)
	})
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err == nil {
			return c, conn.Close()
		}
		select {
		case <-c.ended:
			return nil, fmt.Errorf("the host ended at once: %w", c.err)
		case <-ctx.Done():
			c.kill()
			return nil, fmt.Errorf("the host did not listen within %v", startTime)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends the host in order and waits for it.
func (c *child) stop() error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.ended:
		c.wg.Wait()
		return c.err
	case <-time.After(stopTime):
		c.kill()
		return fmt.Errorf("it did not end within %v", stopTime)
	}
}

// kill ends the host as a crash does.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	c.wg.Wait()
}

// configure writes what the host and the agent are told.
func (r *rig) configure() error {
	home := filepath.Join(r.dir, "home")
	command, args, env := r.agent.program(os.Getenv("MUXHOST_AGENTS_CACHE"), home, r.model.server.URL)
	var conf strings.Builder
	fmt.Fprintf(&conf, "[agents.%s]\ncommand = %q\n", r.agent.name, command)
	if len(args) > 0 {
		fmt.Fprintf(&conf, "args = [%s]\n", quoted(args))
	}
	fmt.Fprintf(&conf, "[agents.%s.env]\n", r.agent.name)
	for _, kv := range append(env, r.mark) {
		name, value, _ := strings.Cut(kv, "=")
		fmt.Fprintf(&conf, "%s = %q\n", name, value)
	}
	err := os.WriteFile(filepath.Join(r.dir, "config.toml"), []byte(conf.String()), 0o600)
	for name, text := range r.agent.files {
		p := filepath.Join(home, name)
		text = strings.ReplaceAll(text, "{{llm}}", r.model.server.URL)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(p), 0o700), os.WriteFile(p, []byte(text), 0o600))
	}
	return err
}

func quoted(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = fmt.Sprintf("%q", w)
	}
	return strings.Join(out, ", ")
}
