package conform_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/demo"
	"github.com/muxhost/muxhost/spec/conform"
	"github.com/muxhost/muxhost/store/mem"
)

// rig is a host in this process, behind wrap.
type rig struct {
	url, token, cwd string
}

// start runs a host over memory behind wrap, which may be nil.
func start(t *testing.T, wrap func(http.Handler) http.Handler) rig {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	token := host.NewToken()
	h, err := host.New(t.Context(), host.Config{
		Store: mem.New(), Drivers: []agent.Driver{widened{demo.New(demo.Options{Speed: 1})}}, Token: token, DrainTimeout: 50 * time.Millisecond,
		Logger:     slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		AllowHosts: []string{ln.Addr().String()},
	})
	if err != nil {
		t.Fatal(err)
	}
	handler := h.Handler()
	if wrap != nil {
		handler = wrap(handler)
	}
	srv := &httptest.Server{Listener: ln, Config: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}}
	srv.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := h.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		srv.CloseClientConnections()
		srv.Close()
	})
	return rig{"http://" + ln.Addr().String(), token, t.TempDir()}
}

// Our host keeps every sentence of the contract that the kit knows.
func TestOurHostConforms(t *testing.T) {
	r := start(t, nil)
	rep, err := conform.Run(t.Context(), conform.Options{URL: r.url, Token: r.token, Cwd: r.cwd})
	if err != nil {
		t.Fatal(err)
	}
	if !rep.OK() {
		if err := rep.Print(t.Output()); err != nil {
			t.Error(err)
		}
		t.Error("the host does not conform")
	}
	t.Logf("%d checks in %v", len(rep.Results), rep.Took)
}
