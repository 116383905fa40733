package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// serverError is what a model server answered instead of a model's answer.
type serverError struct {
	status  int    // 0 inside a stream
	code    string // its own word, such as "model_not_found"
	message string
	after   time.Duration // Retry-After, 0 if there is none
}

func (e *serverError) Error() string {
	if e.status == 0 {
		return "the model server reports: " + e.message
	}
	return fmt.Sprintf("the model server answered %d: %s", e.status, e.message)
}

// later says when to try again.
func (e *serverError) later() string {
	if e.after > 0 {
		return "in " + e.after.Round(time.Second).String()
	}
	return "later"
}

// maxServerMessage bounds what is told of a server's words.
const maxServerMessage = 1 << 10

// statusError reads what a server said with a status that is not 200.
func statusError(status int, h http.Header, body []byte) *serverError {
	e := &serverError{status: status}
	var b struct {
		Error   json.RawMessage `json:"error"`
		Message loose           `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &b) == nil {
		e.message, e.code = errorText(b.Error)
		if e.message == "" {
			e.message, _ = errorText(b.Detail)
		}
		if e.message == "" {
			e.message = string(b.Message)
		}
	} else if !strings.HasPrefix(strings.TrimSpace(string(body)), "<") {
		e.message = strings.TrimSpace(string(body))
	}
	if e.message == "" {
		e.message = http.StatusText(status)
	}
	e.message, _ = frames.Preview(frames.ValidText(e.message), maxServerMessage)
	e.after = retryAfter(h)
	return e
}

// retryAfter is how long a server asks to be left alone: seconds, or a date. 0 means
// that it does not ask.
func retryAfter(h http.Header) time.Duration {
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 {
		return time.Duration(min(s, 1e6) * float64(time.Second))
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, time.Until(t))
	}
	return 0
}

// streamError is an error inside a stream.
func streamError(raw json.RawMessage) *serverError {
	e := &serverError{}
	e.message, e.code = errorText(raw)
	e.message, _ = frames.Preview(frames.ValidText(e.message), maxServerMessage)
	if n, err := strconv.Atoi(e.code); err == nil && n >= 400 && n < 600 {
		e.status = n
	}
	return e
}

// errorText reads an error that is a string or an object.
func errorText(raw json.RawMessage) (message, code string) {
	if len(raw) == 0 {
		return "", ""
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, ""
	}
	var o struct {
		Message loose           `json:"message"`
		Type    loose           `json:"type"`
		Code    json.RawMessage `json:"code"`
	}
	if json.Unmarshal(raw, &o) != nil {
		return string(raw), ""
	}
	code = strings.Trim(string(o.Code), `"`)
	if code == "" || code == "null" {
		code = string(o.Type)
	}
	return string(o.Message), code
}

// passing reports whether the same request may succeed later.
func passing(err error) bool {
	if e, ok := errors.AsType[*serverError](err); ok {
		if e.code == "insufficient_quota" || e.after > maxPause {
			return false
		}
		switch e.status {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
			http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, 529:
			return true
		}
		return false
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return false
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok && e.IsNotFound {
		return false
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, errCut) || errors.Is(err, errStalled)
}

// overflow lists what servers say of a prompt that is too long for the model.
var overflow = []string{
	"context_length_exceeded", "maximum context length", "context size", "context length", "context window",
	"exceed_context_size", "too many tokens", "prompt is too long",
}

// tooLong reports whether a server refused a prompt for its length.
func tooLong(err error) bool {
	e, ok := errors.AsType[*serverError](err)
	if !ok || e.status != 0 && e.status != http.StatusBadRequest && e.status != http.StatusRequestEntityTooLarge &&
		e.status != http.StatusInternalServerError {
		return false
	}
	said := strings.ToLower(e.code + " " + e.message)
	for _, o := range overflow {
		if strings.Contains(said, o) {
			return true
		}
	}
	return false
}

// explain says what went wrong with a request, and what to do. It never shows the
// key.
func (c *client) explain(err error, model string) error {
	e, ok := errors.AsType[*serverError](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return c.hint("nothing listens at %s: start the model server there, or give this agent the right base URL", c.place)
	case errors.Is(err, errPage):
		return c.hint("%s answered with a web page: give this agent the base URL of the programming interface, which often ends in /v1", c.place)
	case !ok && errors.Is(err, context.DeadlineExceeded), errors.Is(err, errStalled):
		return c.hint("%s sent nothing for %v: it may be loading the model or be overloaded; try again, or raise the stall timeout", c.place, c.stall)
	case !ok:
		if _, dns := errors.AsType[*net.DNSError](err); dns {
			return c.hint("the host name of %s is not known: check the base URL of this agent", c.place)
		}
		return c.hint("%s cannot be used: %v; try again", c.place, err)
	case e.status == http.StatusUnauthorized, e.status == http.StatusForbidden:
		return c.hint("%s refused the API key (%d: %s): set the key that this agent should use", c.place, e.status, e.message)
	case e.status == http.StatusNotFound:
		return c.hint("%s has no model %q, or no chat completions (404: %s): install or choose another model, and check that the base URL "+
			"is what stands before /chat/completions", c.place, model, e.message)
	case e.status >= 300 && e.status < 400:
		return c.hint("%s sends requests elsewhere (%d): use the address that it names as base URL", c.place, e.status)
	case tooLong(err):
		return c.hint("the conversation does not fit into the window of %q (%s): use shorter input or a model with a larger window", model, e.message)
	case strings.Contains(e.message, "not support tools"):
		return c.hint("the model %q of %s cannot call tools (%d: %s): choose one that can", model, c.place, e.status, e.message)
	case e.code == "insufficient_quota":
		return c.hint("%s says that the account has no quota left (%s): top it up or use another agent", c.place, e.message)
	case e.status == http.StatusTooManyRequests:
		return c.hint("%s takes no more requests now (429: %s): try again %s", c.place, e.message, e.later())
	case e.status == 0:
		return c.hint("%s gave an answer up: %s; try again", c.place, e.message)
	}
	return c.hint("%s refused the request (%d: %s)", c.place, e.status, e.message)
}

func (c *client) hint(format string, args ...any) error {
	s := fmt.Sprintf(format, args...)
	for _, secret := range c.secrets() {
		s = strings.ReplaceAll(s, secret, "[secret]")
	}
	return errors.New("llm: " + s)
}

// minSecret is the length from which a header's value is looked for in what people
// are told; shorter ones are ordinary words.
const minSecret = 8

func (c *client) secrets() (all []string) {
	if key := c.key(); key != "" {
		all = append(all, key)
	}
	for _, values := range c.header {
		for _, v := range values {
			if len(v) >= minSecret {
				all = append(all, v)
			}
		}
	}
	return all
}
