package llm_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/llm"
)

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// The driver keeps every promise of a driver.
func TestDriverSuite(t *testing.T) {
	d := dir(t)
	o := options(t, &stub{})
	o.Backoff = 1
	agenttest.Run(t, agenttest.Suite{
		Driver: llm.New(o),
		Script: agenttest.Script{Cwd: d},
		Short:  script(step{Text: "Hello."}),
		Long:   script(step{Text: "I begin", Hang: true}),
		Gated:  script(step{Tools: tool("shell", `{"command":"touch ran"}`)}, step{Text: "Done."}),
		Ran:    func(*agenttest.Host) bool { return exists(filepath.Join(d, "ran")) },
	})
}

// A turn streams reasoning and text into blocks, stores both whole, and tells of
// its step, its request, its usage.
func TestTurnTellsWhatHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &stub{}
		o := options(t, srv)
		o.Prices = map[string]llm.Price{"stub": {Input: "0.15", Output: "0.6"}}
		o.APIKey = func() string { return "sk-secret" }
		_, s := open(t, o, agenttest.Script{})
		res := prompt(t, s, script(step{Think: "Hm.", Text: "All is well."}))
		want := []frames.EventType{
			"turn/start", "user/message", "step/start", "model/start", "request/header", "model/end",
			"reasoning/message", "assistant/message", "step/end", "usage/updated", "turn/end",
		}
		if got := s.Types(); !slices.Equal(got, want) {
			t.Errorf("events = %v; want %v", got, want)
		}
		if got := said(s); got != "All is well." || s.Text(1) != got || s.Text(0) != "Hm." {
			t.Errorf("said %q, streamed %q after %q; want both whole", got, s.Text(1), s.Text(0))
		}
		end := agenttest.Last[frames.ModelEnd](s)
		if end.Status != "ok" || !end.OutputStarted || end.Attempt != 1 || end.Cost != "0.000162" || end.Usage.InputTokens != 1000 {
			t.Errorf("model/end = %+v; want ok, 1000 tokens in, 20 out, 0.000162", end)
		}
		if u := agenttest.Last[frames.UsageUpdated](s).Usage; u.Cost != "0.000162" || *res.Usage != u {
			t.Errorf("usage = %+v and %+v; want the same of both", u, res.Usage)
		}
		if got := srv.requests()[0].Header.Get("Authorization"); got != "Bearer sk-secret" {
			t.Errorf("the key was sent as %q", got)
		}
		if h := agenttest.Last[frames.RequestHeader](s).Headers; h["authorization"] != "(set)" {
			t.Errorf("request/header = %v; want the key hidden", h)
		}
	})
}

// A cancelled turn closes its request at once.
func TestCancelClosesTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &stub{}
		ctx, cancel := context.WithCancel(t.Context())
		_, s := open(t, options(t, srv), agenttest.Script{Streamed: func(*agenttest.Session) { cancel() }})
		res, err := s.Prompt(ctx, script(step{Text: "I begin", Hang: true}))
		if err != nil || res.Reason != frames.TurnCancelled {
			t.Errorf("Prompt = %+v, %v; want a cancelled turn", res, err)
		}
		synctest.Wait()
		if srv.left() != 1 {
			t.Error("the server still has the request")
		}
		if end := agenttest.Last[frames.ModelEnd](s); end.Status != "cancelled" || !end.OutputStarted {
			t.Errorf("model/end = %+v; want cancelled after output", end)
		}
	})
}
