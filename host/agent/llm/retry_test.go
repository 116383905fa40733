package llm_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/llm"
)

// What passes by itself is tried again after growing pauses, and every try is told.
func TestRequestsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &stub{}
		srv.push(step{Status: 503}, step{Status: 429, Header: http.Header{"Retry-After": {"7"}}}, step{Raw: ": nothing\n\n"}, step{Raw: data("{oops")})
		_, s := open(t, options(t, srv), agenttest.Script{})
		prompt(t, s, "hi")
		var pauses []time.Duration
		seen := srv.requests()
		for i := range seen[1:] {
			pauses = append(pauses, seen[i+1].At.Sub(seen[i].At))
		}
		want := []time.Duration{time.Second, 7 * time.Second, 4 * time.Second, 8 * time.Second}
		for i, w := range want {
			if i >= len(pauses) || pauses[i] != w {
				t.Fatalf("pauses = %v; want %v", pauses, want)
			}
		}
		ends := all[frames.ModelEnd](s)
		for i, e := range ends {
			if e.Attempt != i+1 || e.OutputStarted != (i == 4) || e.Status != map[bool]string{true: "ok", false: "error"}[i == 4] {
				t.Errorf("model/end %d = %+v", i, e)
			}
		}
		if len(ends) != 5 || said(s) != "Stub answer" {
			t.Errorf("%d tries, said %q; want 5 and the answer", len(ends), said(s))
		}
	})
}

// Once something of an answer has come nothing is tried again: the turn fails, and
// no half of a call is run.
func TestNothingIsTriedAgainAfterOutput(t *testing.T) {
	for name, raw := range map[string]string{
		"text":      data(content("half")),
		"reasoning": data(`{"choices":[{"delta":{"reasoning":"r"}}]}`),
		"call":      data(calls(`{"index":0,"id":"c","function":{"name":"shell","arguments":"{\"command\":\"touch ran\"}"}}`)),
		"error":     data(content("half"), `{"error":{"message":"overloaded","code":503}}`),
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := &stub{}
			srv.push(step{Raw: raw})
			_, s := open(t, options(t, srv), agenttest.Script{})
			_, err := s.Prompt(t.Context(), "hi")
			if err == nil || len(srv.requests()) != 1 || !agenttest.Last[frames.ModelEnd](s).OutputStarted {
				t.Errorf("%s: Prompt = %v after %d requests; want an error after one", name, err, len(srv.requests()))
			}
			if n := len(all[frames.ToolCall](s)); n > 0 {
				t.Errorf("%s: %d calls were made of half an answer", name, n)
			}
		})
	}
}

// What does not pass by itself is not tried again, and the error says what to do
// without showing the key.
func TestErrorsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		step step
		want []string
	}{
		{step{Status: 401, Body: `{"error":{"message":"bad key sk-secret hidden-too"}}`}, []string{"API key", "401"}},
		{step{Status: 404, Body: `{"error":{"message":"model 'stub' not found"}}`}, []string{`"stub"`, "base URL", "not found"}},
		{step{Status: 400, Body: `{"error":"no tools here"}`}, []string{"400", "no tools here"}},
		{step{Status: 429, Body: `{"error":{"message":"pay","code":"insufficient_quota"}}`}, []string{"quota"}},
		{step{Status: 307, Header: http.Header{"Location": {"http://elsewhere.test/"}}}, []string{"elsewhere", "307"}},
		{step{Status: 400, Body: `<html>no</html>`}, []string{"400", "Bad Request"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := &stub{}
			srv.push(c.step)
			o := options(t, srv)
			o.APIKey = func() string { return "sk-secret" }
			o.Header = http.Header{"X-Key": {"hidden-too"}}
			o.BaseURL = "http://user:hidden@model.test/v1?key=hidden"
			_, s := open(t, o, agenttest.Script{})
			_, err := s.Prompt(t.Context(), "hi")
			if err == nil || len(srv.requests()) != 1 {
				t.Fatalf("%+v: %v after %d requests; want an error after one", c.step, err, len(srv.requests()))
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%+v: %v; want it to say %q", c.step, err, w)
				}
			}
			for _, e := range s.Events() {
				if h, ok := e.(frames.RequestHeader); ok {
					for k, v := range h.Headers {
						err = errors.Join(err, errors.New(k+": "+v))
					}
				}
			}
			if strings.Contains(err.Error(), "sk-secret") || strings.Contains(err.Error(), "hidden") {
				t.Errorf("a secret is told: %v", err)
			}
		})
	}
}

// A server that is not there is not waited for, and the error says to start it.
func TestRefusedConnectionSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		o := llm.Options{BaseURL: "http://localhost:11434/v1", Model: "m", HTTPClient: &http.Client{Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				tries++
				return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
			},
		}}}
		_, s := open(t, o, agenttest.Script{})
		_, err := s.Prompt(t.Context(), "hi")
		if err == nil || tries != 1 || !strings.Contains(err.Error(), "http://localhost:11434/v1") || !strings.Contains(err.Error(), "start") {
			t.Errorf("Prompt = %v after %d tries; want where, and that it should be started", err, tries)
		}
	})
}

