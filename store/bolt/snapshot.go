package bolt

import (
	"context"
	"fmt"
	"io"

	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
)

// Snapshot implements [store.Snapshotter]: w gets a database file. Writers go on;
// they wait only if the file outgrows its map meanwhile, and pages that they free
// are not used again until the copy is done.
func (s *Store) Snapshot(ctx context.Context, w io.Writer) (n int64, err error) {
	err = s.view(ctx, func(tx *bbolt.Tx) error {
		n, err = tx.WriteTo(store.CtxWriter{Ctx: ctx, W: w})
		switch {
		case err != nil && ctx.Err() != nil: // bbolt hides errors behind their text
			return fmt.Errorf("bolt: snapshot given up: %w", context.Cause(ctx))
		case err != nil:
			return fmt.Errorf("bolt: snapshot: %w", err)
		}
		return nil
	})
	return n, err
}
