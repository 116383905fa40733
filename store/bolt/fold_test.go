package bolt

import (
	"fmt"
	"sync"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
)

// The tail stays near its bound however many sessions write, and no commit folds
// more than its share.
func TestTailStaysBounded(t *testing.T) {
	var s *Store
	var most, before int
	s = openIn(t, t.TempDir(), Options{bounds: bounds{events: 300, bytes: 1 << 30, commits: 1 << 30}, hooks: hooks{commit: func(tx *bbolt.Tx) error {
		most = max(most, s.state.events-before) // the writer's own goroutine
		before = s.state.events
		return tx.Commit()
	}}})
	var wg sync.WaitGroup
	for w := range 40 {
		wg.Go(func() {
			var head store.Head
			var err error
			sid := frames.SessionID(fmt.Sprint("bounded-", w))
			for range 50 {
				if head, err = appendOne(t, s, sid, head); err != nil {
					t.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	if s.state.events > 300+foldEvents {
		t.Errorf("the tail holds %d events, want about 300", s.state.events)
	}
	if most > 300+foldEvents {
		t.Errorf("between two commits the tail grew by %d events", most)
	}
}

// Folding packs the events of a session that were written one at a time into
// few values.
func TestFoldPacksChunks(t *testing.T) {
	s := openIn(t, t.TempDir(), Options{bounds: bounds{events: 1, bytes: 1, commits: 1}, hooks: unsynced})
	var head store.Head
	var err error
	const n = 200
	for range n {
		if head, err = s.Append(t.Context(), "packed", head, []store.Event{{ID: "x", Type: "t", Data: []byte("{}")}}); err != nil {
			t.Fatal(err)
		}
	}
	chunks, commits := 0, 0
	if err := s.view(t.Context(), func(tx *bbolt.Tx) error {
		for c, k := tx.Bucket(bucketChunks).Cursor(), []byte(nil); ; chunks++ {
			if chunks == 0 {
				k, _ = c.First()
			} else {
				k, _ = c.Next()
			}
			if k == nil {
				break
			}
		}
		commits = tx.Bucket(bucketCommits).Stats().KeyN
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if most := n/chunkEvents + 1; chunks == 0 || chunks > most {
		t.Errorf("%d events lie in %d chunks, want at most %d", n, chunks, most)
	}
	if commits > 4 {
		t.Errorf("%d commits were kept, want hardly any", commits)
	}
}
