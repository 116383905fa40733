package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/muxhost/muxhost/frames"
)

const (
	subprotocol = "muxhost.v1"
	dialTimeout = 15 * time.Second
)

// Close codes of the contract that are not WebSocket's own.
const (
	closeRevoked = 4001
	closeSlow    = 4008
	closeErrors  = 4029
)

// errSilent is a host that sent nothing for 2.5 heartbeats.
var errSilent = errors.New("client: the host is silent")

// run owns the connections until the client ends.
func (c *Client) run(first *link) {
	err := c.keep(first)
	c.cancel(err)
	c.queue.end(err)
	c.opt.OnState(StateClosed)
}

// keep serves one connection after the other; it returns why no more will come.
func (c *Client) keep(l *link) error {
	attempt := 0
	for {
		c.opt.OnState(StateConnected)
		cause := c.serve(l)
		c.setLink(nil)
		close(l.gone)
		c.opt.Logger.Debug("connection ended", slog.Any("cause", cause))
		if err := c.final(cause); err != nil {
			return err
		}
		c.opt.OnState(StateDisconnected)
		if l.resumed() {
			attempt = 0
		}
		atOnce := attempt == 0 && websocket.CloseStatus(cause) == closeSlow
		next, err := c.redial(&attempt, atOnce)
		if err != nil {
			return err
		}
		l = newLink(c, next)
		c.setLink(l)
	}
}

// final returns the error that ends the client, nil if it should come back.
func (c *Client) final(cause error) error {
	if err := c.ended(); err != nil {
		return err
	}
	ce, ok := errors.AsType[websocket.CloseError](cause)
	if ok && (ce.Code == closeRevoked || ce.Code == closeErrors) {
		return &TerminalError{Code: int(ce.Code), Reason: ce.Reason}
	}
	return nil
}

// redial tries to connect until it succeeds or there is no use.
func (c *Client) redial(attempt *int, atOnce bool) (*websocket.Conn, error) {
	for ; ; atOnce = false {
		if !atOnce {
			if err := c.pause(*attempt); err != nil {
				return nil, err
			}
		}
		*attempt++
		sock, err := c.dial(c.ctx)
		switch {
		case err == nil:
			return sock, nil
		case c.ended() != nil:
			return nil, c.ended()
		case errors.Is(err, ErrUnauthorized):
			return nil, err
		}
		c.opt.Logger.Debug("connection failed", slog.Any("error", err))
	}
}

// pause waits between half and the whole of the backoff of an attempt.
func (c *Client) pause(attempt int) error {
	d := min(c.opt.MinBackoff<<min(attempt, 20), c.opt.MaxBackoff)
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.ctx.Done():
		return c.ended()
	}
}

// dial opens one WebSocket.
func (c *Client) dial(ctx context.Context) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	o := c.opt
	if o.URLFunc != nil {
		var err error
		if o.URL, err = o.URLFunc(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
	}
	addr, err := endpoint(o)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	token := c.opt.Token
	if c.opt.TokenFunc != nil {
		if token, err = c.opt.TokenFunc(ctx); err != nil {
			return nil, fmt.Errorf("%w: no token: %w", ErrUnreachable, err)
		}
	}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	sock, resp, err := websocket.Dial(ctx, addr, &websocket.DialOptions{
		HTTPClient: c.opt.HTTPClient, HTTPHeader: header, Subprotocols: []string{subprotocol},
	})
	switch {
	case resp != nil && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden):
		return nil, fmt.Errorf("%w: %s", ErrUnauthorized, said(resp))
	case err != nil && resp != nil && resp.StatusCode != http.StatusSwitchingProtocols:
		return nil, refused(resp)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	case sock.Subprotocol() != subprotocol:
		_ = sock.CloseNow() // it speaks something else
		return nil, fmt.Errorf("%w: it does not speak %s", ErrUnreachable, subprotocol)
	}
	return sock, nil
}

// RefusedError is a host that answered the handshake and opened no WebSocket: 429,
// the token has as many connections as it may; 503, the host is full or goes down.
// It wraps [ErrUnreachable]; coming back later may help.
type RefusedError struct {
	Status int    // of the answer, as in HTTP
	Reason string // what the host wrote, "" if nothing
}

func (e *RefusedError) Error() string {
	reason := cmp.Or(e.Reason, http.StatusText(e.Status), "it does not say why")
	return fmt.Sprintf("client: the host opened no connection: %s (HTTP %d)", reason, e.Status)
}

// Unwrap returns [ErrUnreachable].
func (e *RefusedError) Unwrap() error { return ErrUnreachable }

// refused reads why a host opened no WebSocket: the message of its refusal, or the
// start of another's words.
func refused(resp *http.Response) *RefusedError {
	b := body(resp)
	var ref struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(b), &ref); err == nil && ref.Error.Message != "" {
		b = ref.Error.Message
	}
	return &RefusedError{Status: resp.StatusCode, Reason: b}
}

// said is the status of a refusal and the start of what the host wrote with it.
func said(resp *http.Response) string {
	return strings.TrimSpace(resp.Status + " " + body(resp))
}

// body is the start of what the host wrote with a refusal.
func body(resp *http.Response) string {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 300)) // what there is of it
	return strings.TrimSpace(strings.ToValidUTF8(string(b), ""))
}

// endpoint returns the address of the WebSocket.
func endpoint(o Options) (string, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("%w: the URL %q is not http://host:port", ErrUnreachable, o.URL)
	}
	u.Scheme = strings.Replace(u.Scheme, "http", "ws", 1)
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/ws"
	}
	q := u.Query()
	q.Set("heartbeat", strconv.Itoa(int(o.Heartbeat/time.Second)))
	if o.Label != "" {
		q.Set("label", o.Label)
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// serve runs one connection to its end and returns why it ended.
func (c *Client) serve(l *link) error {
	l.wg.Go(l.write)
	l.wg.Go(func() {
		if err := c.resume(l); err != nil {
			l.cancel(fmt.Errorf("resume: %w", err))
			return
		}
		close(l.ready)
		c.opt.OnState(StateResumed)
	})
	err := c.read(l)
	l.end(err)
	return err
}

// read takes messages until the connection ends.
func (c *Client) read(l *link) error {
	idle := c.opt.Heartbeat * 5 / 2
	for {
		ctx, cancel := context.WithTimeoutCause(l.ctx, idle, errSilent)
		_, msg, err := l.sock.Read(ctx)
		if err != nil && websocket.CloseStatus(err) == -1 && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		cancel()
		if err == nil {
			err = c.take(l, msg)
		}
		if err != nil {
			return err
		}
	}
}

// take handles one message: a response goes to its call, a frame to the buffer.
func (c *Client) take(l *link, msg []byte) error {
	if isResponse(msg) {
		return l.answer(msg)
	}
	f, err := frames.DecodeFrame(msg)
	if err != nil {
		return fmt.Errorf("the host sent a frame that cannot be read: %w", err)
	}
	// Room first: a cursor that has moved over a frame must not lose it.
	if err := c.queue.room(c.ctx); err != nil {
		return err
	}
	v, err := c.book.take(f)
	if err != nil {
		return err
	}
	if v.reset {
		c.queue.put(Message{Frame: &Reset{v.session}})
	}
	if v.pass {
		c.queue.put(Message{Frame: f, Raw: msg})
	}
	return nil
}

// notice hands out a frame that the host did not send.
func (c *Client) notice(f frames.Frame) error {
	if err := c.queue.room(c.ctx); err != nil {
		return err
	}
	c.queue.put(Message{Frame: f})
	return nil
}
