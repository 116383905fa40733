package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/muxhost/muxhost/host/agent"
)

// background is a step that begins a task: it prints lines while the script, and
// later turns, go on, and ends with status and detail.
type background struct {
	kind, label    string
	lines          []string
	status, detail string
}

func (s background) play(ctx context.Context, p *player) error {
	k, err := p.t.Task(ctx, s.kind, s.label)
	if err != nil {
		return err
	}
	p.facts["task"] = string(k.ID())
	pause := time.Duration(0)
	if p.demo.speed > 0 {
		pause = time.Duration(float64(linePause) / p.demo.speed)
	}
	p.demo.work(k, func(ctx context.Context) error {
		for _, line := range s.lines {
			if err := wait(ctx, pause); err != nil {
				return err
			}
			if err := k.Output(ctx, line); err != nil {
				return err
			}
		}
		return nil
	}, s.status, s.detail)
	return nil
}

// work does a task beside the turns: it ends with status and detail, or cancelled
// where do returns early because its context is done.
func (d *demo) work(k agent.Task, do func(ctx context.Context) error, status, detail string) {
	d.tasks.Go(func() {
		ctx, cancel := context.WithCancelCause(k.Context())
		defer cancel(nil)
		defer context.AfterFunc(d.ctx, func() { cancel(errClosed) })()
		if do(ctx) != nil {
			status, detail = "cancelled", ""
		}
		_ = k.Done(context.WithoutCancel(ctx), status, detail) // the host stores it later where it cannot now
	})
}

// background plays role tasks: Count tasks that print Chunks chunks each, or go on
// until they are cancelled where that is 0.
func (p *player) background(ctx context.Context) error {
	c := p.demo.config
	for i := range max(1, c.Count) {
		k, err := p.t.Task(ctx, "demo", fmt.Sprintf("Task %d", i+1))
		if err != nil {
			return err
		}
		p.demo.work(k, func(ctx context.Context) error {
			for n := 0; c.Chunks == 0 || n < c.Chunks; n++ {
				if err := k.Output(ctx, chunk(n, c.Size)+"\n"); err != nil {
					return err
				}
				if err := wait(ctx, max(time.Duration(c.EveryMs), 1)*time.Millisecond); err != nil {
					return err
				}
			}
			return nil
		}, "completed", "")
	}
	return p.message(ctx, p.t.NewBlock(), "The work goes on in the background.")
}
