package mem

import (
	"context"
	"encoding/gob"
	"fmt"
	"io"
	"maps"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// image is a whole store as one gob value.
type image struct {
	Logs map[frames.SessionID]imageLog
	Rows map[string]map[string][]byte
}

type imageLog struct {
	Head store.Head
	Evs  []store.Event
}

// Snapshot implements [store.Snapshotter]. [Load] reads what it writes. Only the
// taking of the image holds up writers, not the writing of it.
func (s *Store) Snapshot(ctx context.Context, w io.Writer) (int64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	img := image{Logs: map[frames.SessionID]imageLog{}, Rows: map[string]map[string][]byte{}}
	for sid, l := range s.logs { // stored events and rows never change
		img.Logs[sid] = imageLog{l.head, l.evs[:len(l.evs):len(l.evs)]}
	}
	for table, rows := range s.rows {
		img.Rows[table] = maps.Clone(rows)
	}
	s.mu.Unlock()
	c := &counter{w: store.CtxWriter{Ctx: ctx, W: w}}
	if err := gob.NewEncoder(c).Encode(img); err != nil {
		return c.n, fmt.Errorf("mem: snapshot: %w", err)
	}
	return c.n, nil
}

// Load returns a store that is what [Store.Snapshot] wrote.
func Load(r io.Reader) (*Store, error) {
	var img image
	if err := gob.NewDecoder(r).Decode(&img); err != nil {
		return nil, fmt.Errorf("mem: %w: it is no snapshot of a memory store: %w", store.ErrCorrupt, err)
	}
	s := New()
	for sid, l := range img.Logs {
		s.logs[sid] = &log{l.Head, l.Evs}
	}
	maps.Copy(s.rows, img.Rows)
	return s, nil
}

// counter counts what it passes on.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
