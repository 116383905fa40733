package acp_test

import (
	"fmt"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// A compaction that completes replaces what came before it began, with the summary that
// the agent shows; one that fails replaces nothing. Both are kept as they came.
func TestACompactionReplacesWhatCameBefore(t *testing.T) {
	for name, c := range map[string]struct {
		updates []string
		want    []frames.ContentBlock // nil: nothing is replaced
	}{
		"summary at once": {
			[]string{`{"sessionUpdate":"compaction_update","compactionId":"x","status":"completed","summary":[{"type":"text","text":"short"}]}`},
			[]frames.ContentBlock{frames.Text("short")},
		},
		"summary in chunks": {
			[]string{
				`{"sessionUpdate":"compaction_update","compactionId":"x","status":"in_progress"}`,
				`{"sessionUpdate":"compaction_summary_chunk","compactionId":"x","content":{"type":"text","text":"in "}}`,
				`{"sessionUpdate":"compaction_summary_chunk","compactionId":"x","content":{"type":"text","text":"in "}}`,
				`{"sessionUpdate":"compaction_update","compactionId":"x","status":"completed"}`,
			},
			[]frames.ContentBlock{frames.Text("in in ")},
		},
		"summary cleared": {
			[]string{
				`{"sessionUpdate":"compaction_summary_chunk","compactionId":"x","content":{"type":"text","text":"in "}}`,
				`{"sessionUpdate":"compaction_update","compactionId":"x","status":"completed","summary":null}`,
			},
			[]frames.ContentBlock{},
		},
		"failed": {
			[]string{
				`{"sessionUpdate":"compaction_update","compactionId":"x","status":"in_progress"}`,
				`{"sessionUpdate":"compaction_update","compactionId":"x","status":"failed","error":"no"}`,
			}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
					m, _ := f.until("initialize")
					if got := field(m.Params, "clientCapabilities", "session", "compaction"); got != "{}" {
						t.Errorf("compaction is offered as %q; want {}", got)
					}
					f.result(m, `{"protocolVersion":1}`)
					f.serve(func(m message) {
						f.update(`{"sessionUpdate":"plan","entries":[]}`)
						for _, u := range c.updates {
							f.update(u)
						}
						f.end(m, "end_turn")
					})
				}))
				prompt(t, s)
				if n := len(rawOf(s, "compaction_update")) + len(rawOf(s, "compaction_summary_chunk")); n != len(c.updates) {
					t.Errorf("%d updates are kept; want %d", n, len(c.updates))
				}
				if n := count[frames.SessionCompacted](s); (n == 1) != (c.want != nil) {
					t.Fatalf("events:\n%s", show(s.Events()))
				}
				if c.want == nil {
					return
				}
				got := agenttest.Last[frames.SessionCompacted](s)
				// The note of the session, the plan, and the first of the updates.
				if fmt.Sprint(got.Content) != fmt.Sprint(c.want) || got.UpTo != 3 {
					t.Errorf("compacted %+v; want %v, up to 3", got, c.want)
				}
			})
		})
	}
}

// A notice is kept as it came; one of a fault is shown as one.
func TestNotices(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.update(`{"sessionUpdate":"notice","severity":"warning","title":"W"}`)
				f.update(`{"sessionUpdate":"notice","severity":"error","title":"E","description":"d"}`)
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
		wantEvents(t, s, frames.ErrorReported{Code: "agent-notice", Message: "E: d"})
		if got := rawOf(s, "notice"); len(got) != 2 {
			t.Errorf("kept %v; want both", got)
		}
	})
}
