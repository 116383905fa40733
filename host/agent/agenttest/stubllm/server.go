package stubllm

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// Options of a model. The zero value does.
type Options struct {
	// OnRequest, if set, is told of each request before it is answered, from the
	// goroutine that serves it: more than one at a time.
	OnRequest func(Request)
}

// Request is what a request asked for.
type Request struct {
	Method, Path string
	// Wire is "chat", "responses", "anthropic", "gemini", "count", "models", or
	// "unknown", which is answered with 404.
	Wire  string
	Model string
	// Tools are the names of the tools that were offered; none is a call aside.
	Tools []string
	// Results is the number of tool results behind the last script, Steps how many
	// steps that has.
	Results, Steps int
	Body           []byte
}

// maxBody bounds a request, in bytes.
const maxBody = 32 << 20

// New returns a model. A streamed answer is ended when its client leaves.
func New(o Options) http.Handler { return &server{opt: o} }

type server struct {
	opt Options
	ids atomic.Int64
}

// wire is one format: how a request is read, and a step told.
type wire struct {
	name string
	read func(body []byte, c *conversation) error
	play func(*reply, Step)
}

var (
	chatWire      = wire{"chat", readChat, playChat}
	responsesWire = wire{"responses", readResponses, playResponses}
	anthropicWire = wire{"anthropic", readAnthropic, playAnthropic}
	geminiWire    = wire{"gemini", readGemini, playGemini}
	countWire     = wire{"count", readNothing, func(r *reply, _ Step) { r.json(object{"input_tokens": 1234, "totalTokens": 1234}) }}
	modelsWire    = wire{"models", readNothing, playModels}
	unknownWire   = wire{"unknown", readNothing, func(r *reply, _ Step) { r.fail(http.StatusNotFound, "there is no such endpoint") }}
)

func readNothing([]byte, *conversation) error { return nil }

// wireOf tells the format by the path.
func wireOf(r *http.Request) wire {
	p := r.URL.Path
	switch {
	case r.Method == http.MethodGet && strings.HasSuffix(p, "/models"):
		return modelsWire
	case r.Method != http.MethodPost:
		return unknownWire
	case strings.HasSuffix(p, "/chat/completions"):
		return chatWire
	case strings.HasSuffix(p, "/responses"):
		return responsesWire
	case strings.HasSuffix(p, "/messages/count_tokens"), strings.HasSuffix(p, ":countTokens"):
		return countWire
	case strings.HasSuffix(p, "/messages"):
		return anthropicWire
	case strings.HasSuffix(p, ":generateContent"), strings.HasSuffix(p, ":streamGenerateContent"):
		return geminiWire
	}
	return unknownWire
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := &reply{s: s, w: w, r: r}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		out.fail(http.StatusRequestEntityTooLarge, err.Error())
		return
	}
	wire := wireOf(r)
	err = wire.read(body, &out.conversation)
	c := &out.conversation
	if s.opt.OnRequest != nil {
		s.opt.OnRequest(Request{
			Method: r.Method, Path: r.URL.Path, Wire: wire.name, Model: c.model,
			Tools: c.tools, Results: c.results, Steps: len(c.steps), Body: body,
		})
	}
	if err != nil {
		out.fail(http.StatusBadRequest, fmt.Sprintf("the body is no %s request: %v", wire.name, err))
		return
	}
	step := c.next()
	if step.Status >= http.StatusBadRequest {
		out.fail(step.Status, "scripted failure")
		return
	}
	wire.play(out, step)
}

func playModels(r *reply, _ Step) {
	r.json(object{"object": "list", "models": list{}, "data": list{
		object{"id": "stub-model", "object": "model", "owned_by": "stub"},
	}})
}

// id mints an id.
func (s *server) id(prefix string) string { return fmt.Sprintf("%s_stub%04d", prefix, s.ids.Add(1)) }

type (
	object = map[string]any
	list   = []any
)

// decode reads a request.
func decode[T any](body []byte) (T, error) {
	var v T
	err := json.Unmarshal(body, &v)
	return v, err
}
