package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// What a bridge's process finds its door by; see [Bridge].
const (
	EnvURL   = "MUXHOST_MCP_URL"
	EnvToken = "MUXHOST_MCP_TOKEN" //nolint:gosec // the name of it
)

const (
	// maxCarried bounds the responses that a bridge reads at once; the next message
	// waits until one is read.
	maxCarried = 2 * maxCalls
	// parting is how long responses may take that are under way when the input ends.
	parting = time.Second
	// maxReply bounds one message of the host in bytes.
	maxReply = 4 << 20
)

// Bridge speaks the protocol on a process's streams, a message a line, for the door
// at url, whose bearer token is token. It returns when in ends, or when ctx is done
// and the line that it waits for was read; what is under way ends with it. A line that
// the host does not take is answered with an error, so that the agent goes on without
// the tools. An error says that the bridge cannot begin, or cannot read or write.
func Bridge(ctx context.Context, in io.Reader, out io.Writer, rawURL, token string) error {
	if err := checkDoor(rawURL, token); err != nil {
		return err
	}
	b := &bridge{
		url: rawURL, token: token, out: out, lines: make(chan []byte), carried: make(chan struct{}, maxCarried),
		client: &http.Client{
			Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: maxCarried},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	defer b.client.CloseIdleConnections()
	b.writer.Go(b.write)
	err := b.read(in)
	b.part()
	close(b.lines)
	b.writer.Wait()
	return errors.Join(err, b.broken)
}

// checkDoor refuses to send a token anywhere but to this machine.
func checkDoor(rawURL, token string) error {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "http" || !net.ParseIP(u.Hostname()).IsLoopback() || u.User != nil {
		return fmt.Errorf("mcp: the address of the host's tools is not one: want http://127.0.0.1:PORT%s, in $%s", path, EnvURL)
	}
	if token == "" {
		return fmt.Errorf("mcp: there is no token for the host's tools: want it in $%s", EnvToken)
	}
	return nil
}

// bridge carries messages both ways. Messages go to the host one after the other;
// their responses are read beside each other and written by one goroutine.
type bridge struct {
	url, token string
	client     *http.Client
	out        io.Writer

	ctx     context.Context //nolint:containedctx // the lifetime of what is under way
	cancel  context.CancelCauseFunc
	session string // the protocol session, once there is one
	version string // of the protocol, likewise
	lines   chan []byte
	carried chan struct{}
	readers sync.WaitGroup
	writer  sync.WaitGroup
	broken  error // of writing; read after the writer ended
}

// write is the only writer of out. After a failure it throws away what comes.
func (b *bridge) write() {
	for line := range b.lines {
		if b.broken != nil {
			continue
		}
		if _, err := b.out.Write(append(line, '\n')); err != nil {
			b.broken = fmt.Errorf("mcp: write to the agent: %w", err)
			b.cancel(b.broken)
		}
	}
}

// read carries every line of in to the host.
func (b *bridge) read(in io.Reader) error {
	sc := bufio.NewScanner(in)
	sc.Buffer(make([]byte, 64<<10), maxBody)
	for sc.Scan() && b.ctx.Err() == nil {
		if line := bytes.TrimSpace(sc.Bytes()); len(line) > 0 {
			b.carry(bytes.Clone(line))
		}
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("mcp: read from the agent: %w; want lines of at most %d bytes", err, maxBody)
	}
	return nil
}

// part lets go of the host: what is under way may end shortly, then it is cut.
func (b *bridge) part() {
	timer := time.AfterFunc(parting, func() { b.cancel(errGone) })
	b.readers.Wait()
	timer.Stop()
	b.cancel(errGone)
	if b.session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), parting)
	defer cancel()
	if resp, err := b.do(ctx, http.MethodDelete, nil); err == nil {
		_ = resp.Body.Close()
	}
}

// message is what the bridge looks at.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result struct {
		ProtocolVersion string `json:"protocolVersion"`
	} `json:"result"`
}

// call reports whether an answer is owed.
func (m message) call() bool {
	return m.Method != "" && len(m.ID) > 0 && string(m.ID) != "null"
}

// carry sends one message. It returns once the host has begun to answer, so that a
// withdrawal never overtakes what it withdraws.
func (b *bridge) carry(line []byte) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		b.fail(json.RawMessage("null"), -32700, "the line is no message: "+err.Error())
		return
	}
	resp, err := b.do(b.ctx, http.MethodPost, line)
	if err == nil && resp.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		_ = resp.Body.Close()
		err = fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(text))
	}
	switch {
	case err != nil && m.call():
		b.fail(m.ID, -32603, "the host's tools are not there: "+err.Error())
	case err != nil:
	case !m.call():
		_ = resp.Body.Close()
	case m.Method == "initialize":
		b.session = resp.Header.Get(sessionHeader)
		b.answer(m, resp)
	default:
		b.carried <- struct{}{}
		b.readers.Go(func() {
			defer func() { <-b.carried }()
			b.answer(m, resp)
		})
	}
}

// do makes one request.
func (b *bridge) do(ctx context.Context, method string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, b.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+b.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if b.session != "" {
		req.Header.Set(sessionHeader, b.session)
	}
	if b.version != "" {
		req.Header.Set("Mcp-Protocol-Version", b.version)
	}
	return b.client.Do(req)
}

// answer writes what the host answers to m: any number of notifications, then the
// response. Where that does not come, it makes one.
func (b *bridge) answer(m message, resp *http.Response) {
	defer resp.Body.Close()
	first := m.Method == "initialize"
	err := events(resp, func(data []byte) {
		var got message
		if json.Unmarshal(data, &got) == nil && got.Method == "" {
			m.Method = "" // it is answered
			if first {
				b.version = got.Result.ProtocolVersion
			}
		}
		b.lines <- data
	})
	if m.call() && b.ctx.Err() == nil {
		why := "the host went away"
		if err != nil {
			why = err.Error()
		}
		b.fail(m.ID, -32603, "the call was not answered: "+why)
	}
}

// fail answers in the host's place.
func (b *bridge) fail(id json.RawMessage, code int, text string) {
	line, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": text},
	})
	if err == nil {
		b.lines <- line
	}
}

// events hands each message of a response to take, whose bytes are its own.
func events(resp *http.Response, take func(data []byte)) error {
	if resp.Header.Get("Content-Type") == "application/json" {
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
		if err == nil {
			var one bytes.Buffer
			if err = json.Compact(&one, data); err == nil {
				take(one.Bytes())
			}
		}
		return err
	}
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(make([]byte, 64<<10), maxReply)
	var data []byte
	for sc.Scan() {
		line := sc.Bytes()
		if text, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, bytes.TrimPrefix(text, []byte(" "))...)
		} else if len(line) == 0 && len(data) > 0 {
			take(data)
			data = nil
		}
	}
	return sc.Err()
}
