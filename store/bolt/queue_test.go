package bolt

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
)

// A caller who gives up while it waits behind a slow commit has stored nothing;
// one whose commit is under way waits for the outcome.
func TestGivingUpInTheQueueStoresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := openIn(t, t.TempDir(), Options{hooks: hooks{commit: func(tx *bbolt.Tx) error {
			<-release
			return tx.Commit()
		}}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			h, err := s.Append(ctx, "under-way", store.Head{}, []store.Event{placed("under-way", 1)})
			if err != nil || h.Seq != 1 {
				t.Errorf("append under way when its context ended: %+v, %v; want seq 1", h, err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			_, err := s.Append(ctx, "waiting", store.Head{}, []store.Event{placed("waiting", 1)})
			if !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnknown) {
				t.Errorf("append given up in the queue: %v, want context.Canceled and not ErrUnknown", err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(release)
		wg.Wait()
		if err := s.Put(t.Context(), store.Row{Table: "t", Key: "after", Value: []byte("v")}); err != nil {
			t.Errorf("Put behind it: %v", err)
		}
		if h, err := s.Head(t.Context(), "waiting"); err != nil || h != (store.Head{}) {
			t.Errorf("Head = %+v, %v; want none", h, err)
		}
	})
}
