package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
	"github.com/muxhost/muxhost/store/mem"
)

// inventor is an agent that emits events of types that it makes up.
type inventor struct{ events []frames.Payload }

func (inventor) Info() agent.Info { return agent.Info{Name: "inventor", Kind: "test"} }

func (a inventor) Open(context.Context, agent.Session) (agent.Agent, error) { return a, nil }

func (a inventor) Prompt(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
	for _, e := range a.events {
		if err := t.Emit(ctx, e); err != nil {
			return agent.Result{}, err
		}
	}
	return agent.Result{}, nil
}

func (inventor) Steer(context.Context, agent.Prompt) error { return agent.ErrNotTaken }
func (inventor) Close(context.Context) error               { return nil }

// invent makes JSON of no vocabulary.
func invent(r *rand.Rand, depth int) string {
	switch n := r.IntN(6); {
	case n == 0:
		return fmt.Sprint(r.Int64N(1<<53) - 1<<52)
	case n == 1:
		return "1.50e3"
	case n == 2 && depth > 0:
		return "[ " + invent(r, depth-1) + " ,null]"
	case n < 5 && depth > 0:
		return inventObject(r, depth-1)
	}
	return `"` + strings.Repeat("<ü\\u2028\\\"&>", r.IntN(3)) + `"`
}

func inventObject(r *rand.Rand, depth int) string {
	var b strings.Builder
	for i := range r.IntN(4) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q: %s", fmt.Sprintf("k%d_%d", i, r.IntN(99)), invent(r, depth))
	}
	return "{" + b.String() + "}"
}

// Vendor events go through host, store, history, frames and client byte for byte,
// are numbered as all others, and leave the fold as it would be without them.
func TestVendorEventsPassThroughUntouched(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 1))
		var agt inventor
		var want []string
		for i := range 25 {
			raw := agent.Raw{Type: frames.EventType(fmt.Sprintf("vendor%d.example/%s", i, strings.Repeat("x", 1+r.IntN(9)))), Data: json.RawMessage(inventObject(r, 5))}
			agt.events, want = append(agt.events, raw), append(want, string(raw.Type)+string(raw.Data))
		}
		cwd := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			h, err := host.New(t.Context(), host.Config{Store: mem.New(), Drivers: []agent.Driver{agt}, Token: canary})
			if err != nil {
				t.Fatal(err)
			}
			var live []string
			res, err := client.Query(t.Context(), client.Options{URL: host.LocalURL, HTTPClient: h.Local(), Token: canary}, client.Question{
				Cwd: cwd, Text: "go", Watch: func(f frames.Frame) {
					if f, ok := f.(*frames.SessionEvent); ok {
						live = append(live, vendorOf(t, f.Event)...)
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := strings.Join(live, "\n"), strings.Join(want, "\n"); got != want {
				t.Errorf("pushed:\n%s\nwant:\n%s", got, want)
			}
			if got, want := strings.Join(history(t, h, res), "\n"), strings.Join(want, "\n"); got != want {
				t.Errorf("in the history:\n%s\nwant:\n%s", got, want)
			}
			if kinds := len(res.View.Items); kinds != 1 { // the prompt
				t.Errorf("the view has %d items, want the prompt alone", kinds)
			}
			if err := h.Shutdown(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
			h.Local().CloseIdleConnections()
		})
	}
}

// vendorOf returns type and data of an event, unless the contract knows it.
func vendorOf(t *testing.T, event []byte) []string {
	t.Helper()
	e, err := frames.DecodeEvent(event)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(e.Type), "vendor") {
		return nil
	}
	if !bytes.Contains(event, e.Data) {
		t.Errorf("data %s is not in %s", e.Data, event)
	}
	return []string{string(e.Type) + string(e.Data)}
}

// history reads the session's vendor events over a call.
func history(t *testing.T, h *host.Host, res client.Result) []string {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Options{URL: host.LocalURL, HTTPClient: h.Local(), Token: canary})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var page rpc.HistoryResult
	if err := c.Call(t.Context(), "session.history", rpc.HistoryParams{SessionID: res.SessionID, Limit: rpc.MaxHistoryLimit, MaxBytes: rpc.MaxHistoryBytes}, &page); err != nil {
		t.Fatal(err)
	}
	if page.More || page.Head != res.View.Seq {
		t.Fatalf("one page of %d events, more %v; the view stands at %d", len(page.Events), page.More, res.View.Seq)
	}
	var out []string
	for _, e := range page.Events {
		out = append(out, vendorOf(t, e)...)
	}
	return out
}
