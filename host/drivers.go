package host

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/muxhost/muxhost/host/agent"
)

// driverEnds closes the drivers that hold something of their own, all at once.
type driverEnds struct {
	wg   sync.WaitGroup
	done chan struct{}

	mu   sync.Mutex // guards what follows; taken alone
	open map[string]struct{}
	errs []error
}

// begin starts to close them. It does not block.
func (d *driverEnds) begin(drivers []agent.Driver) {
	d.done, d.open = make(chan struct{}), map[string]struct{}{}
	closers := map[string]agent.Closer{}
	for _, driver := range drivers {
		if c, ok := driver.(agent.Closer); ok {
			closers[driver.Info().Name] = c
			d.open[driver.Info().Name] = struct{}{}
		}
	}
	var each sync.WaitGroup
	for name, c := range closers {
		each.Go(func() { d.ended(name, closeDriver(c)) })
	}
	d.wg.Go(func() { each.Wait(); close(d.done) })
}

func closeDriver(c agent.Closer) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it crashed: %v\n%s", r, debug.Stack())
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), agent.CloseTimeout)
	defer cancel()
	return c.Close(ctx)
}

func (d *driverEnds) ended(name string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, name)
	if err != nil {
		d.errs = append(d.errs, fmt.Errorf("close the driver of agent %q: %w", name, err))
	}
}

// wait returns when all are closed, and what went wrong. One that takes twice
// [agent.CloseTimeout] is left behind.
func (d *driverEnds) wait() error {
	timer := time.NewTimer(2 * agent.CloseTimeout)
	defer timer.Stop()
	select {
	case <-d.done:
		d.wg.Wait()
	case <-timer.C:
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	errs := d.errs
	for name := range d.open {
		errs = append(errs, fmt.Errorf("the driver of agent %q does not close and is left behind", name))
	}
	return errors.Join(errs...)
}
