package session_test

import (
	"cmp"
	"context"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// disk is a store that fails when told to.
type disk struct {
	store.Store
	mu     sync.Mutex
	err    error                   // of every write
	lost   error                   // of the next append, which is not stored
	landed error                   // of the next append, which is stored
	blind  error                   // of Head
	blinks int                     // of Head, that fail
	reads  int                     // of logs
	bytes  int                     // of events read
	before func(evs []store.Event) // called before every append
	after  int                     // appends that succeed until late is the error of every write
	late   error
}

func (d *disk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func (d *disk) Append(ctx context.Context, sid frames.SessionID, at store.Head, evs []store.Event, rows ...store.Row) (store.Head, error) {
	d.mu.Lock()
	before := d.before
	d.mu.Unlock()
	if before != nil {
		before(evs)
	}
	d.mu.Lock()
	err, lost, landed := d.err, d.lost, d.landed
	d.lost, d.landed = nil, nil
	if d.after--; d.after == 0 && d.late != nil {
		d.err, d.late = d.late, nil
	}
	d.mu.Unlock()
	if err != nil || lost != nil {
		return store.Head{}, cmp.Or(err, lost)
	}
	h, err := d.Store.Append(ctx, sid, at, evs, rows...)
	if landed != nil {
		return store.Head{}, landed
	}
	return h, err
}

func (d *disk) Put(ctx context.Context, rows ...store.Row) error {
	d.mu.Lock()
	err := d.err
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return d.Store.Put(ctx, rows...)
}

func (d *disk) Head(ctx context.Context, sid frames.SessionID) (store.Head, error) {
	d.mu.Lock()
	err := d.blind
	if d.blinks > 0 {
		d.blinks--
		err = cmp.Or(err, store.ErrUnknown)
	}
	d.mu.Unlock()
	if err != nil {
		return store.Head{}, err
	}
	return d.Store.Head(ctx, sid)
}

// set changes how the disk behaves.
func (d *disk) set(f func(d *disk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

func (d *disk) Read(ctx context.Context, sid frames.SessionID, after frames.Seq, limit, maxBytes int) ([]store.Event, error) {
	evs, err := d.Store.Read(ctx, sid, after, limit, maxBytes)
	d.set(func(d *disk) {
		d.reads++
		for _, e := range evs {
			d.bytes += len(e.Data)
		}
	})
	return evs, err
}
