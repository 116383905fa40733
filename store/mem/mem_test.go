package mem_test

import (
	"testing"

	"github.com/muxhost/muxhost/store"
	"github.com/muxhost/muxhost/store/mem"
	"github.com/muxhost/muxhost/store/storetest"
)

// The memory store keeps the contract.
func TestMemKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return mem.New() })
}
