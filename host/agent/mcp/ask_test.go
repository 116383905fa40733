package mcp_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/mcp"
)

// never leaves questions open until their context ends, and says that they are.
func never(asked chan<- struct{}) func(context.Context, *agenttest.Session, []frames.Question) agent.Answers {
	return func(ctx context.Context, _ *agenttest.Session, _ []frames.Question) agent.Answers {
		asked <- struct{}{}
		<-ctx.Done()
		return agent.Answers{}
	}
}

// What people answer reaches the model below its question, and what it asked reaches
// people whole.
func TestAskUserTellsTheAnswers(t *testing.T) {
	var shown []frames.Question
	r := start(t, mcp.Options{}, agenttest.Script{
		Answer: func(_ context.Context, _ *agenttest.Session, q []frames.Question) agent.Answers {
			shown = q
			return agent.Answers{Outcome: frames.Answered, Cause: frames.CauseReply, Answers: []frames.Answer{
				{ID: "1", Labels: []string{"Postgres", "SQLite"}, Text: "both"}, {ID: "3", Text: "blue"},
			}}
		},
	})
	r.begin()
	text, bad := r.use("ask_user", args{"questions": []args{
		{
			"question": "Which one?", "header": "Store", "multiSelect": true, "allowText": true,
			"options": []args{{"label": "Postgres", "description": "big"}, {"label": "SQLite"}},
		},
		{"question": "Sure?", "options": []args{{"label": "yes"}}},
		{"question": "What colour?"},
	}})
	want := "Which one?\nAnswer: Postgres; SQLite; both\n\nSure?\nAnswer: (no answer)\n\nWhat colour?\nAnswer: blue"
	if bad || text != want {
		t.Errorf("ask_user = %q, error %t; want %q", text, bad, want)
	}
	wantShown := []frames.Question{
		{
			ID: "1", Header: "Store", Question: "Which one?", MultiSelect: true, AllowText: true,
			Options: []frames.QuestionOption{{Label: "Postgres", Description: "big"}, {Label: "SQLite"}},
		},
		{ID: "2", Question: "Sure?", Options: []frames.QuestionOption{{Label: "yes"}}},
		{ID: "3", Question: "What colour?", AllowText: true},
	}
	if !slices.EqualFunc(shown, wantShown, func(a, b frames.Question) bool {
		return a.ID == b.ID && a.Header == b.Header && a.Question == b.Question && a.MultiSelect == b.MultiSelect &&
			a.AllowText == b.AllowText && slices.Equal(a.Options, b.Options)
	}) {
		t.Errorf("people saw %+v, want %+v", shown, wantShown)
	}
}

// Without an answer the model is told why, and that it is no error of its own; that a
// person dismissed the question is not told as if nobody had seen it.
func TestAskUserTellsThatNobodyAnswered(t *testing.T) {
	for cause, want := range map[frames.Cause]string{
		frames.CauseReply: "It was dismissed. Decide ", frames.CauseTimeout: "Nobody answered: the time is up",
		frames.CausePolicy: "Nobody answered: in this session nobody is asked", frames.CauseModeChange: "Nobody answered: in this session nobody is asked",
		frames.CauseShutdown: "Nobody answered: the host is going down", frames.CauseAbort: "Nobody answered: the question was withdrawn",
	} {
		r := start(t, mcp.Options{}, agenttest.Script{
			Answer: func(context.Context, *agenttest.Session, []frames.Question) agent.Answers {
				return agent.Answers{Outcome: frames.Cancelled, Cause: cause}
			},
		})
		r.begin()
		text, bad := r.use("ask_user", args{"questions": []args{{"question": "well?"}}})
		if bad || !strings.HasPrefix(text, want) {
			t.Errorf("cause %s: ask_user = %q, error %t; want %q", cause, text, bad, want)
		}
	}
}

// A call that is withdrawn withdraws its question.
func TestWithdrawnCallWithdrawsItsQuestion(t *testing.T) {
	asked := make(chan struct{}, 1)
	r := start(t, mcp.Options{}, agenttest.Script{Answer: never(asked)})
	r.begin()
	ctx, cancel := context.WithCancel(t.Context())
	r.turn.Go(func() {
		<-asked
		cancel()
	})
	if _, err := r.client.CallTool(ctx, &sdk.CallToolParams{Name: "ask_user", Arguments: args{"questions": []args{{"question": "well?"}}}}); err == nil {
		t.Error("a withdrawn call was answered")
	}
	decided(t, r, frames.Cancelled)
}

// decided waits until the session's last question is, and checks how.
func decided(t *testing.T, r *rig, want frames.Outcome) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(10 * time.Second)
	for {
		if d := agenttest.Last[frames.QuestionDecided](r.session); d.ID != "" {
			if d.Outcome != want {
				t.Errorf("the question ended %s, want %s", d.Outcome, want)
			}
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("the question is open still")
		}
	}
}

// A caller that hangs up withdraws its question.
func TestCallerThatHangsUpWithdrawsItsQuestion(t *testing.T) {
	asked := make(chan struct{}, 1)
	r := start(t, mcp.Options{}, agenttest.Script{Answer: never(asked)})
	r.begin()
	wire := newWire(t, r.puppet.offer)
	c := wire.call(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ask_user","arguments":{"questions":[{"question":"well?"}]}}}`)
	<-asked
	_ = c.Close()
	decided(t, r, frames.Cancelled)
}

// A turn that ends ends its calls.
func TestEndOfTheTurnEndsItsCalls(t *testing.T) {
	asked := make(chan struct{}, 1)
	r := start(t, mcp.Options{}, agenttest.Script{Answer: never(asked)})
	end := r.begin()
	r.turn.Go(func() {
		<-asked
		close(r.puppet.cut)
	})
	text, bad := r.use("ask_user", args{"questions": []args{{"question": "well?"}}})
	if !bad && !strings.Contains(text, "withdrawn") {
		t.Errorf("ask_user = %q, error %t; want that it was cancelled", text, bad)
	}
	end()
}

// A caller that waits hears of it again and again: as progress where it asked for
// that, else as comments of the stream.
func TestCallersThatWaitAreKeptAwake(t *testing.T) {
	asked := make(chan struct{}, 2)
	r := start(t, mcp.Options{Beat: time.Millisecond}, agenttest.Script{Answer: never(asked)})
	r.begin()
	heard := make(chan *sdk.ProgressNotificationParams, 100)
	c := dialWith(t, r.puppet.offer, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, p *sdk.ProgressNotificationClientRequest) {
			select {
			case heard <- p.Params:
			default:
			}
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	r.turn.Go(func() {
		p := &sdk.CallToolParams{Name: "ask_user", Arguments: args{"questions": []args{{"question": "well?"}}}}
		p.SetProgressToken("mine")
		_, _ = c.CallTool(ctx, p)
	})
	for range 3 {
		if p := <-heard; p.ProgressToken != "mine" || !strings.HasPrefix(p.Message, "the question has waited for ") {
			t.Errorf("progress is %+v", p)
		}
	}
	cancel()
	wire := newWire(t, r.puppet.offer)
	body := wire.call(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ask_user","arguments":{"questions":[{"question":"well?"}]}}}`)
	defer body.Close()
	for range 3 {
		if line := body.line(); line != ": wait" {
			t.Errorf("the stream says %q, want a comment", line)
		}
	}
}
