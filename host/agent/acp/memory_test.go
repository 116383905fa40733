package acp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// withInfo is a driver whose sessions are told something else of themselves.
type withInfo struct {
	agent.Driver
	change func(*agent.Session)
}

func (d withInfo) Open(ctx context.Context, s agent.Session) (agent.Agent, error) {
	d.change(&s)
	return d.Driver.Open(ctx, s)
}

// trimmed makes the log of a session one whose start was dropped: it holds only
// events, and the fold of what came before them.
func trimmed(before []frames.Event, events ...frames.Event) func(*agent.Session) {
	return func(s *agent.Session) {
		s.History = func(_ context.Context, after frames.Seq, _ int) ([]frames.Event, error) {
			for i, e := range events {
				if e.Seq > after {
					return events[i:], nil
				}
			}
			return nil, nil
		}
		s.Base = func(context.Context) (*frames.View, frames.Seq, error) {
			v := frames.NewView()
			for _, e := range before {
				if err := v.ApplyEvent(e); err != nil {
					return nil, 0, err
				}
			}
			return v, v.Seq, nil
		}
	}
}

func said(seq frames.Seq, kind frames.EventType, text string) frames.Event {
	return frames.Event{Seq: seq, Type: kind, TurnID: "t1", Data: json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text","text":%q}],"blocks":[%d]}`, text, seq))}
}

// opener answers as an agent does that can resume, and notes which methods opened
// its sessions, and what it was prompted with.
func opener(opened *[]string, prompted *string) func(*fake) {
	return func(f *fake) {
		for {
			m, ok := f.recv()
			if !ok {
				return
			}
			switch m.Method {
			case "initialize":
				f.result(m, `{"protocolVersion":1,"agentCapabilities":{"sessionCapabilities":{"resume":{}}}}`)
			case "session/new", "session/resume":
				*opened = append(*opened, m.Method+" "+field(m.Params, "sessionId"))
				f.result(m, `{"sessionId":"fresh"}`)
			case "session/prompt":
				*prompted += string(m.Params)
				f.end(m, "end_turn")
			}
		}
	}
}

// A session whose log lost its start goes on with the agent's session that its state
// names.
func TestATrimmedLogStillResumes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var opened []string
		var told string
		cut := trimmed(nil, said(9, frames.UserMessageEvent, "late"))
		prompt(t, open(t, agenttest.Script{}, withInfo{driver(t, acp.Options{}, opener(&opened, &told)), func(s *agent.Session) {
			cut(s)
			s.State = json.RawMessage(fmt.Sprintf(`{"sessionId":"kept","for":%q}`, s.ID))
		}}))
		if len(opened) != 1 || opened[0] != "session/resume kept" || strings.Contains(told, "late") {
			t.Errorf("opened %v, prompted with %s; want a resumed session that is told nothing", opened, told)
		}
	})
}

// Which session of the agent it is is kept as state when it is opened, and noted in the
// log.
func TestTheAgentsSessionIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var opened []string
		var told string
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, opener(&opened, &told)))
		if got := s.State(); field(got, "sessionId") != "fresh" || field(got, "for") != string(s.Info.ID) {
			t.Errorf("kept %s; want the new session, for this one", got)
		}
		if got := rawOf(s, "session"); len(got) != 1 || got[0] != string(s.State()) {
			t.Errorf("noted %v; want what is kept", got)
		}
	})
}

// A new session of the agent is told the end of the whole conversation, also of the
// part that was dropped from the log.
func TestWhatWasDroppedFromTheLogIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var opened []string
		var told string
		before := []frames.Event{
			{Seq: 1, Type: frames.TurnStartEvent, TurnID: "t1", Data: json.RawMessage(`{"trigger":"prompt"}`)},
			said(2, frames.UserMessageEvent, "my name is Ada"),
			said(3, frames.AssistantMessageEvent, "hello Ada"),
			{Seq: 4, Type: frames.TurnEndEvent, TurnID: "t1", Data: json.RawMessage(`{"reason":"completed"}`)},
		}
		s := open(t, agenttest.Script{}, withInfo{
			driver(t, acp.Options{}, opener(&opened, &told)),
			trimmed(before, said(5, frames.UserMessageEvent, "and now?")),
		})
		prompt(t, s)
		for want, times := range map[string]int{"User: my name is Ada": 1, "You: hello Ada": 1, "and now?": 0} {
			if strings.Count(told, want) != times {
				t.Errorf("told %s; want %q in it %d times: the last turn still runs", told, want, times)
			}
		}
		if len(opened) != 1 || !strings.HasPrefix(opened[0], "session/new") {
			t.Errorf("opened %v; want a new session", opened)
		}
	})
}
