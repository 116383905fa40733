package agenttest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// script is a driver whose turns are a function.
type script func(ctx context.Context, t agent.Turn, p agent.Prompt) error

func (script) Info() agent.Info { return agent.Info{Name: "script", Kind: "script"} }

func (s script) Open(context.Context, agent.Session) (agent.Agent, error) { return s, nil }

func (s script) Prompt(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
	return agent.Result{}, s(ctx, t, p)
}

func (script) Steer(context.Context, agent.Prompt) error { return agent.ErrNotTaken }

func (script) Close(context.Context) error { return nil }

func open(t *testing.T, sc agenttest.Script, d script) (*agenttest.Host, *agenttest.Session) {
	t.Helper()
	h := agenttest.New(sc, d)
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := h.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return h, s
}

// Only a decision that allows carries an input, and it is the one that was
// asked for, even when the agent changes its bytes meanwhile.
func TestAskFreezesTheInput(t *testing.T) {
	input := []byte(`{"n":1}`)
	var allowed, refused agent.Decision
	sc := agenttest.Script{Approve: func(_ context.Context, _ *agenttest.Session, a agent.Approval) agent.Decision {
		if a.Reason == "no" {
			return agent.Decision{Outcome: frames.Rejected}
		}
		input[5] = '2'
		return agent.Decision{Outcome: frames.AllowedOnce}
	}}
	_, s := open(t, sc, func(ctx context.Context, turn agent.Turn, _ agent.Prompt) (err error) {
		if refused, err = turn.Ask(ctx, agent.Approval{Input: input, Reason: "no"}); err != nil {
			return err
		}
		allowed, err = turn.Ask(ctx, agent.Approval{Input: input})
		return err
	})
	if _, err := s.Prompt(t.Context(), "go"); err != nil {
		t.Fatal(err)
	}
	if string(allowed.Input) != `{"n":1}` || refused.Input != nil {
		t.Errorf("allowed %s, refused %s; want the first bytes, and none", allowed.Input, refused.Input)
	}
}

// Children are cancelled with their parent's turn and end before it does.
func TestChildrenEndWithTheirParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := open(t, agenttest.Script{}, func(ctx context.Context, turn agent.Turn, p agent.Prompt) error {
			if p.Text() == "child" {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			_, err := turn.Spawn(ctx, agent.Spawn{Prompt: []frames.ContentBlock{frames.Text("child")}})
			return errors.Join(err, waitFor(ctx, time.Minute))
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Prompt(ctx, "parent"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Prompt = %v; want the deadline", err)
		}
		if n := len(h.Sessions()); n != 2 {
			t.Fatalf("%d sessions; want 2", n)
		}
		if got := agenttest.Last[frames.AgentCompleted](s); got.Status != "cancelled" {
			t.Errorf("agent/completed = %+v; want cancelled", got)
		}
	})
}

func waitFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Events are stored in order, all of one Emit or none, and History pages them.
func TestEmitStoresAllOrNothing(t *testing.T) {
	full := errors.New("full")
	sc := agenttest.Script{Event: func(_ *agenttest.Session, e frames.Payload) error {
		if _, ok := e.(frames.StepEnd); ok {
			return full
		}
		return nil
	}}
	_, s := open(t, sc, func(ctx context.Context, turn agent.Turn, _ agent.Prompt) error {
		if err := turn.Emit(ctx, frames.StepStart{Step: 1}, frames.StepEnd{Step: 1}); !errors.Is(err, full) {
			t.Errorf("Emit = %v; want the refusal", err)
		}
		return turn.Emit(ctx, frames.StepStart{Step: 2}, frames.TodoWrite{})
	})
	if _, err := s.Prompt(t.Context(), "go"); err != nil {
		t.Fatal(err)
	}
	if got, want := s.Types(), []frames.EventType{"step/start", "todo/write"}; !slices.Equal(got, want) {
		t.Errorf("events = %v; want %v", got, want)
	}
	page, err := s.Info.History(t.Context(), 1, 10)
	if err != nil || len(page) != 1 || page[0].Seq != 2 || page[0].Type != "todo/write" {
		t.Errorf("History after 1 = %+v, %v; want event 2", page, err)
	}
}

// Every method of a turn that is over fails with ErrTurnOver.
func TestTurnMethodsFailAfterTheEnd(t *testing.T) {
	_, s := open(t, agenttest.Script{}, func(context.Context, agent.Turn, agent.Prompt) error { return nil })
	if _, err := s.Prompt(t.Context(), "go"); err != nil {
		t.Fatal(err)
	}
	turn, ctx := s.LastTurn(), t.Context()
	_, ask := turn.Ask(ctx, agent.Approval{})
	_, question := turn.Question(ctx, frames.Question{})
	_, spawn := turn.Spawn(ctx, agent.Spawn{})
	_, _, blob := turn.Blob(ctx, strings.NewReader("x"))
	_, task := turn.Task(ctx, "k", "l")
	for name, err := range map[string]error{
		"Emit": turn.Emit(ctx, frames.TodoWrite{}), "Text": turn.Text(ctx, 0, "x"),
		"Reasoning": turn.Reasoning(ctx, 0, "x"), "Progress": turn.Progress(ctx, "c", "x"),
		"Ask": ask, "Question": question, "Spawn": spawn, "Blob": blob, "Task": task,
	} {
		if !errors.Is(err, agent.ErrTurnOver) {
			t.Errorf("%s after the end = %v; want ErrTurnOver", name, err)
		}
	}
	if got := s.Events(); len(got) != 0 {
		t.Errorf("events = %v; want none", got)
	}
}
