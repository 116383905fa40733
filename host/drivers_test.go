package host_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/rpc/client"
	"github.com/muxhost/muxhost/store/mem"
)

// holder is a driver that holds something of its own, and notes what is closed.
type holder struct {
	script
	name  string
	close func(ctx context.Context) error

	mu    sync.Mutex
	notes []string
}

func (d *holder) Info() agent.Info { return agent.Info{Name: d.name, Kind: "test"} }

func (d *holder) note(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notes = append(d.notes, s)
}

func (d *holder) Open(context.Context, agent.Session) (agent.Agent, error) {
	return heldAgent{&scripted{&d.script}, d}, nil
}

func (d *holder) Close(ctx context.Context) error {
	d.note("driver")
	return d.close(ctx)
}

type heldAgent struct {
	*scripted
	d *holder
}

func (a heldAgent) Close(context.Context) error {
	time.Sleep(time.Second)
	a.d.note("agent")
	return nil
}

// Drivers that hold something are closed once, at a shutdown, after their agents.
func TestShutdownClosesDriversLast(t *testing.T) {
	cwd := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := &holder{name: "holder", close: func(context.Context) error { return errors.New("it would not let go") }}
		h, err := host.New(t.Context(), host.Config{Store: mem.New(), Drivers: []agent.Driver{d, &script{}}, Token: canary})
		if err != nil {
			t.Fatal(err)
		}
		o := client.Options{URL: host.LocalURL, HTTPClient: h.Local(), Token: canary}
		if _, err := client.Query(t.Context(), o, client.Question{Cwd: cwd, Text: "say hi"}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			err := h.Shutdown(context.WithoutCancel(t.Context()))
			if err == nil || !strings.Contains(err.Error(), `"holder"`) || !strings.Contains(err.Error(), "would not let go") {
				t.Errorf("Shutdown = %v, want the driver's name and error", err)
			}
		}
		h.Local().CloseIdleConnections()
		if got := strings.Join(d.notes, " "); got != "agent driver" {
			t.Errorf("closed %q, want the agent, then the driver, once each", got)
		}
	})
}

// Drivers are closed all at once; one that crashes or does not end leaves the others
// alone, and the host is down in time.
func TestShutdownOutlivesBadDrivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx context.Context) error {
			time.Sleep(3 * time.Second)
			return ctx.Err()
		}
		crashes := func(context.Context) error { panic("boom") }
		late := func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Hour)
			return nil
		}
		a, b := &holder{name: "a", close: slow}, &holder{name: "b", close: slow}
		h, err := host.New(t.Context(), host.Config{
			Store: mem.New(), Token: canary,
			Drivers: []agent.Driver{a, b, &holder{name: "crashes", close: crashes}, &holder{name: "late", close: late}},
		})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		err = h.Shutdown(context.WithoutCancel(t.Context()))
		if d := time.Since(start); d != 2*agent.CloseTimeout {
			t.Errorf("down after %v, want %v", d, 2*agent.CloseTimeout)
		}
		for _, want := range []string{`"crashes": it crashed: boom`, `"late" does not close`} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Shutdown = %v, want %q in it", err, want)
			}
		}
		if strings.Contains(err.Error(), `agent "a"`) || strings.Contains(err.Error(), `agent "b"`) {
			t.Errorf("Shutdown = %v, want nothing of a and b", err)
		}
		time.Sleep(time.Hour)
	})
}
