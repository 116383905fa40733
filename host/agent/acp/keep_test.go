package acp_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// An image that is too large for an event is kept as a blob of its bytes, said or as the
// result of a call; a small one stays in place.
func TestLargeImagesAreBlobs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		large := bytes.Repeat([]byte("large "), 40<<10)
		image := func(data []byte) string {
			return fmt.Sprintf(`{"type":"image","mimeType":"image/png","data":%q}`, base64.StdEncoding.EncodeToString(data))
		}
		h, s := openHost(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.update(`{"sessionUpdate":"agent_message_chunk","content":` + image([]byte("small")) + `}`)
				f.update(`{"sessionUpdate":"agent_message_chunk","content":` + image(large) + `}`)
				f.update(`{"sessionUpdate":"tool_call","toolCallId":"c","status":"completed","content":[{"type":"content","content":` + image(large) + `}]}`)
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
		var got []frames.ContentBlock
		for _, e := range s.Events() {
			switch e := e.(type) {
			case frames.AssistantMessage:
				got = append(got, e.Content...)
			case frames.ToolResult:
				got = append(got, e.Content...)
			}
		}
		if len(got) != 3 || got[0].Data == "" || got[0].Blob != "" {
			t.Fatalf("kept %.300v; want three images, the first in place", got)
		}
		for _, b := range got[1:] {
			if b.Data != "" || b.MimeType != "image/png" || !bytes.Equal(h.Blob(b.Blob), large) {
				t.Errorf("kept %.300v; want a blob of its bytes", b)
			}
		}
	})
}

// What a piece of content says beside itself, annotations or `_meta`, is kept as it came,
// once while it repeats; so is what a plan's entries say beside their text.
func TestAnnotationsAreKept(t *testing.T) {
	for _, c := range []struct{ kind, raw, plain string }{
		{
			"agent_message_chunk", `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a","annotations":{"audience":["user"]}}}`,
			`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"b","annotations":null}}`,
		},
		{
			"agent_thought_chunk", `{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"a","_meta":{"x":1}}}`,
			`{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"b"},"messageId":"m"}`,
		},
		{
			"agent_message_chunk", `{"sessionUpdate":"agent_message_chunk","content":{"type":"resource_link","uri":"file:///a","name":"a","size":7}}`,
			`{"sessionUpdate":"agent_message_chunk","content":{"type":"resource_link","uri":"file:///a","name":"a"}}`,
		},
		{
			"plan", `{"sessionUpdate":"plan","entries":[{"content":"a","priority":"low","status":"pending","_meta":{"id":7}}]}`,
			`{"sessionUpdate":"plan","entries":[{"content":"a","priority":"low","status":"completed"}]}`,
		},
	} {
		bubble(t, func(t *testing.T) {
			s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
				f.serve(func(m message) {
					f.update(c.raw)
					f.update(c.raw)
					f.update(c.plain)
					f.end(m, "end_turn")
				})
			}))
			prompt(t, s)
			if got := rawOf(s, c.kind); len(got) != 1 || got[0] != c.raw {
				t.Errorf("kept %v; want %s, once", got, c.raw)
			}
		})
	}
}

// A permission request is kept with the agent's own options, and what else it says.
func TestAPermissionRequestIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.line(`{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s1","toolCall":{"toolCallId":"c","rawInput":{"x":1}},"options":[{"optionId":"p","name":"For this project","kind":"allow_always"}],"_meta":{"why":"w"}}}`)
				f.answered("0")
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
		got := rawOf(s, "permission")
		if len(got) != 1 || !strings.Contains(got[0], `"For this project"`) || field([]byte(got[0]), "_meta", "why") != "w" || field([]byte(got[0]), "toolCall", "toolCallId") != "c" {
			t.Errorf("kept %v; want options, `_meta` and the call's id", got)
		}
	})
}

// A call that was rejected ends as rejected, also where the agent announced it and then
// says nothing more of it.
func TestARejectedCallThatWasAnnouncedEndsAsRejected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{Approve: reject}, driver(t, acp.Options{}, func(f *fake) {
			f.serve(func(m message) {
				f.update(`{"sessionUpdate":"tool_call","toolCallId":"c1","title":"x","status":"in_progress","rawInput":{"a":1}}`)
				f.ask("0", "s1", "c1")
				f.answered("0")
				f.end(m, "end_turn")
			})
		}))
		prompt(t, s)
		if r := agenttest.Last[frames.ToolResult](s); r.ErrorCode != "rejected" || count[frames.ToolResult](s) != 1 {
			t.Errorf("the result is %+v; want rejected", r)
		}
	})
}
