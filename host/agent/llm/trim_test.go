package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// trimmed is a session's log whose beginning was dropped, with the fold of that.
type trimmed struct {
	t     *testing.T
	all   func(ctx context.Context, after frames.Seq, limit int) ([]frames.Event, error)
	upTo  frames.Seq
	bases int // how often the fold was read
	fail  error
}

func (l *trimmed) history(ctx context.Context, after frames.Seq, limit int) ([]frames.Event, error) {
	return l.all(ctx, max(after, l.upTo), limit)
}

func (l *trimmed) base(ctx context.Context) (*frames.View, frames.Seq, error) {
	l.bases++
	if l.upTo == 0 || l.fail != nil {
		return nil, 0, l.fail
	}
	events, err := l.all(ctx, 0, int(l.upTo))
	if err != nil {
		return nil, 0, err
	}
	v := frames.NewView()
	for _, e := range events {
		if err := v.ApplyEvent(e); err != nil {
			l.t.Fatal(err)
		}
	}
	b, err := json.Marshal(v.Durable())
	if err != nil {
		return nil, 0, err
	}
	back := frames.NewView()
	return back, l.upTo, json.Unmarshal(b, back)
}

// trim makes the session's log one that can be trimmed.
func trim(t *testing.T, s *agenttest.Session) *trimmed {
	t.Helper()
	l := &trimmed{t: t, all: s.Info.History}
	s.Info.History, s.Info.Base = l.history, l.base
	return l
}

// A trim changes nothing for the model: not for an agent that opens behind it, not for
// one that was open while it came, not where the beginning was summarised, and what a
// session used goes on from there.
func TestTrimChangesNothing(t *testing.T) {
	for _, window := range []int64{0, 5000} {
		for _, fresh := range []bool{true, false} {
			srv := &stub{summary: "THE SUMMARY"}
			o := options(t, srv)
			o.ContextWindow = window
			_, s := open(t, o, agenttest.Script{})
			l := trim(t, s)
			s.Agent = reopen(t, o, s)
			size := 100
			if window > 0 {
				size = 2200
			}
			long(t, srv, s, 6, size)
			prompt(t, s, "with usage")
			if n := len(all[frames.SessionCompacted](s)); (n > 0) != (window > 0) {
				t.Fatalf("window %d: %d summaries", window, n)
			}
			whole := reopen(t, o, s) // knows nothing yet and sees the whole log first
			l.upTo = frames.Seq(len(s.Events()))
			if fresh {
				s.Agent = reopen(t, o, s)
			}
			srv.push(step{Text: "last"})
			prompt(t, s, "after the trim")
			seen := srv.requests()
			after := seen[len(seen)-1]
			used := agenttest.Last[frames.UsageUpdated](s).Usage
			if !strings.HasSuffix(roles(after), "|user:with usage|assistant:Stub answer|user:after the trim") || used.InputTokens < 2000 || fresh && l.bases == 0 {
				t.Errorf("window %d, fresh %v: the model saw %s, used %+v, the fold was read %d times", window, fresh, roles(after), used, l.bases)
			}
			l.upTo, s.Agent = 0, whole
			srv.push(step{Text: "last"})
			prompt(t, s, "untrimmed")
			seen = srv.requests()
			if got, want := roles(seen[len(seen)-1]), roles(after)+"|assistant:last|user:untrimmed"; got != want {
				t.Errorf("window %d, fresh %v: with a trim the model saw\n%s\nwithout\n%s", window, fresh, want, got)
			}
		}
	}
}

// An agent that knows less than was dropped meanwhile takes the fold for it.
func TestTrimOfWhatIsNotKnownYet(t *testing.T) {
	srv := &stub{}
	o := options(t, srv)
	_, s := open(t, o, agenttest.Script{})
	l := trim(t, s)
	first := reopen(t, o, s)
	s.Agent = first
	prompt(t, s, "one")
	s.Agent = reopen(t, o, s) // another one goes on meanwhile
	prompt(t, s, "two")
	prompt(t, s, "three")
	l.upTo = frames.Seq(len(s.Events()))
	s.Agent = first
	prompt(t, s, "four")
	seen := srv.requests()
	want := "system:|user:one|assistant:Stub answer|user:two|assistant:Stub answer|user:three|assistant:Stub answer|user:four"
	if got := roles(seen[len(seen)-1]); got != want || l.bases != 1 {
		t.Errorf("the model saw %s, the fold was read %d times; want %s, once", got, l.bases, want)
	}
}

// Where the fold cannot be read, the turn fails rather than forget silently.
func TestTrimWithoutItsFoldFailsTheTurn(t *testing.T) {
	srv := &stub{}
	o := options(t, srv)
	_, s := open(t, o, agenttest.Script{})
	l := trim(t, s)
	prompt(t, s, "one")
	l.upTo, l.fail = frames.Seq(len(s.Events())), errors.New("the disk is gone")
	s.Agent = reopen(t, o, s)
	_, err := s.Prompt(t.Context(), "two")
	if err == nil || !strings.Contains(err.Error(), "the disk is gone") || len(srv.requests()) != 1 {
		t.Errorf("Prompt = %v after %d requests; want the error, and none", err, len(srv.requests()))
	}
}
