//go:build realagents && linux

package realagents_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/muxhost/muxhost/rpc"
)

// results is the table that this run fills.
var results table

// TestMain runs what was asked for and prints the table.
func TestMain(m *testing.M) {
	start := time.Now()
	code := m.Run()
	results.print(os.Stdout, time.Since(start))
	if results.failed() {
		code = 1
	}
	os.Exit(code)
}

// Every agent plays every scene that it can, without a network, and the host stays
// correct in each.
func TestRealAgents(t *testing.T) {
	if err := isolated(); err != nil {
		t.Fatal(err)
	}
	dir := os.Getenv("MUXHOST_AGENTS_DIR")
	for _, name := range []string{"DIR", "CACHE", "NODE", "PROGRAM"} {
		if os.Getenv("MUXHOST_AGENTS_"+name) == "" {
			t.Fatalf("MUXHOST_AGENTS_%s is not set: run .ci/agents", name)
		}
	}
	for _, a := range realAgents() {
		t.Run(a.name, func(t *testing.T) { playAll(t, a, filepath.Join(dir, a.name)) })
	}
}

// playAll plays all scenes with one agent on one host.
func playAll(t *testing.T, a *realAgent, dir string) {
	r := newRig(t, a, dir)
	if err := r.up(t.Context()); err != nil {
		t.Fatal(errors.Join(err, r.close()))
	}
	for _, s := range scenes() {
		t.Run(s.name, func(t *testing.T) {
			if s.can != nil && !s.can(a) {
				results.add(a, s.name, cell{absent: true})
				return
			}
			start := time.Now()
			err := r.play(t, s)
			c := judge(a, s.name, err)
			c.took = time.Since(start)
			results.add(a, s.name, c)
			if c.err != nil {
				t.Error(c.err)
			}
		})
	}
	t.Logf("the model was offered: %v", r.model.tools())
	start := time.Now()
	err := r.close()
	results.add(a, "no survivor", cell{err: err, took: time.Since(start)})
	if err != nil {
		t.Error(err)
	}
}

// play plays one scene and checks what must hold after each.
func (r *rig) play(t *testing.T, s scene) error {
	ctx, cancel := context.WithTimeoutCause(t.Context(), sceneTime, fmt.Errorf("the scene took more than %v", sceneTime))
	defer cancel()
	var asking []byte
	if s.name == "question" {
		asking = r.agent.asking
	}
	if err := r.up(ctx); err != nil { // after a scene that failed
		return err
	}
	p, err := r.open(ctx, s.name, asking)
	if err != nil {
		return err
	}
	err = s.run(p)
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), agreeTime+10*time.Second)
	defer stop()
	p.ctx = end
	if err != nil { // nothing of it is left to the next scene
		_, _ = p.desk.Cancel(end, rpc.CancelParams{SessionID: p.sid})
	}
	if bad := p.agree(); bad != nil {
		err = errors.Join(err, unsoundError{bad})
	}
	if err != nil {
		t.Logf("%v\n%s", err, p.account())
		err = errors.Join(err, r.down(false))
	}
	if err == nil { // its process goes before the next one comes
		err = p.desk.CloseSession(end, p.sid)
	}
	p.forget()
	return err
}
