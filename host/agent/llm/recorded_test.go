package llm_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/llm"
)

// outcome is what becomes of a turn whose first answer is a recording. Every later
// request is answered with "Again.".
type outcome struct {
	said, thought string
	calls         []string // name and arguments
	reason        frames.TurnEndReason
	err           string // what the error says
	requests      int    // default 1
	input         int64  // prompt tokens of the first answer, 0: not told
}

const (
	list  = `list {"path":"."}`
	todo  = `todo {"todos":[]}`
	again = "Again."
)

// recordings are the answers in testdata/streams: what OpenAI, Ollama, llama.cpp,
// vLLM, SGLang, LM Studio and OpenRouter send, and what goes wrong on the way.
func recordings() map[string]outcome {
	well := outcome{said: "All is wéll."}
	halfway := func(err string) outcome { return outcome{said: "Half an", err: err} }
	retried := outcome{said: again, requests: 2}
	both := outcome{said: again, calls: []string{list, todo}, requests: 2}
	and := func(o outcome, f func(*outcome)) outcome { f(&o); return o }
	counted := func(n int64) func(*outcome) { return func(o *outcome) { o.input = n } }
	return map[string]outcome{
		"openai-text":               and(well, counted(1200)),
		"openai-tools":              and(both, counted(1200)),
		"openai-length":             {said: "To be continued", reason: frames.TurnMaxTokens, input: 1200},
		"openai-filter":             {said: "I can", reason: frames.TurnRefused},
		"openai-refusal":            {said: "I'm sorry, no.", reason: frames.TurnRefused},
		"ollama-tools":              and(and(both, counted(170)), func(o *outcome) { o.thought = "Okay, look." }),
		"ollama-no-index":           both,
		"ollama-no-id":              both,
		"llamacpp-tools":            {said: again, thought: "Look first.", calls: []string{list}, requests: 2, input: 900},
		"llamacpp-error-field":      {err: "does not fit into the window"},
		"llamacpp-overflow":         {err: "does not fit into the window"},
		"vllm-tools":                {said: "Looking." + again, thought: "Hm, so.", calls: []string{list, todo}, requests: 2, input: 1200},
		"vllm-error-object":         {err: "does not fit into the window"},
		"vllm-usage-in-every-chunk": {said: "Counted.", input: 1200},
		"sglang-tools":              both,
		"name-in-every-piece":       both,
		"arguments-as-object":       {said: again, calls: []string{list}, requests: 2},
		"lmstudio-text":             well,
		"lmstudio-error-event":      {err: "The model has crashed"},
		"lmstudio-overflow":         {err: "does not fit into the window"},
		"openrouter-keep-alive":     well,
		"openrouter-error-later":    {said: "All", err: "Provider disconnected"},
		"openrouter-error-first":    retried,
		"cut-in-event":              halfway("cut before the answer was whole"),
		"finish-error":              halfway("ended with an error"),
		"long-error":                {err: "no such thing"},
		"cut-in-call":               {err: "cut before the answer was whole"},
		"cut-before-output":         retried,
		"cut-after-finish":          well,
		"cut-chunk":                 halfway("cut before the answer was whole"),
		"malformed-later":           halfway("no JSON"),
		"malformed-first":           retried,
		"wrong-types":               halfway("no JSON"),
		"no-done":                   well,
		"done-without-finish":       well,
		"empty":                     retried,
		"null-everywhere":           well,
		"not-streamed":              and(well, counted(1200)),
		"error-with-200":            {err: "model is not loaded"},
		"web-page":                  {err: "a web page"},
		"rate-limited":              retried,
		"rate-limited-for-long":     {err: "try again in 1h0m0s"},
		"bad-gateway":               retried,
		"model-not-found":           {err: "install or choose another model"},
		"no-tools":                  {err: "cannot call tools"},
		"validation-error":          {err: "Field required"},
	}
}

