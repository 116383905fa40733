package llm_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/llm"
)

// shelf is what a session's blobs are read from, and how often each was.
type shelf struct {
	blobs map[frames.BlobID][]byte
	reads map[frames.BlobID]int
}

func (s *shelf) open(_ context.Context, id frames.BlobID) (io.ReadCloser, error) {
	s.reads[id]++
	b, ok := s.blobs[id]
	if !ok {
		return nil, errors.New("there is no such blob")
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

// onShelf opens an agent whose session has these blobs and whose prompts are content.
func onShelf(t *testing.T, o llm.Options, s *shelf, content ...frames.ContentBlock) *agenttest.Session {
	t.Helper()
	_, ses := open(t, o, agenttest.Script{})
	s.reads = map[frames.BlobID]int{}
	ses.Info.ReadBlob = s.open
	ses.Agent = withContent{reopen(t, o, ses), agent.Prompt{ID: "p", Content: content}}
	return ses
}

// What a prompt names as a blob reaches the model whole: images, texts of any size
// that fits, resources; what was cut into a blob too. Each is read once a turn.
func TestBlobsOfAPromptReachTheModel(t *testing.T) {
	long := strings.Repeat("all work and no play\n", 5000)
	png := []byte("\x89PNG picture")
	s := &shelf{blobs: map[frames.BlobID][]byte{
		"sha256-png": png, "sha256-b64": []byte(base64.StdEncoding.EncodeToString([]byte("second"))),
		"sha256-long": []byte(long), "sha256-note": []byte("the note\xff"),
	}}
	srv := &stub{}
	o := options(t, srv)
	o.Images = true
	ses := onShelf(t, o, s,
		frames.ContentBlock{Type: "image", MimeType: "image/png", Blob: "sha256-png"},
		frames.ContentBlock{Type: "image", MimeType: "image/gif", Truncated: &frames.Truncated{Bytes: 8, Blob: "sha256-b64"}},
		frames.ContentBlock{Type: "text", Text: "all work", Truncated: &frames.Truncated{Bytes: int64(len(long)), Blob: "sha256-long"}},
		frames.ContentBlock{Type: "resource", MimeType: "text/plain", Name: "note", URI: "file:///note", Blob: "sha256-note"},
		frames.ContentBlock{Type: "resource_link", Name: "doc", URI: "https://doc.test/"},
	)
	srv.push(step{Tools: tool("list", "{}")})
	prompt(t, ses, "")
	for i, q := range srv.requests() {
		var parts []struct {
			Type, Text string
			Image      struct{ URL string } `json:"image_url"`
		}
		if err := json.Unmarshal(q.Messages[1].Content, &parts); err != nil || len(parts) != 5 {
			t.Fatalf("request %d: content %.300s: %v; want five parts", i, q.Messages[1].Content, err)
		}
		if got, want := parts[0].Image.URL, "data:image/png;base64,"+base64.StdEncoding.EncodeToString(png); got != want {
			t.Errorf("request %d: first image %q; want %q", i, got, want)
		}
		if got, want := parts[1].Image.URL, "data:image/gif;base64,"+base64.StdEncoding.EncodeToString([]byte("second")); got != want {
			t.Errorf("request %d: second image %q; want %q", i, got, want)
		}
		if parts[2].Text != long || parts[3].Text != "[resource note file:///note]\nthe note\uFFFD" || parts[4].Text != "[resource_link doc https://doc.test/]" {
			t.Errorf("request %d: texts of %d bytes, %q, %q; want the whole, the note, the link", i, len(parts[2].Text), parts[3].Text, parts[4].Text)
		}
	}
	for id, n := range s.reads {
		if n != 1 {
			t.Errorf("blob %s was read %d times; want once in a turn", id, n)
		}
	}
}

// What cannot be shown is named, and the turn goes on: a blob that is gone, one that
// is no text, pictures for a model that takes none, more than fits.
func TestWhatCannotBeShownIsNamed(t *testing.T) {
	image := frames.ContentBlock{Type: "image", MimeType: "image/png", Blob: "sha256-png"}
	huge := frames.ContentBlock{Type: "image", MimeType: "image/png", Blob: "sha256-huge"}
	s := &shelf{blobs: map[frames.BlobID][]byte{
		"sha256-png": []byte("png"), "sha256-bin": {'a', 0, 'b'},
		"sha256-huge": make([]byte, 25<<10), "sha256-half": make([]byte, 13<<10), "sha256-text": bytes.Repeat([]byte("x"), 2<<20),
	}}
	half := frames.ContentBlock{Type: "image", MimeType: "image/png", Blob: "sha256-half"}
	for name, c := range map[string]struct {
		images  bool
		content []frames.ContentBlock
		want    []string
		without string
	}{
		"gone":      {true, []frames.ContentBlock{{Type: "image", MimeType: "image/png", Blob: "sha256-gone"}}, []string{"cannot be shown: there is no such blob"}, "data:image"},
		"no images": {false, []frames.ContentBlock{image}, []string{"An image (image/png) that cannot be shown here"}, "data:image"},
		"no text":   {true, []frames.ContentBlock{{Type: "text", Text: "a", Blob: "sha256-bin"}}, []string{"it is no text"}, "\x00"},
		"too large": {true, []frames.ContentBlock{huge, image}, []string{"it is too large", "base64,cG5n"}, "AAAAAAAA"},
		// Newer pictures go before older ones.
		"too many": {true, []frames.ContentBlock{half, half, image}, []string{"base64,cG5n", "it is too large.]\"},{\"type\":\"image_url\""}, "AA==\"}},{\"type\":\"text\""},
		"preview":  {true, []frames.ContentBlock{{Type: "text", Text: "xx", Truncated: &frames.Truncated{Bytes: 2 << 20, Blob: "sha256-text"}}}, []string{"xx\\n[cut; 2097152 bytes in all]", "too large"}, "xxx"},
	} {
		srv := &stub{}
		o := options(t, srv)
		o.Images, o.MaxImages = c.images, 24<<10
		prompt(t, onShelf(t, o, s, c.content...), "")
		got := srv.requests()[0].Body
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: the model saw %.600s; want %q", name, got, w)
			}
		}
		if strings.Contains(got, c.without) {
			t.Errorf("%s: the model saw %q", name, c.without)
		}
	}
}

