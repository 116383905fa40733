package conform_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/demo"
	"github.com/muxhost/muxhost/spec/conform"
	"github.com/muxhost/muxhost/store/mem"
)

// rig is a host in this process, behind a middleman where there is one.
type rig struct {
	url, token, cwd string
}

// listen opens a loopback port.
func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// serve answers on a port until the test ends.
func serve(t *testing.T, ln net.Listener, h http.Handler) {
	srv := &httptest.Server{Listener: ln, Config: &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}}
	srv.Start()
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
}

// start runs a host over memory, behind m if that is not nil.
func start(t *testing.T, m *middle) rig {
	t.Helper()
	back, front := listen(t), listen(t)
	token := host.NewToken()
	h, err := host.New(t.Context(), host.Config{
		Store: mem.New(), Drivers: []agent.Driver{demo.New(demo.Options{Speed: 1})}, Token: token, DrainTimeout: 50 * time.Millisecond,
		Logger:     slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
		AllowHosts: []string{front.Addr().String()},
	})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, back, h.Handler())
	if m == nil {
		m = &middle{}
	}
	m.host, m.back, m.token = h.Handler(), "http://"+back.Addr().String(), token
	serve(t, front, m)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := h.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		m.wg.Wait()
	})
	return rig{"http://" + front.Addr().String(), token, t.TempDir()}
}

// run plays the kit.
func (r rig) run(t *testing.T, opt conform.Options) *conform.Report {
	t.Helper()
	opt.URL, opt.Token, opt.Cwd = r.url, r.token, r.cwd
	rep, err := conform.Run(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// show prints a report into the test's output.
func show(t *testing.T, rep *conform.Report) {
	t.Helper()
	if err := rep.Print(t.Output()); err != nil {
		t.Error(err)
	}
}

// Our host keeps every sentence of the contract that the kit knows, behind a
// middleman that passes everything on.
func TestOurHostConforms(t *testing.T) {
	t.Parallel()
	opt := conform.Options{Brief: raced}
	if raced { // a flood takes a minute then
		opt.Families = slices.DeleteFunc(conform.Families(), func(f string) bool { return f == "slow" })
	}
	rep := start(t, nil).run(t, opt)
	if !rep.OK() {
		show(t, rep)
		t.Error("the host does not conform")
	}
	if n := len(rep.Results); n < 600 {
		t.Errorf("%d checks were played; want at least 600", n)
	}
	t.Logf("%d checks in %v", len(rep.Results), rep.Took)
}
