package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// Export is a log written into a blob.
type Export struct {
	Blob  frames.BlobID
	Bytes int64
	// Mime is the type of the blob's content; Head the last event in it.
	Mime string
	Head frames.Seq
}

// Export writes the log of a session, as it stands now, into a blob: as "jsonl",
// one event a line as encoded, after a line {"base":…} where the log was trimmed;
// or as "markdown", a transcript for people. The same log gives the same bytes. It
// reads the log once, and holds one page of it, or one turn for a transcript.
func (m *Manager) Export(ctx context.Context, sid frames.SessionID, format string) (Export, error) {
	var err error
	for range 1 + maxTrims {
		var x Export
		if x, err = m.export(ctx, sid, format); err == nil || !errors.Is(err, store.ErrTrimmed) {
			return x, err
		}
	}
	return Export{}, err
}

func (m *Manager) export(ctx context.Context, sid frames.SessionID, format string) (Export, error) {
	s, _, err := m.span(sid)
	if err != nil {
		return Export{}, err
	}
	base, err := m.cfg.Store.Get(ctx, store.TableBase, string(sid))
	if err != nil {
		return Export{}, &StorageError{err}
	}
	x := Export{Mime: "application/jsonl"}
	var w writer = jsonLines{}
	switch format {
	case "jsonl":
	case "markdown":
		x.Mime, w = "text/markdown; charset=utf-8", newTranscript(s)
	default:
		return Export{}, &ParamError{"format", fmt.Sprintf("want jsonl or markdown, got %q", clip(format))}
	}
	pages := &exported{ctx: ctx, m: m, sid: sid, head: s.Head, w: w}
	if err := pages.begin(base); err != nil {
		return Export{}, err
	}
	if x.Blob, x.Bytes, err = m.cfg.Blobs.Put(ctx, pages); err != nil {
		if pages.err != nil && pages.err != io.EOF {
			return Export{}, readError(pages.err)
		}
		return Export{}, fmt.Errorf("export session %s: %w", sid, err)
	}
	x.Head = pages.head
	return x, nil
}

// writer turns a log into a document, a piece at a time: each method appends to
// dst what is ready. What it is given is not kept.
type writer interface {
	// base takes the fold of what was trimmed.
	base(dst, base []byte) ([]byte, error)
	event(dst, event []byte) ([]byte, error)
	// end is called once, after the last event.
	end(dst []byte) []byte
}

// jsonLines writes events as they are encoded.
type jsonLines struct{}

func (jsonLines) base(dst, base []byte) ([]byte, error) {
	return append(append(append(dst, `{"base":`...), base...), "}\n"...), nil
}

func (jsonLines) event(dst, event []byte) ([]byte, error) {
	return append(append(dst, event...), '\n'), nil
}

func (jsonLines) end(dst []byte) []byte { return dst }

// exported reads a log as a document.
type exported struct {
	ctx   context.Context //nolint:containedctx // lives as long as one Put
	m     *Manager
	sid   frames.SessionID
	after frames.Seq
	head  frames.Seq
	w     writer
	buf   []byte // made and not read yet
	off   int
	err   error // io.EOF after the end
}

// begin takes the base; nil is none.
func (x *exported) begin(base []byte) (err error) {
	if base == nil {
		return nil
	}
	var at struct {
		Seq frames.Seq `json:"seq"`
	}
	if err := json.Unmarshal(base, &at); err != nil {
		return &StorageError{fmt.Errorf("%w: the base of session %s: %v", store.ErrCorrupt, x.sid, err)}
	}
	x.after, x.head = at.Seq, max(x.head, at.Seq) // of a trim since head was looked up
	x.buf, err = x.w.base(nil, base)
	if err != nil {
		return &StorageError{fmt.Errorf("%w: the base of session %s: %v", store.ErrCorrupt, x.sid, err)}
	}
	return nil
}

// Read implements [io.Reader].
func (x *exported) Read(p []byte) (int, error) {
	for x.off == len(x.buf) {
		if x.err != nil {
			return 0, x.err
		}
		x.buf, x.off = x.buf[:0], 0
		x.err = x.fill()
	}
	n := copy(p, x.buf[x.off:])
	x.off += n
	return n, nil
}

// fill makes the next piece of the document.
func (x *exported) fill() error {
	if x.after >= x.head {
		x.buf = x.w.end(x.buf)
		return io.EOF
	}
	evs, err := x.m.cfg.Store.Read(x.ctx, x.sid, x.after, 0, 0)
	if err == nil && len(evs) == 0 {
		err = fmt.Errorf("%w: session %s has no event %d", store.ErrCorrupt, x.sid, x.after+1)
	}
	if err != nil {
		return err
	}
	for _, e := range evs {
		if e.Seq > x.head {
			break
		}
		x.after = e.Seq
		if x.buf, err = x.w.event(x.buf, e.Data); err != nil {
			return fmt.Errorf("%w: session %s, event %d: %v", store.ErrCorrupt, x.sid, e.Seq, err)
		}
	}
	return nil
}
