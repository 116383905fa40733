package stubllm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/host/agent/agenttest/stubllm"
)

// talk is one wire format, as a client of it speaks.
type talk struct {
	name, path string
	// said and result are one message each.
	said, result func(text string) string
	// body is a whole request.
	body func(tools bool, messages ...string) string
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func bodyOf(format, tools string) func(bool, ...string) string {
	return func(with bool, messages ...string) string {
		offered := "[]"
		if with {
			offered = tools
		}
		return fmt.Sprintf(format, strings.Join(messages, ","), offered)
	}
}

func message(format string) func(string) string {
	return func(text string) string { return fmt.Sprintf(format, quote(text)) }
}

func talks() []talk {
	return []talk{
		{
			"chat", "/v1/chat/completions",
			message(`{"role":"user","content":[{"type":"text","text":%s}]}`),
			message(`{"role":"tool","tool_call_id":"c","content":%s}`),
			bodyOf(`{"model":"m","stream":true,"messages":[{"role":"system","content":"be good"},%s],"tools":%s}`,
				`[{"type":"function","function":{"name":"bash"}}]`),
		},
		{
			"responses", "/v1/responses",
			message(`{"type":"message","role":"user","content":[{"type":"input_text","text":%s}]}`),
			message(`{"type":"function_call_output","call_id":"c","output":%s}`),
			bodyOf(`{"model":"m","stream":true,"input":[%s],"tools":%s}`, `[{"type":"function","name":"bash"}]`),
		},
		{
			"anthropic", "/v1/messages",
			message(`{"role":"user","content":%s}`),
			message(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":%s}]}`),
			bodyOf(`{"model":"m","stream":true,"messages":[%s],"tools":%s}`, `[{"name":"bash"}]`),
		},
		{
			"gemini", "/v1beta/models/m:streamGenerateContent",
			message(`{"role":"user","parts":[{"text":%s}]}`),
			message(`{"role":"user","parts":[{"functionResponse":{"name":"bash","response":{"output":%s}}}]}`),
			bodyOf(`{"contents":[%s],"tools":%s}`, `[{"functionDeclarations":[{"name":"bash"}]}]`),
		},
	}
}

// post sends one request and returns the status and the whole answer.
func post(ctx context.Context, h http.Handler, path, body string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

// wants fails unless the answer has every word, and nothing that begins with "!".
func wants(t *testing.T, got string, words ...string) {
	t.Helper()
	for _, w := range words {
		word, not := strings.CutPrefix(w, "!")
		if strings.Contains(got, word) == not {
			t.Errorf("answer %s\nhas %q: %v, want %v", got, word, not, !not)
		}
	}
}

// In every format a script is played step by step, as results of its tools come,
// and a later script starts anew.
func TestScriptIsPlayedInEveryFormat(t *testing.T) {
	first := stubllm.Script(
		stubllm.Step{Think: "hmm-hmm", Text: "ALPHA", Chunks: 1, Tools: []stubllm.Tool{
			stubllm.Call("bash", map[string]string{"command": "echo a"}),
			stubllm.Call("bash", map[string]string{"command": "echo b && c"}),
		}},
		stubllm.Step{Text: "BETA", Chunks: 1},
	)
	second := stubllm.Script(stubllm.Step{Text: "GAMMA", Chunks: 1})
	for _, k := range talks() {
		t.Run(k.name, func(t *testing.T) {
			var seen stubllm.Request
			h := stubllm.New(stubllm.Options{OnRequest: func(r stubllm.Request) { seen = r }})
			ask := func(tools bool, messages ...string) string {
				t.Helper()
				code, got := post(t.Context(), h, k.path, k.body(tools, messages...))
				if code != http.StatusOK || seen.Wire != k.name {
					t.Fatalf("status %d, wire %q; want 200, %q: %s", code, seen.Wire, k.name, got)
				}
				return got
			}
			prompt := k.said("please play " + first + " now")
			got := ask(true, prompt)
			wants(t, got, "ALPHA", "hmm-hmm", "bash", "!BETA", "!Stub title", "data: ")
			if n := strings.Count(strings.ReplaceAll(got, "\\", ""), "echo "); n < 2 {
				t.Errorf("%d of 2 calls in %s", n, got)
			}
			wants(t, ask(true, prompt, k.result("done a")), "ALPHA", "!BETA")
			wants(t, ask(true, prompt, k.result("done a"), k.result("done b")), "BETA", "!ALPHA")
			if seen.Results != 2 || seen.Steps != 2 || len(seen.Tools) != 1 {
				t.Errorf("told of results %d, steps %d, tools %v; want 2, 2, one tool", seen.Results, seen.Steps, seen.Tools)
			}
			wants(t, ask(true, prompt, k.result("done a"), k.result("b"), k.said(second)), "GAMMA", "!BETA")
			wants(t, ask(true, k.said("no script here")), "Stub title", "!ALPHA")
			wants(t, ask(false, prompt), "Stub", "!hmm-hmm")
		})
	}
}

// A field of the newest result finds its way into the arguments of the next call.
func TestArgumentsTakeFieldsOfTheLastResult(t *testing.T) {
	script := stubllm.Script(
		stubllm.Step{Tools: []stubllm.Tool{stubllm.Call("spawn", nil)}},
		stubllm.Step{Tools: []stubllm.Tool{stubllm.Call("wait", map[string][]string{"ids": {"{{agent_id}}", "{{nothing}}"}})}},
	)
	for _, k := range talks() {
		_, got := post(t.Context(), stubllm.New(stubllm.Options{}), k.path, k.body(true, k.said(script), k.result(`{"agent_id":"kid-7"}`)))
		wants(t, got, "kid-7", "!{{agent_id}}", "{{nothing}}")
	}
}

// A scripted status is an HTTP error.
func TestStatusAnswersWithAnError(t *testing.T) {
	script := stubllm.Script(stubllm.Step{Status: http.StatusTooManyRequests})
	for _, k := range talks() {
		code, got := post(t.Context(), stubllm.New(stubllm.Options{}), k.path, k.body(true, k.said(script)))
		if code != http.StatusTooManyRequests || !strings.Contains(got, "scripted failure") {
			t.Errorf("%s: %d %s; want 429 and an error", k.name, code, got)
		}
	}
}

// A slow answer takes as long as its script says, and none goes on for a client that left.
func TestSlowAnswerEndsWithItsClient(t *testing.T) {
	script := stubllm.Script(stubllm.Step{Text: "abcd", Chunks: 4, DelayMS: 1000, HangMS: 5000, Tools: []stubllm.Tool{stubllm.Call("bash", nil)}})
	for _, k := range talks() {
		synctest.Test(t, func(t *testing.T) {
			h, body := stubllm.New(stubllm.Options{}), k.body(true, k.said(script))
			start := time.Now()
			_, got := post(t.Context(), h, k.path, body)
			if d := time.Since(start); d != 9*time.Second || !strings.Contains(got, "bash") {
				t.Errorf("%s: answered after %v, want 9s and a call: %s", k.name, d, got)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			start = time.Now()
			_, got = post(ctx, h, k.path, body)
			if d := time.Since(start); d != 1500*time.Millisecond || strings.Contains(got, "bash") {
				t.Errorf("%s: ended after %v, want 1.5s and no call: %s", k.name, d, got)
			}
		})
	}
}

// A cut answer breaks its connection before the tools.
func TestCutBreaksTheConnection(t *testing.T) {
	script := stubllm.Script(stubllm.Step{Text: "abc", Cut: true, Tools: []stubllm.Tool{stubllm.Call("bash", nil)}})
	for _, k := range talks() {
		func() {
			defer func() {
				if got := recover(); got != http.ErrAbortHandler {
					t.Errorf("%s: recovered %v, want http.ErrAbortHandler", k.name, got)
				}
			}()
			post(t.Context(), stubllm.New(stubllm.Options{}), k.path, k.body(true, k.said(script)))
		}()
	}
}

// What is asked whole is answered whole.
func TestAnswersWithoutAStream(t *testing.T) {
	script := stubllm.Script(stubllm.Step{Text: "hello", Tools: []stubllm.Tool{stubllm.Call("bash", map[string]int{"n": 7})}})
	for _, k := range talks() {
		if k.name == "responses" {
			continue // always a stream
		}
		path := strings.Replace(k.path, ":streamG", ":g", 1)
		body := strings.Replace(k.body(true, k.said(script)), `"stream":true`, `"stream":false`, 1)
		_, got := post(t.Context(), stubllm.New(stubllm.Options{}), path, body)
		var v map[string]any
		if err := json.Unmarshal([]byte(got), &v); err != nil {
			t.Errorf("%s: %v: %s", k.name, err, got)
		}
		wants(t, got, `"hello"`, "bash", "7")
	}
}

// What is no request of a known format is refused with what was wrong.
func TestStrangeRequestsAreRefused(t *testing.T) {
	h := stubllm.New(stubllm.Options{})
	for path, want := range map[string]int{
		"/v1/chat/completions": http.StatusBadRequest, "/v1/responses": http.StatusBadRequest,
		"/v1/messages": http.StatusBadRequest, "/v1/embeddings": http.StatusNotFound,
		"/v1/messages/count_tokens": http.StatusOK, "/v1beta/models/m:countTokens": http.StatusOK,
	} {
		if code, got := post(t.Context(), h, path, `[1]`); code != want {
			t.Errorf("%s: %d %s; want %d", path, code, got, want)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/models", nil))
	wants(t, w.Body.String(), "stub-model")
}
