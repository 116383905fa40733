package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// Sizes in bytes.
const (
	// maxData leaves room for an event's envelope.
	maxData = frames.MaxEvent - 4<<10
	// maxPreview bounds what is shown of something too large, as encoded.
	maxPreview = 64 << 10
	// maxInput is the largest input that an approval shows whole.
	maxInput = 128 << 10
	// maxMessage bounds what is told of an error.
	maxMessage = 8 << 10
)

func now() frames.Time { return frames.At(time.Now()) }

// fit makes the event of p. Where it is too large, its large parts are replaced
// by previews and kept whole as blobs; what has no such parts is refused.
func (m *Manager) fit(ctx context.Context, p frames.Payload) (frames.Payload, frames.Event, error) {
	if v := reflect.ValueOf(p); v.Kind() == reflect.Pointer && !v.IsNil() {
		if d, ok := v.Elem().Interface().(frames.Payload); ok {
			p = d
		}
	}
	e, err := makeEvent(p)
	if err != nil || len(e.Data) <= maxData {
		return p, e, err
	}
	size := len(e.Data)
	if p, err = m.shrink(ctx, p); err != nil {
		return nil, e, err
	}
	if e, err = makeEvent(p); err == nil && len(e.Data) > maxData {
		err = fmt.Errorf("%w: event %s has %d bytes, want at most %d: keep large parts as blobs", ErrTooLarge, e.Type, size, maxData)
	}
	return p, e, err
}

// makeEvent encodes p; what an agent made itself travels byte for byte.
func makeEvent(p frames.Payload) (frames.Event, error) {
	if r, ok := p.(agent.Raw); ok {
		return frames.Event{Type: r.Type, Data: bytes.Clone(r.Data)}, nil
	}
	return frames.NewEvent(p)
}

// shrink returns p with previews in place of its large parts.
func (m *Manager) shrink(ctx context.Context, p frames.Payload) (frames.Payload, error) {
	var err error
	switch v := p.(type) {
	case frames.AssistantMessage:
		v.Content, err = m.shrinkContent(ctx, v.Content)
		return v, err
	case frames.ReasoningMessage:
		v.Content, err = m.shrinkContent(ctx, v.Content)
		return v, err
	case frames.AgentCompleted:
		v.Result, err = m.shrinkContent(ctx, v.Result)
		return v, err
	case frames.ToolResult:
		v.Content, err = m.shrinkContent(ctx, v.Content)
		if len(v.Details) > maxPreview {
			v.Details = nil
		}
		return v, err
	case frames.ToolCall:
		if len(v.Input) > maxPreview {
			v.Truncated = &frames.Truncated{Bytes: int64(len(v.Input))}
			v.Truncated.Blob, err = m.keep(ctx, v.Input)
			v.Input = previewJSON(v.Input)
		}
		return v, err
	}
	return p, nil
}

// shrinkContent replaces large blocks by previews that fit together.
func (m *Manager) shrinkContent(ctx context.Context, content []frames.ContentBlock) ([]frames.ContentBlock, error) {
	out := make([]frames.ContentBlock, len(content))
	share := max(maxPreview/max(len(content), 1), 512)
	for i, b := range content {
		whole := b.Text
		if len(b.Data) > share {
			whole, b.Data = b.Data, ""
		} else if escapedLen(b.Text) > share {
			b.Text = preview(b.Text, share)
		} else {
			out[i] = b
			continue
		}
		if b.Truncated == nil {
			blob, err := m.keep(ctx, []byte(whole))
			if err != nil {
				return nil, err
			}
			b.Truncated = &frames.Truncated{Bytes: int64(len(whole)), Blob: blob}
		}
		out[i] = b
	}
	return out, nil
}

// keep stores a whole; the preview is all there is where no blobs are kept.
func (m *Manager) keep(ctx context.Context, b []byte) (frames.BlobID, error) {
	if m.cfg.Blobs == nil {
		return "", nil
	}
	id, _, err := m.cfg.Blobs.Put(ctx, bytes.NewReader(b))
	if err != nil {
		return "", &StorageError{fmt.Errorf("keep %d bytes as a blob: %w", len(b), err)}
	}
	return id, nil
}

// escapedLen returns the most that s takes inside a JSON string.
func escapedLen(s string) int {
	n := len(s)
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 0x80:
			n += 2
		case c < ' ':
			n += 5
		case c == '"' || c == '\\':
			n++
		}
	}
	return n
}

// preview cuts s so that it takes at most limit bytes inside a JSON string.
func preview(s string, limit int) string {
	for s, _ = frames.Preview(s, limit); escapedLen(s) > limit; {
		s, _ = frames.Preview(s, len(s)*3/4)
	}
	return s
}

// previewJSON shows the beginning of a JSON text as a JSON string.
func previewJSON(b []byte) json.RawMessage {
	s := frames.ValidText(preview(string(b[:min(len(b), maxPreview)]), maxPreview))
	out, err := json.Marshal(s)
	if err != nil { // a string always encodes
		return json.RawMessage(`""`)
	}
	return out
}

// clip bounds a text that only people read, as encoded.
func clip(s string) string { return preview(frames.ValidText(strings.TrimSpace(s)), maxMessage) }
