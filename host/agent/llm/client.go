package llm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// afterFinish is how long a stream may go on after the model has finished.
	afterFinish = 5 * time.Second
	// maxErrorBody bounds what is read of an error.
	maxErrorBody = 64 << 10
	userAgent    = "muxhost"
)

var (
	errStalled = errors.New("the model server sent nothing for too long")
	errPage    = errors.New("a web page came in place of an answer")
)

// client speaks to one endpoint. It is safe for concurrent use.
type client struct {
	url    string // of chat completions
	list   string // the URL of the list of models
	place  string // the same for people, without secrets
	http   *http.Client
	secret func() string
	header http.Header
	stall  time.Duration
	// noUsage is set once the server refused stream_options, newTokens once it
	// wanted max_completion_tokens in place of max_tokens.
	noUsage, newTokens atomic.Bool
}

func newClient(o Options) (*client, error) {
	u, err := url.Parse(o.BaseURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("llm: the base URL is not an http or https URL; want one such as http://localhost:11434/v1")
	}
	hc := &http.Client{}
	if o.HTTPClient != nil {
		*hc = *o.HTTPClient
	}
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	list := u.JoinPath("models").String()
	u = u.JoinPath("chat", "completions")
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return &client{
		url: u.String(), list: list, place: strings.TrimSuffix(shown.String(), "/chat/completions"),
		http: hc, secret: o.APIKey, header: o.Header.Clone(), stall: o.StallTimeout,
	}, nil
}

func (c *client) key() string {
	if c.secret == nil {
		return ""
	}
	return strings.TrimSpace(c.secret()) // of a file, often with a line's end
}

// headers describes a request without its secrets.
func (c *client) headers() map[string]string {
	h := map[string]string{"url": c.place + "/chat/completions", "content-type": "application/json", "accept": "text/event-stream"}
	for name := range c.header {
		h[strings.ToLower(name)] = "(set)"
	}
	if c.secret != nil {
		h["authorization"] = "(set)"
	}
	return h
}

// ask sends q and hands what comes to r until the answer is whole. A nil error
// means that it is. It blocks until then, ctx is done, or the server is silent
// for too long.
func (c *client) ask(ctx context.Context, q request, r *reply) error {
	for {
		err := c.post(ctx, c.dialect(q), r)
		if e, ok := errors.AsType[*serverError](err); !ok || !c.learn(q, e) {
			return err
		}
	}
}

// dialect writes q as this server wants it.
func (c *client) dialect(q request) request {
	q.Stream = true
	if !c.noUsage.Load() {
		q.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	if c.newTokens.Load() {
		q.MaxTokens, q.MaxCompletionTokens = 0, q.MaxTokens
	}
	return q
}

// learn reports whether e tells how the server wants q, which was not known before.
func (c *client) learn(q request, e *serverError) bool {
	switch {
	case e.status != http.StatusBadRequest:
		return false
	case strings.Contains(e.message, "stream_options"):
		return c.noUsage.CompareAndSwap(false, true)
	case strings.Contains(e.message, "max_completion_tokens") && q.MaxTokens > 0:
		return c.newTokens.CompareAndSwap(false, true)
	}
	return false
}

func (c *client) post(ctx context.Context, q request, r *reply) error {
	body, err := marshal(q)
	if err != nil {
		return fmt.Errorf("encoding the request: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(c.stall, func() { cancel(errStalled) })
	defer silence.Stop()
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return errors.New("the base URL makes no request")
	}
	c.dress(hr.Header)
	hr.Header.Set("Content-Type", "application/json")
	hr.Header.Set("Accept", "text/event-stream")
	res, err := c.http.Do(hr)
	if err != nil {
		return because(ctx, plain(err))
	}
	defer res.Body.Close()
	heard := watched{res.Body, silence, func() time.Duration {
		if r.finish != "" {
			return afterFinish
		}
		return c.stall
	}}
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(heard, maxErrorBody)) // part of it is better than nothing
		return statusError(res.StatusCode, res.Header, b)
	}
	return because(ctx, read(res.Header, heard, r))
}

// dress puts what every request has into its header.
func (c *client) dress(h http.Header) {
	maps.Copy(h, c.header)
	h.Set("User-Agent", userAgent)
	if key := c.key(); key != "" {
		h.Set("Authorization", "Bearer "+key)
	}
}

// read takes the answer from a response, an event stream or a single object.
func read(h http.Header, body io.Reader, r *reply) error {
	switch t, _, _ := mime.ParseMediaType(h.Get("Content-Type")); t { // what is no type is a stream
	case "application/json":
		return whole(body, r)
	case "text/html":
		return errPage
	}
	for data, err := range events(body) {
		if err != nil {
			return r.end(err)
		}
		if err := r.take(data); err != nil {
			return err
		}
		if r.done {
			break
		}
	}
	return r.end(nil)
}

// whole takes an answer that is a single object.
func whole(body io.Reader, r *reply) error {
	b, err := io.ReadAll(io.LimitReader(body, maxLine))
	if err != nil {
		return r.end(err)
	}
	if err := r.take(string(b)); err != nil {
		return err
	}
	return r.end(nil)
}

// watched lets silence run while it waits for a server, and only then: whoever
// takes the answer may be slow.
type watched struct {
	io.Reader
	silence *time.Timer
	limit   func() time.Duration
}

func (w watched) Read(b []byte) (int, error) {
	w.silence.Reset(w.limit())
	defer w.silence.Stop()
	return w.Reader.Read(b)
}

// because replaces an error that follows from the end of ctx by its cause.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// plain takes the URL, which may hold a secret, out of an error.
func plain(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("%w: %w", errCut, e.Err)
	}
	return err
}
