package acp_test

import (
	"strings"
	"testing"

	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// What an agent said of itself can be shown, until its process is gone.
func TestDescribe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{ApprovalMode: "ask"}, func(f *fake) {
			m, _ := f.until("initialize")
			f.result(m, `{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"x":1},"agentInfo":{"name":"n","title":"T","version":"2"},"authMethods":[{"id":"key"}]}`)
			m, _ = f.until("session/new")
			f.result(m, `{"sessionId":"s1",`+modes+`,"configOptions":[{"id":"model","type":"select","currentValue":"a","options":[{"value":"a"},{"value":"b"}]}]}`)
			f.serve(func(message) { panicked(f) })
		}))
		f, ok := acp.Describe(s.Agent)
		if !ok || f.Name != "n" || f.Title != "T" || f.Version != "2" || f.Protocol != 1 || f.Mode != "ask" || !f.Shared ||
			strings.Join(f.Modes, " ") != "auto ask plan" || strings.Join(f.Models, " ") != "a b" ||
			strings.Join(f.Auth, " ") != "key" || string(f.Capabilities) != `{"loadSession":true,"x":1}` {
			t.Errorf("Describe = %+v, %t", f, ok)
		}
		if _, err := s.Prompt(t.Context(), "go"); err == nil {
			t.Error("the turn ended well; want a crash")
		}
		if f, ok := acp.Describe(s.Agent); ok {
			t.Errorf("Describe = %+v of an agent that is gone; want none", f)
		}
	})
}