// A host without blobs is no reason to fail.
func TestBlobsWithoutAHostThatKeepsThem(t *testing.T) {
	srv := &stub{}
	_, ses := open(t, options(t, srv), agenttest.Script{})
	ses.Info.ReadBlob = nil
	ses.Agent = withContent{reopen(t, options(t, srv), ses), agent.Prompt{ID: "p", Content: []frames.ContentBlock{{Type: "text", Text: "see", Blob: "sha256-x"}}}}
	prompt(t, ses, "")
	if got := srv.requests()[0].Body; !strings.Contains(got, "see") || !strings.Contains(got, "cannot be shown") {
		t.Errorf("the model saw %s", got)
	}
}

// Pictures of newer messages go before those of older ones.
func TestNewerPicturesAreShownFirst(t *testing.T) {
	s := &shelf{blobs: map[frames.BlobID][]byte{"sha256-old": bytes.Repeat([]byte("old"), 4<<10), "sha256-new": bytes.Repeat([]byte("new"), 4<<10)}}
	srv := &stub{}
	o := options(t, srv)
	o.Images, o.MaxImages = true, 24<<10
	ses := onShelf(t, o, s, frames.ContentBlock{Type: "image", MimeType: "image/old", Blob: "sha256-old"})
	prompt(t, ses, "")
	ses.Agent = withContent{ses.Agent.(withContent).Agent, agent.Prompt{ID: "q", Content: []frames.ContentBlock{{Type: "image", MimeType: "image/new", Blob: "sha256-new"}}}}
	prompt(t, ses, "")
	got := srv.requests()[1].Body
	if !strings.Contains(got, "data:image/new") || !strings.Contains(got, "An image (image/old) that cannot be shown: it is too large") {
		t.Errorf("the model saw neither the new picture nor a word for the old one, in %d bytes", len(got))
	}
}
