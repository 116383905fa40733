package acp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

var errDriverClosed = errors.New("acp: the host is going down; no agent is started any more")

// pool holds the running agents of a driver.
type pool struct {
	mu       sync.Mutex // guards what follows, and users of every engine; taken alone
	closed   bool
	solo     bool               // the agent was found to serve one session only
	all      map[*engine]bool   // every one that has not ended
	slots    map[string]*engine // those that sessions may join, or are waited for
	restarts map[string]*restarts
}

func (p *pool) init() {
	p.all, p.slots, p.restarts = map[*engine]bool{}, map[string]*engine{}, map[string]*restarts{}
}

// acquire returns a running agent for a session: one that others use too, or a new
// one. The caller releases it.
func (d *driver) acquire(ctx context.Context, s agent.Session, slow *slowStart) (*engine, error) {
	for {
		e, dying, err := d.pick(s)
		switch {
		case err != nil:
			return nil, err
		case dying:
			select {
			case <-e.gone:
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		slow.waits(e)
		select {
		case <-e.ready:
		case <-ctx.Done():
			d.release(e)
			return nil, fmt.Errorf("acp: %s: the agent did not answer initialize: %w%s", d.opt.Name, context.Cause(ctx), e.lastWords())
		}
		switch {
		case e.err != nil:
			d.release(e)
			return nil, e.err
		case e.solo && e.owner != s.ID:
			d.release(e)
			continue
		}
		return e, nil
	}
}

// pick returns the agent that a session is to use, started where it must be, or one
// whose end must be waited for.
func (d *driver) pick(s agent.Session) (e *engine, dying bool, err error) {
	p := &d.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, false, errDriverClosed
	}
	key := "shared " + strings.Join(s.Env, "\x00")
	if d.opt.OneSession || p.solo {
		key = soloKey(s.ID)
	}
	if e = p.slots[key]; e != nil && !(e.solo && e.users > 0) {
		if !e.usable() {
			return e, true, nil
		}
		e.users++
		return e, false, nil
	}
	if r := p.restarts[key]; r != nil {
		if err := r.refuse(time.Now(), d.opt.Name); err != nil {
			return nil, false, err
		}
	}
	e = newEngine(d, key, s.ID)
	e.users = 1
	p.slots[key], p.all[e] = e, true
	e.life.Go(func() { e.serve(s) })
	return e, false, nil
}

func soloKey(id frames.SessionID) string { return "session " + string(id) }

// release takes back what acquire gave, and reports whether nobody else uses the
// agent. One that nobody waits for any more is not started.
func (d *driver) release(e *engine) (last bool) {
	d.pool.mu.Lock()
	defer d.pool.mu.Unlock()
	e.users--
	if e.users > 0 {
		return false
	}
	e.unused()
	return true
}

// part ends a conversation that failed. An agent that nobody else uses is ended with
// it; one that has ended is waited for.
func (d *driver) part(l *link) {
	hurry := make(chan struct{})
	close(hurry)
	l.leave(hurry)
	if last := d.release(l.e); last && !l.spent.Load() && d.retire(l.e) {
		l.e.kill()
	}
	if !l.e.alive() {
		<-l.e.gone
	}
}

// retire takes an agent out of use, unless somebody uses it.
func (d *driver) retire(e *engine) bool {
	d.pool.mu.Lock()
	defer d.pool.mu.Unlock()
	if e.users > 0 {
		return false
	}
	e.leaving.Store(true)
	return true
}

// shared notes whether the agent that was started can serve several sessions.
func (d *driver) shared(e *engine) {
	d.pool.mu.Lock()
	defer d.pool.mu.Unlock()
	if e.solo = d.opt.OneSession || !e.caps.reopens() || e.offers() && !d.opt.Shared; !e.solo {
		return
	}
	d.pool.solo = true // those that wait for it beside its owner start their own
	delete(d.pool.slots, e.key)
	e.key = soloKey(e.owner)
	d.pool.slots[e.key] = e
}

// forget drops an agent that has ended.
func (d *driver) forget(e *engine) {
	d.pool.mu.Lock()
	defer d.pool.mu.Unlock()
	delete(d.pool.all, e)
	if d.pool.slots[e.key] == e {
		delete(d.pool.slots, e.key)
	}
}

// failed notes that an agent crashed, or could not be started.
func (d *driver) failed(e *engine, why string) {
	d.pool.mu.Lock()
	defer d.pool.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(d.pool.restarts, func(_ string, r *restarts) bool { r.expire(now); return len(r.fails) == 0 })
	r := d.pool.restarts[e.key]
	if r == nil {
		r = &restarts{}
		d.pool.restarts[e.key] = r
	}
	r.failed(now, why)
}

// Close ends every process of the driver and waits for that. Once ctx is done the rest
// is killed. Sessions that are still open lose their agent.
func (d *driver) Close(ctx context.Context) error {
	d.pool.mu.Lock()
	d.pool.closed = true
	all := slices.Collect(maps.Keys(d.pool.all))
	d.pool.mu.Unlock()
	var wg sync.WaitGroup
	for _, e := range all {
		wg.Go(func() { e.shut(ctx.Done()) })
	}
	wg.Wait()
	return nil
}