// tape answers the first request with a recording, as it came over the wire, and
// later ones with "Again.". Then it hangs up.
type tape struct {
	raw   []byte
	drip  time.Duration // between two bytes
	mu    sync.Mutex
	plays int
}

// dial connects to the tape.
func (p *tape) dial(wg *sync.WaitGroup) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		wg.Go(func() {
			defer there.Close()
			p.play(there)
		})
		return here, nil
	}
}

func (p *tape) play(c net.Conn) {
	q, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	if _, err := io.Copy(io.Discard, q.Body); err != nil {
		return
	}
	p.mu.Lock()
	p.plays++
	raw := p.raw
	if p.plays > 1 {
		raw = []byte("HTTP/1.1 200 OK\nContent-Type: text/event-stream\nConnection: close\n\n" + data(content(again), finish("stop"), "[DONE]"))
	}
	p.mu.Unlock()
	if p.drip == 0 {
		_, _ = c.Write(raw) // whoever hung up heard enough
		return
	}
	for i := range raw {
		if _, err := c.Write(raw[i : i+1]); err != nil {
			return
		}
		time.Sleep(p.drip) // virtual
	}
}

// Every recorded answer, sound or faulty, has exactly its outcome, whether it comes at
// once or drips in byte by byte.
func TestRecordedAnswers(t *testing.T) {
	files, err := filepath.Glob("testdata/streams/*.http")
	if err != nil {
		t.Fatal(err)
	}
	want := recordings()
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".http")
		o, ok := want[name]
		if !ok {
			t.Errorf("%s: nobody says what becomes of it", file)
			continue
		}
		delete(want, name)
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, drip := range []time.Duration{0, time.Second} {
			t.Run(name+" "+drip.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { replay(t, raw, drip, o) })
			})
		}
	}
	for name := range want {
		t.Errorf("testdata/streams/%s.http is missing", name)
	}
}

// replay runs a turn against the recording and compares.
func replay(t *testing.T, raw []byte, drip time.Duration, want outcome) {
	var wg sync.WaitGroup
	defer wg.Wait()
	p := &tape{raw: raw, drip: drip}
	tr := &http.Transport{DialContext: p.dial(&wg)}
	defer tr.CloseIdleConnections()
	o := llm.Options{BaseURL: "http://model.test/v1", Model: "m", HTTPClient: &http.Client{Transport: tr}}
	_, s := open(t, o, agenttest.Script{})
	res, err := s.Prompt(t.Context(), "hi")
	var said, thought bytes.Buffer
	for _, m := range all[frames.AssistantMessage](s) {
		said.WriteString(words(m.Content))
	}
	for _, m := range all[frames.ReasoningMessage](s) {
		thought.WriteString(words(m.Content))
	}
	if err != nil { // the host writes what was streamed
		said.WriteString(strings.TrimSpace(s.Text(0)))
	}
	var calls []string
	for _, c := range all[frames.ToolCall](s) {
		calls = append(calls, c.Name+" "+string(c.Input))
	}
	if said.String() != want.said || thought.String() != want.thought || !slices.Equal(calls, want.calls) || res.Reason != want.reason {
		t.Errorf("said %q after thinking %q, called %q, ended %q; want %q, %q, %q, %q",
			said.String(), thought.String(), calls, res.Reason, want.said, want.thought, want.calls, want.reason)
	}
	if (err != nil) != (want.err != "") || err != nil && !strings.Contains(err.Error(), want.err) {
		t.Errorf("error %v; want %q", err, want.err)
	}
	if n := max(want.requests, 1); p.plays != n {
		t.Errorf("%d requests; want %d", p.plays, n)
	}
	first := all[frames.ModelEnd](s)[0]
	if (first.Usage != nil) != (want.input > 0) || first.Usage != nil && first.Usage.InputTokens != want.input {
		t.Errorf("usage %+v; want %d tokens in", first.Usage, want.input)
	}
	for _, r := range all[frames.ToolResult](s) {
		if r.IsError {
			t.Errorf("a call failed: %+v", r)
		}
	}
}
