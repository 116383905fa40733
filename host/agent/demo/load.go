package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// maxOpen is how much text role stream leaves open before it stores a message,
// below the limit at which the host would.
const maxOpen = frames.MaxOpenText * 3 / 4

// stream plays role stream: numbered chunks of one size, with a message for all
// text of a block every so often.
func (p *player) stream(ctx context.Context) error {
	c := p.demo.config
	block := p.t.NewBlock()
	var open strings.Builder
	for i := range c.Chunks {
		text := chunk(i, c.Size)
		if err := p.t.Text(ctx, block, text); err != nil {
			return err
		}
		open.WriteString(text)
		due := c.DurableEvery > 0 && (i+1)%c.DurableEvery == 0
		if due || i == c.Chunks-1 || open.Len() > maxOpen-c.Size {
			if err := p.message(ctx, block, open.String()); err != nil {
				return err
			}
			block = p.t.NewBlock()
			open.Reset()
		}
		if err := wait(ctx, time.Duration(c.EveryMs)*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// chunk is text number i, of size bytes where its number fits into them.
func chunk(i, size int) string {
	s := fmt.Sprintf("%d ", i)
	return s + strings.Repeat(".", max(0, size-len(s)))
}

// asks plays role asks: approvals for calls that differ in a number.
func (p *player) asks(ctx context.Context) error {
	c := p.demo.config
	var next, allowed atomic.Int64
	errs := make([]error, max(1, min(c.Parallel, c.Count)))
	var wg sync.WaitGroup
	for i := range errs {
		wp := &player{demo: p.demo, t: p.t}
		wg.Go(func() { errs[i] = wp.askSome(ctx, i, &next, &allowed) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return p.message(ctx, p.t.NewBlock(), fmt.Sprintf("%d of %d allowed", allowed.Load(), c.Count))
}

// askSome asks until all numbers are taken.
func (p *player) askSome(ctx context.Context, worker int, next, allowed *atomic.Int64) error {
	p.facts = map[string]string{}
	p.calls = worker * 1_000_000 // call ids of workers do not meet
	for {
		n := next.Add(1)
		if n > int64(p.demo.config.Count) {
			return nil
		}
		input := fmt.Appendf(nil, `{"n":%d}`, n)
		d, err := p.ask(ctx, frames.Tool{Name: "load", Kind: "other", Title: fmt.Sprintf("Call %d", n)}, input, "")
		if err != nil {
			return err
		}
		if d.Allowed() {
			allowed.Add(1)
		}
		if d.Outcome == frames.Cancelled {
			return nil
		}
	}
}

// spawns plays role spawns: Count children, each with as many below it, Depth
// levels deep; the leaves say a word.
func (p *player) spawns(ctx context.Context) error {
	c := p.demo.config
	if c.Depth == 0 || c.Count == 0 {
		return p.message(ctx, p.t.NewBlock(), "leaf")
	}
	below := c
	below.Depth--
	config, err := below.child(roleSpawns)
	if err != nil {
		return err
	}
	var children []agent.Child
	var refused error
	for i := range c.Count {
		child, err := p.t.Spawn(ctx, agent.Spawn{
			Agent: "demo", Title: fmt.Sprintf("Child %d", i+1), Config: config,
			Prompt: []frames.ContentBlock{frames.Text("go")},
		})
		if err != nil {
			refused = err
			break
		}
		children = append(children, child)
	}
	done := 0
	for _, child := range children {
		res, err := child.Wait(ctx)
		if err != nil {
			return err
		}
		if res.Reason == frames.TurnCompleted {
			done++
		}
	}
	text := fmt.Sprintf("%d of %d children completed", done, c.Count)
	if refused != nil {
		text += "; then no more could start: " + refused.Error()
	}
	return p.message(ctx, p.t.NewBlock(), text)
}
