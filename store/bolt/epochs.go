package bolt

import (
	"crypto/rand"
	"fmt"

	"github.com/muxhost/muxhost/frames"
)

// renewEpochs gives every log a new epoch, in one transaction, before the writer
// runs: whoever knows a log by its epoch is told that it may have been replaced.
func (s *Store) renewEpochs() error {
	tx, err := s.db.Begin(true)
	if err != nil {
		return fmt.Errorf("bolt: new epochs: %w", err)
	}
	heads := tx.Bucket(bucketHeads)
	for sid, l := range s.state.logs {
		if l.head.Deleted || l.head.Epoch == "" {
			continue
		}
		l.head.Epoch = frames.Epoch(rand.Text())
		if err := heads.Put([]byte(sid), encodeHead(sid, l.head, l.folded, l.foldID)); err != nil {
			_ = tx.Rollback() // err says what is wrong
			return fmt.Errorf("bolt: new epochs: %w", err)
		}
		s.state.logs[sid] = l
	}
	id := tx.ID()
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("bolt: new epochs: %w", err)
	}
	s.state.txid = id
	return nil
}

// Replaced says why every log got a new epoch when the store was opened, "" if none
// did: its last commits may be lost, or [Options] NewEpochs asked for it.
func (s *Store) Replaced() string { return s.replaced }
