package host_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
	"github.com/muxhost/muxhost/store/mem"
)

// local runs a test against a host inside the program, in virtual time.
func local(t *testing.T, test func(t *testing.T, h *host.Host, o client.Options)) {
	t.Helper()
	cwd := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h, err := host.New(t.Context(), host.Config{Store: mem.New(), Drivers: []agent.Driver{&script{}}, Token: canary})
		if err != nil {
			t.Fatal(err)
		}
		test(t, h, client.Options{URL: host.LocalURL, HTTPClient: h.Local(), Token: canary, Label: cwd})
		if err := h.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		h.Local().CloseIdleConnections()
	})
}

// query asks the script agent.
func query(ctx context.Context, o client.Options, q client.Question) (client.Result, error) {
	q.Cwd = o.Label
	return client.Query(ctx, o, q)
}

// The host inside the program demands a token as any other, and a request after the
// shutdown fails rather than waits.
func TestLocalHostHasTheSameRules(t *testing.T) {
	local(t, func(t *testing.T, h *host.Host, o client.Options) {
		stranger := o
		stranger.Token = ""
		if _, err := client.Dial(t.Context(), stranger); !errors.Is(err, client.ErrUnauthorized) {
			t.Errorf("without a token: %v, want %v", err, client.ErrUnauthorized)
		}
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://evil.example/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+canary)
		res, err := h.Local().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusForbidden {
			t.Errorf("a foreign Host: %s, want 403", res.Status)
		}
		c, err := client.Dial(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Describe(t.Context()); err != nil { // the host knows the client
			t.Fatal(err)
		}
		if err := h.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		for _, err := range c.Frames(t.Context()) {
			if err != nil {
				t.Fatalf("%v before host/draining", err)
			}
			break
		}
		_ = c.Close()
		if _, err := client.Dial(t.Context(), o); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after the shutdown: %v, want %v", err, net.ErrClosed)
		}
	})
}

// A query returns the assistant's text; what asks is rejected unless the program
// answers, and its answers count for children too.
func TestQueryAnswersAsTheProgramSays(t *testing.T) {
	local(t, func(t *testing.T, _ *host.Host, o client.Options) {
		allow := func(context.Context, *frames.ApprovalRequested) rpc.ApprovalParams {
			return rpc.ApprovalParams{Outcome: frames.AllowedOnce}
		}
		asked := 0
		for _, c := range []struct {
			q    client.Question
			want string
		}{
			{client.Question{Text: "say hello world"}, "hello world"},
			{client.Question{Text: `ask {"c":1}`}, "rejected by reply"},
			{client.Question{Text: `ask {"c":1}`, Approve: allow}, "allowed-once by reply"},
			{client.Question{Text: "question", Answer: func(_ context.Context, f *frames.QuestionRequested) []frames.Answer {
				asked++
				return []frames.Answer{{ID: f.Questions[0].ID, Labels: []string{"b"}}}
			}}, ""},
			{client.Question{Text: "question"}, ""},
		} {
			res, err := query(t.Context(), o, c.q)
			if err != nil || res.Text != c.want || res.Reason != frames.TurnCompleted || res.View.Seq == 0 {
				t.Errorf("%s: text %q, reason %q, error %v; want %q", c.q.Text, res.Text, res.Reason, err, c.want)
			}
		}
		if asked != 1 {
			t.Errorf("the program was asked %d questions, want 1", asked)
		}
		below := 0
		res, err := query(t.Context(), o, client.Question{Text: `spawn ask {"c":1}`, Approve: func(_ context.Context, f *frames.ApprovalRequested) rpc.ApprovalParams {
			below = f.Depth
			return rpc.ApprovalParams{Outcome: frames.AllowedOnce}
		}})
		if err != nil || below != 1 || len(res.View.Children()) != 1 {
			t.Errorf("a child's request: depth %d, %d children, error %v; want depth 1 of 1 child", below, len(res.View.Children()), err)
		}
	})
}

// A query whose turn fails says how; one that is given up leaves no turn running.
func TestQueryEndsItsTurn(t *testing.T) {
	local(t, func(t *testing.T, _ *host.Host, o client.Options) {
		res, err := query(t.Context(), o, client.Question{Text: "nonsense"})
		if te, ok := errors.AsType[*client.TurnError](err); !ok || te.Reason != frames.TurnError || res.Reason != frames.TurnError {
			t.Errorf("a failing agent: %v with %+v, want a TurnError", err, res.Reason)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		res, err = query(ctx, o, client.Question{Text: "wait"})
		if !errors.Is(err, context.DeadlineExceeded) || res.SessionID == "" {
			t.Fatalf("a query without an end: %v of session %q, want %v", err, res.SessionID, context.DeadlineExceeded)
		}
		c, err := client.Dial(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s, err := c.Attach(t.Context(), res.SessionID)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Wait(t.Context(), res.TurnID, nil)
		if te, ok := errors.AsType[*client.TurnError](err); !ok || te.Reason != frames.TurnCancelled {
			t.Errorf("the turn that was given up: %v, want cancelled", err)
		}
	})
}
