package acp_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// blobs are what the host keeps in these tests.
func blobs(s *agent.Session) {
	s.ReadBlob = func(_ context.Context, id frames.BlobID) (io.ReadCloser, error) {
		switch id {
		case "png":
			return io.NopCloser(strings.NewReader("\x89PNG")), nil
		case "text":
			return io.NopCloser(strings.NewReader("whole text")), nil
		case "huge":
			return io.NopCloser(io.LimitReader(zeros{}, 20<<20+1)), nil
		}
		return nil, errors.New("no such blob")
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// What a prompt names as a blob reaches the agent whole, in the form that it takes; what
// cannot be read, or is too large, refuses the prompt before it is sent.
func TestBlobsOfAPromptAreRead(t *testing.T) {
	const all = `"image":true,"embeddedContext":true`
	for name, c := range map[string]struct {
		takes string
		block frames.ContentBlock
		want  string // of the prompt, or of the error
		fails bool
	}{
		"an image":               {all, frames.ContentBlock{Type: "image", MimeType: "image/png", Blob: "png"}, `[{"data":"iVBORw==","mimeType":"image/png","type":"image"}]`, false},
		"an image in place":      {all, frames.ContentBlock{Type: "image", MimeType: "image/png", Data: "AA==", URI: "file:///a"}, `[{"data":"AA==","mimeType":"image/png","type":"image","uri":"file:///a"}]`, false},
		"a resource of text":     {all, frames.ContentBlock{Type: "resource", URI: "file:///a", MimeType: "text/plain", Blob: "text"}, `[{"resource":{"mimeType":"text/plain","text":"whole text","uri":"file:///a"},"type":"resource"}]`, false},
		"a resource of bytes":    {all, frames.ContentBlock{Type: "resource", URI: "file:///a", Blob: "png"}, `[{"resource":{"blob":"iVBORw==","uri":"file:///a"},"type":"resource"}]`, false},
		"a linked blob":          {all, frames.ContentBlock{Type: "resource_link", URI: "blob:x", Name: "x", Blob: "text"}, `[{"resource":{"text":"whole text","uri":"blob:x"},"type":"resource"}]`, false},
		"a link":                 {all, frames.ContentBlock{Type: "resource_link", URI: "file:///a"}, `[{"name":"file:///a","type":"resource_link","uri":"file:///a"}]`, false},
		"text that was cut":      {all, frames.ContentBlock{Type: "text", Text: "who", Truncated: &frames.Truncated{Bytes: 10, Blob: "text"}}, `[{"text":"whole text","type":"text"}]`, false},
		"text for a plain agent": {"", frames.ContentBlock{Type: "resource", URI: "file:///a", Blob: "text"}, `[{"text":"file:///a\nwhole text","type":"text"}]`, false},
		"an image for such":      {"", frames.ContentBlock{Type: "image", Blob: "png"}, "takes no image", true},
		"no blob":                {all, frames.ContentBlock{Type: "image", Blob: "gone"}, "no such blob", true},
		"too large":              {all, frames.ContentBlock{Type: "image", Blob: "huge"}, "larger than 20 MiB", true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				got := ""
				s := open(t, agenttest.Script{}, withInfo{driver(t, acp.Options{}, func(f *fake) {
					m, _ := f.until("initialize")
					f.result(m, `{"protocolVersion":1,"agentCapabilities":{"promptCapabilities":{`+c.takes+`}}}`)
					f.serve(func(m message) { got = field(m.Params, "prompt"); f.end(m, "end_turn") })
				}), blobs})
				prompt(t, s) // it has a turn now
				turn := s.LastTurn()
				got = ""
				_, err := s.Agent.Prompt(t.Context(), turn, agent.Prompt{Content: []frames.ContentBlock{c.block}})
				switch {
				case c.fails && (err == nil || !strings.Contains(err.Error(), c.want) || got != ""):
					t.Errorf("Prompt = %v, sent %s; want an error with %q, and nothing sent", err, got, c.want)
				case !c.fails && got != c.want:
					t.Errorf("sent %s, %v; want %s", got, err, c.want)
				}
			})
		})
	}
}
