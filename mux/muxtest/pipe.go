package muxtest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/mux"
)

// tripper serves each request on the handler, and hands an upgraded one a pipe.
type tripper struct{ h http.Handler }

type hijackable struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (w hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.conn, bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn)), nil
}

func (rt tripper) RoundTrip(r *http.Request) (*http.Response, error) {
	client, server := net.Pipe()
	w := hijackable{httptest.NewRecorder(), server}
	rt.h.ServeHTTP(w, r)
	resp := w.Result()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return resp, errors.Join(client.Close(), server.Close())
	}
	resp.Body = client
	return resp, nil
}

// Dial opens a WebSocket to h over a pipe. h may return once it has upgraded. A
// refused upgrade returns the response and an error. header and protocols may
// be nil; the default protocol is "muxhost.v1".
func Dial(ctx context.Context, h http.Handler, header http.Header, protocols ...string) (*websocket.Conn, *http.Response, error) {
	if len(protocols) == 0 {
		protocols = []string{"muxhost.v1"}
	}
	c, resp, err := websocket.Dial(ctx, "ws://muxhost.test/v1/ws", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: tripper{h}}, HTTPHeader: header, Subprotocols: protocols,
	})
	if err == nil {
		c.SetReadLimit(-1)
	}
	return c, resp, err
}

// Pipe is [Dial] for tests: a failure ends t, and the socket is closed with it.
func Pipe(t testing.TB, h http.Handler) *websocket.Conn {
	t.Helper()
	c, _, err := Dial(t.Context(), h, nil)
	if err != nil {
		t.Fatalf("dial over a pipe: %v", err)
	}
	t.Cleanup(func() { _ = c.CloseNow() })
	return c
}

// Accept joins one client to hub and returns both ends. What the client sends is
// read and dropped; the pair ends with t.
func Accept(t testing.TB, hub *mux.Hub, o mux.AcceptOptions) (*mux.Conn, *websocket.Conn) {
	t.Helper()
	var server *mux.Conn
	var wg sync.WaitGroup
	client := Pipe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := hub.Accept(w, r, o)
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		server = c
		wg.Go(func() {
			for {
				if _, err := c.Read(context.Background()); err != nil {
					return
				}
			}
		})
	}))
	t.Cleanup(func() {
		_ = client.CloseNow()
		<-server.Done()
		wg.Wait()
	})
	return server, client
}

// Deaf joins a client to hub that takes every byte and never says anything, not
// even a pong.
func Deaf(t testing.TB, hub *mux.Hub, o mux.AcceptOptions) *mux.Conn {
	t.Helper()
	client, server := net.Pipe()
	r := httptest.NewRequest(http.MethodGet, "/v1/ws", nil)
	for k, v := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
	} {
		r.Header.Set(k, v)
	}
	c, err := hub.Accept(hijackable{httptest.NewRecorder(), server}, r, o)
	if err != nil {
		t.Fatalf("accept: %v", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(io.Discard, client) })
	wg.Go(func() { _, _ = c.Read(context.Background()) })
	t.Cleanup(func() {
		_ = client.Close()
		wg.Wait()
		<-c.Done()
	})
	return c
}

// Join is [Accept] with a client that reads all the time.
func Join(t testing.TB, hub *mux.Hub, id frames.ClientID) (*mux.Conn, *Client) {
	t.Helper()
	server, ws := Accept(t, hub, mux.AcceptOptions{ID: id})
	return server, Watch(t, ws)
}