// A server that falls silent is given up: tried again before output, an error after
// it, done where the model had finished.
func TestSilentServerIsGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		raw      string
		requests int
		fails    bool
		took     time.Duration
	}{
		"before output": {": working\n\n", 2, false, 5*time.Minute + time.Second},
		"after output":  {data(content("half")), 1, true, 5 * time.Minute},
		"after the end": {data(content("whole"), finish("stop")), 1, false, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := &stub{}
			srv.push(step{Raw: c.raw, Hang: true})
			_, s := open(t, options(t, srv), agenttest.Script{})
			began := time.Now()
			_, err := s.Prompt(t.Context(), "hi")
			if took := time.Since(began); (err != nil) != c.fails || len(srv.requests()) != c.requests || took != c.took {
				t.Errorf("%s: %v after %d requests and %v; want fails %v, %d, %v", name, err, len(srv.requests()), took, c.fails, c.requests, c.took)
			}
		})
	}
}

// A slow answer is no silent one.
func TestSlowAnswerIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &stub{}
		srv.push(step{Text: "one two three four", Delay: 4 * time.Minute})
		_, s := open(t, options(t, srv), agenttest.Script{})
		if prompt(t, s, "hi"); said(s) != "one two three four" {
			t.Errorf("said %q", said(s))
		}
	})
}

// A session that is behind is no silent server.
func TestSlowSessionIsNoSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &stub{}
		srv.push(step{Text: "one two three"})
		_, s := open(t, options(t, srv), agenttest.Script{Streamed: func(*agenttest.Session) { time.Sleep(10 * time.Minute) }})
		if prompt(t, s, "hi"); said(s) != "one two three" {
			t.Errorf("said %q", said(s))
		}
	})
}

// A cancelled turn does not wait for its next try.
func TestCancelEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &stub{}
		srv.push(step{Status: 503, Header: http.Header{"Retry-After": {"30"}}})
		_, s := open(t, options(t, srv), agenttest.Script{})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		res, err := s.Prompt(ctx, "hi")
		if err != nil || res.Reason != frames.TurnCancelled || time.Since(began) != 3*time.Second {
			t.Errorf("Prompt = %+v, %v after %v; want a cancelled turn at once", res, err, time.Since(began))
		}
	})
}

// A server that does not know stream_options is asked without them.
func TestServerWithoutStreamOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &stub{}
		srv.push(step{Status: 400, Body: `{"error":{"message":"unknown field stream_options"}}`}, step{Text: "Fine.", NoUsage: true})
		_, s := open(t, options(t, srv), agenttest.Script{})
		res := prompt(t, s, "hi")
		if got := srv.requests()[1].Body; strings.Contains(got, "stream_options") || said(s) != "Fine." || res.Usage != nil {
			t.Errorf("second request %s, said %q, usage %+v; want no options and no usage", got, said(s), res.Usage)
		}
	})
}

// The reason why a model stopped is the reason why the turn ends, and a call that
// was cut off is not run.
func TestFinishReasonsEndTheTurn(t *testing.T) {
	for finish, want := range map[string]frames.TurnEndReason{
		"stop": "", "tool_calls": "", "eos": "", "length": frames.TurnMaxTokens, "content_filter": frames.TurnRefused,
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := &stub{}
			st := step{Text: "Well,", Finish: finish}
			if want != "" {
				st.Tools = tool("shell", `{"command":"touch ran"}`)
			}
			srv.push(st)
			_, s := open(t, options(t, srv), agenttest.Script{})
			res, err := s.Prompt(t.Context(), "hi")
			if err != nil || res.Reason != want || len(all[frames.ToolCall](s)) > 0 || said(s) != "Well," {
				t.Errorf("%s: %+v, %v, said %q; want %q", finish, res, err, said(s), want)
			}
		})
	}
}

// A model that goes on for ever is stopped after its steps.
func TestStepsAreBounded(t *testing.T) {
	srv := &stub{}
	o := options(t, srv)
	o.MaxSteps = 3
	_, s := open(t, o, agenttest.Script{})
	res, err := s.Prompt(t.Context(), script(step{Tools: tool("list", `{}`)}))
	if err != nil || res.Reason != frames.TurnMaxSteps || len(srv.requests()) != 3 {
		t.Errorf("Prompt = %+v, %v after %d requests; want max-steps after 3", res, err, len(srv.requests()))
	}
}

// A used up budget ends the turn as that, wherever it shows.
func TestBudgetEndsTheTurn(t *testing.T) {
	for _, at := range []frames.EventType{"step/start", "model/start", "agent/spawned"} {
		srv := &stub{}
		_, s := open(t, options(t, srv), agenttest.Script{Event: func(_ *agenttest.Session, p frames.Payload) error {
			if p.EventType() == at {
				return agent.ErrBudget
			}
			return nil
		}})
		res, err := s.Prompt(t.Context(), script(step{Tools: tool("spawn", `{"prompt":"x"}`)}))
		if err != nil || res.Reason != frames.TurnBudgetExceeded {
			t.Errorf("at %s: %+v, %v; want budget-exceeded", at, res, err)
		}
	}
}
