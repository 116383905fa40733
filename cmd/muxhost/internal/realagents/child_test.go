//go:build realagents

package realagents_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/store/bolt"
)

// The host is a process of its own, so that it can end, and be killed, as in life:
// this program, started again with hostRole in its environment.
const hostRole = "MUXHOST_AGENTS_HOST"

// hostConfig is what the host process is told, as the first line of its input. Its
// environment is not the place: there the mark would count as an agent's.
type hostConfig struct {
	Agent, Dir, LLM, Addr, Token, Mark string
}

// child is a running host process.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

// startHost starts a host process and waits until it listens.
func startHost(c hostConfig) (*child, error) {
	conf, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), hostRole+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	_, _ = fmt.Fprintf(in, "%s\n", conf) // a host that ended says so itself
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("the host did not start: %q, %w", line, err), cmd.Wait())
	}
	return &child{cmd, in}, nil
}

// stopTime bounds the orderly end of a host.
const stopTime = time.Minute

// stop ends the host in order and waits for it.
func (c *child) stop() error {
	timer := time.AfterFunc(stopTime, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	_ = c.stdin.Close()
	return c.cmd.Wait()
}

// kill ends the host as a crash does.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// hostMain is the host process: it runs until its input ends.
func hostMain() error {
	in := bufio.NewReader(os.Stdin)
	conf, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	var c hostConfig
	if err := json.Unmarshal(conf, &c); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	st, err := bolt.Open(filepath.Join(c.Dir, "state/muxhost.db"), bolt.Options{})
	if err != nil {
		return err
	}
	home := filepath.Join(c.Dir, "home")
	h, err := host.New(ctx, host.Config{
		Store: st, Drivers: []agent.Driver{c.driver(home)}, Token: c.Token, BlobDir: filepath.Join(c.Dir, "blobs"),
		DrainTimeout: time.Second,
		Env:          []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + filepath.Join(home, "tmp"), "LANG=C.UTF-8"},
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return errors.Join(err, st.Close())
	}
	ln, err := h.Listen(ctx, c.Addr)
	if err != nil {
		return errors.Join(err, h.Shutdown(ctx), st.Close())
	}
	fmt.Println("listening")
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
	return errors.Join(h.Serve(ctx, ln), st.Close())
}

// driver is the agent's driver.
func (c hostConfig) driver(home string) agent.Driver {
	all := realAgents()
	a := all[slices.IndexFunc(all, func(a *realAgent) bool { return a.name == c.Agent })]
	o := a.options(os.Getenv("MUXHOST_AGENTS_CACHE"), home, c.LLM)
	o.Name = a.name
	o.Env = append(o.Env, c.Mark)
	return acp.New(o)
}
