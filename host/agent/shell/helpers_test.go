package shell_test

import (
	"sync"
	"testing"
)

// start runs f beside the test, which waits for it.
func start(t *testing.T, f func()) {
	t.Helper()
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	wg.Go(f)
}
