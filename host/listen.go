package host

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// Bounds of HTTP requests. They end with the upgrade: a WebSocket has its own.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	idleTimeout    = 30 * time.Second
	maxHeader      = 16 << 10 // bytes
)

// ErrPlaintext is wrapped by the error of [Host.Listen] for an address beyond
// loopback without TLS.
var ErrPlaintext = errors.New("host: refusing to listen beyond this machine without TLS")

// Listen opens addr ("127.0.0.1:7717"; port 0 takes a free one) for [Host.Serve].
// Without Config.TLS it takes loopback addresses only: everyone on the way could
// read the token. It refuses before anything is opened.
func (h *Host) Listen(ctx context.Context, addr string) (net.Listener, error) {
	if err := CheckListen(addr, h.cfg.TLS != nil); err != nil {
		return nil, err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("host: listen: %w", err)
	}
	if h.cfg.TLS == nil {
		if a, ok := ln.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() { // what a name stood for
			return nil, errors.Join(fmt.Errorf("%w: %s is %s", ErrPlaintext, addr, ln.Addr()), ln.Close())
		}
		return ln, nil
	}
	conf := h.cfg.TLS.Clone()
	conf.MinVersion = max(conf.MinVersion, tls.VersionTLS12)
	conf.NextProtos = []string{"http/1.1"} // WebSockets upgrade from it
	return tls.NewListener(ln, conf), nil
}

// CheckListen refuses what [Host.Listen] would refuse, before there is a host: an
// address that is none ([ErrConfig]), and one beyond loopback unless encrypted
// ([ErrPlaintext]).
func CheckListen(addr string, encrypted bool) error {
	name, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" {
		return fmt.Errorf("%w: listen address %q: want ADDRESS:PORT, such as 127.0.0.1:7717 or [::1]:7717", ErrConfig, addr)
	}
	if encrypted || name == "localhost" {
		return nil
	}
	if ip, err := netip.ParseAddr(name); err == nil && ip.Unmap().IsLoopback() {
		return nil
	}
	return fmt.Errorf("%w: %q is not a loopback address; use 127.0.0.1:%s, or give a certificate and key", ErrPlaintext, addr, port)
}

// Serve answers on ln until ctx is done, then shuts the host down ([Host.Shutdown])
// and returns what that says. When ln fails it returns that error, and the host is
// shut down too. It closes ln.
func (h *Host) Serve(ctx context.Context, ln net.Listener) error {
	srv := h.server(newLobby(maxLobby))
	failed := make(chan error, 1)
	ended := h.seats.serve(func() { failed <- srv.Serve(ln) })
	if !ended {
		return errors.Join(http.ErrServerClosed, ln.Close())
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		if err = fmt.Errorf("host: serve: %w", err); errors.Is(err, http.ErrServerClosed) {
			err = nil // shut down by somebody else
		}
	case <-h.ctx.Done():
	}
	// Requests that wait are answered while the host drains; the listener goes
	// last, since the goroutine that serves it is one that Shutdown waits for.
	stop := context.AfterFunc(h.ctx, func() { _ = srv.Close() })
	defer stop()
	err = errors.Join(err, h.Shutdown(context.WithoutCancel(ctx)))
	_ = srv.Close()
	return err
}

// server returns a server of the host's handler with bounds of its own.
func (h *Host) server(lobby *lobby) *http.Server {
	return &http.Server{
		Handler:           h.handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return h.ctx },
		ConnState:         lobby.changed,
		ConnContext:       lobby.context,
		ErrorLog:          slog.NewLogLogger(h.cfg.Logger.Handler(), slog.LevelDebug),
	}
}

// ListenAndServe is [Host.Listen] and [Host.Serve].
func (h *Host) ListenAndServe(ctx context.Context, addr string) error {
	ln, err := h.Listen(ctx, addr)
	if err != nil {
		return err
	}
	return h.Serve(ctx, ln)
}
