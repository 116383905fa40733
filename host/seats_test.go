package host

import (
	"context"
	"testing"

	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/demo"
	"github.com/muxhost/muxhost/host/internal/auth"
	"github.com/muxhost/muxhost/store/mem"
)

// A client whose token ends between its check and its seat is ended as it sits down.
func TestNobodySitsDownWithATokenThatHasEnded(t *testing.T) {
	h, err := New(t.Context(), Config{Store: mem.New(), Drivers: []agent.Driver{demo.New(demo.Options{})}, Token: NewToken()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	code := 0
	c := &client{end: func(n int, _ string) { code = n }}
	h.admit(c, auth.Principal{TokenID: "revoked meanwhile"})()
	if code != closeToken {
		t.Errorf("the client was ended with %d, want %d", code, closeToken)
	}
	code = 0
	h.admit(c, auth.Principal{TokenID: "main"})()
	if code != 0 {
		t.Errorf("a client whose token holds was ended with %d", code)
	}
}
