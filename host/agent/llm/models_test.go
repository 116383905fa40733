package llm_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/llm"
	"github.com/muxhost/muxhost/host/internal/session"
)

// An endpoint says which models it has; what it says instead is an error that tells
// what to do, without the key.
func TestListModels(t *testing.T) {
	for _, c := range []struct {
		status       int
		body, models string
		err          string
	}{
		{200, `{"object":"list","data":[{"id":"qwen3:8b","object":"model"},{"id":"gpt-oss"}]}`, "qwen3:8b gpt-oss", ""},
		{200, `{"object":"list","data":[]}`, "", ""},
		{200, `{"models":[]}`, "", "no list of models"},
		{200, `<html>`, "", "web page"},
		{401, `{"error":{"message":"bad key sk-secret"}}`, "", "refused the API key"},
		{404, `not found`, "", "base URL"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var path, auth string
			o := llm.Options{BaseURL: "http://u:p@model.test/v1?key=k", APIKey: func() string { return "sk-secret" }}
			o.HTTPClient = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				path, auth = r.URL.String(), r.Header.Get("Authorization")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			got, err := llm.ListModels(t.Context(), o)
			if strings.Join(got, " ") != c.models || (err != nil) != (c.err != "") {
				t.Errorf("%d %s: %q, %v; want %q, %q", c.status, c.body, got, err, c.models, c.err)
			}
			if err != nil && (!strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "sk-secret") || strings.Contains(err.Error(), "u:p")) {
				t.Errorf("%d %s: %v; want %q without the key", c.status, c.body, err, c.err)
			}
			if path != "/v1/models?key=k" || auth != "Bearer sk-secret" {
				t.Errorf("asked %s as %q", path, auth)
			}
		})
	}
}

// An endpoint that does not answer is given up after its time, and with its caller.
func TestListModelsEnds(t *testing.T) {
	for _, after := range []time.Duration{time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			o := llm.Options{BaseURL: "http://model.test/v1", StallTimeout: time.Minute}
			o.HTTPClient = serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			began := time.Now()
			_, err := llm.ListModels(ctx, o)
			if took := time.Since(began); err == nil || took != min(after, time.Minute) {
				t.Errorf("ListModels = %v after %v; want an error after %v", err, took, min(after, time.Minute))
			}
		})
	}
}

// The default model is always one of the models that are offered, and first where
// the list lacks it.
func TestInfoNamesItsModels(t *testing.T) {
	for _, c := range []struct{ models, want []string }{
		{nil, nil},
		{[]string{"b"}, []string{"a", "b"}},
		{[]string{"b", "a"}, []string{"b", "a"}},
	} {
		if got := llm.New(llm.Options{BaseURL: "http://x.test", Model: "a", Models: c.models}).Info().Models; !slices.Equal(got, c.want) {
			t.Errorf("models of %q = %q; want %q", c.models, got, c.want)
		}
	}
}

// The default rules let reading tools run unasked and nothing else, and give way to a
// deny rule.
func TestDefaultRules(t *testing.T) {
	hosted(t, func(t *testing.T, r *real, _ *stub, cwd string) {
		put(t, cwd, "a", "x")
		calls := []stubTool{
			{"read", `{"path":"a"}`},
			{"list", `{}`},
			{"search", `{"pattern":"x"}`},
			{"todo", `{"todos":[]}`},
			{"spawn", `{"prompt":"hi"}`},
			{"write", `{"path":"b","content":""}`},
			{"edit", `{"path":"a","old":"x","new":"y"}`},
			{"shell", `{"command":"true"}`},
		}
		policy := &frames.Policy{Mode: "deny", Rules: append(llm.DefaultRules(), frames.Rule{Tool: "search", Decision: "deny"})}
		id := r.create(session.CreateArgs{Cwd: cwd, Policy: policy})
		r.prompt(id, frames.ModeQueue, script(step{Tools: calls}, step{Text: "Done."}))
		time.Sleep(time.Minute) // virtual
		var got []string
		for i, e := range r.events(id, frames.ToolResultEvent) {
			if strings.Contains(string(e.Data), `"isError":true`) {
				got = append(got, calls[i].Name)
			}
		}
		if want := []string{"search", "write", "edit", "shell"}; !slices.Equal(got, want) {
			t.Errorf("not run: %q; want %q", got, want)
		}
	})
}

// What a server wants otherwise is learned from its refusal, once: newer models take
// max_completion_tokens. Reasoning effort is passed on.
func TestServersDialectIsLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &stub{}
		srv.push(step{Status: 400, Body: `{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","code":"unsupported_parameter"}}`})
		o := options(t, srv)
		o.MaxTokens, o.ReasoningEffort = 500, "high"
		_, s := open(t, o, agenttest.Script{})
		prompt(t, s, "one")
		prompt(t, s, "two")
		seen := srv.requests()
		if len(seen) != 3 || !strings.Contains(seen[0].Body, `"max_tokens":500`) {
			t.Fatalf("%d requests, the first %s; want three, and max_tokens first", len(seen), seen[0].Body)
		}
		for _, q := range seen[1:] {
			if strings.Contains(q.Body, `"max_tokens"`) || !strings.Contains(q.Body, `"max_completion_tokens":500`) || !strings.Contains(q.Body, `"reasoning_effort":"high"`) {
				t.Errorf("request = %s; want max_completion_tokens and the effort", q.Body)
			}
		}
	})
}

// A server that keeps refusing is not asked for ever.
func TestRefusalThatTeachesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &stub{}
		srv.push(slices.Repeat([]step{{Status: 400, Body: `{"error":{"message":"stream_options and max_completion_tokens"}}`}}, 9)...)
		o := options(t, srv)
		o.MaxTokens = 1
		_, s := open(t, o, agenttest.Script{})
		if _, err := s.Prompt(t.Context(), "one"); err == nil || len(srv.requests()) != 2 {
			t.Errorf("Prompt = %v after %d requests; want an error after two", err, len(srv.requests()))
		}
	})
}

// A date in Retry-After is waited for like seconds.
func TestRetryAfterADate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &stub{}
		at := time.Now().Add(42 * time.Second).UTC()
		srv.push(step{Status: 503, Header: http.Header{"Retry-After": {at.Format(http.TimeFormat)}}})
		_, s := open(t, options(t, srv), agenttest.Script{})
		prompt(t, s, "one")
		if seen := srv.requests(); len(seen) != 2 || !seen[1].At.Equal(at) {
			t.Errorf("%d requests, the last at %v; want the second at %v", len(seen), seen[len(seen)-1].At, at)
		}
	})
}
