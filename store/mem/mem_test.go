package mem_test

import (
	"bytes"
	"testing"

	"github.com/muxhost/muxhost/store"
	"github.com/muxhost/muxhost/store/mem"
	"github.com/muxhost/muxhost/store/storetest"
)

// The memory store keeps the contract.
func TestMemKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return mem.New() })
}

// Its snapshots are whole, and of one moment.
func TestMemSnapshots(t *testing.T) {
	storetest.RunSnapshot(t, func(*testing.T) store.Snapshotter { return mem.New() }, func(t *testing.T, b []byte) store.Store {
		s, err := mem.Load(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
