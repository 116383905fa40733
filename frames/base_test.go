package frames_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/muxhost/muxhost/frames"
)

// large returns a view whose JSON is about n bytes, half of them escapes and
// characters of several bytes.
func large(t testing.TB, n int) *frames.View {
	t.Helper()
	v := folded(t, story(t)).Durable()
	for size := 0; size < n; size += 12 << 10 {
		e, err := frames.NewEvent(frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text(strings.Repeat("\"é世\U0001F642\\\n", 1<<10))}})
		if err != nil {
			t.Fatal(err)
		}
		e.Seq = v.Seq + 1
		if err := v.ApplyEvent(e); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// framesOf returns what is sent of a base: `session/subscribed` and its parts, as
// they come out of the codec.
func framesOf(t testing.TB, base *frames.Base, f frames.SessionSubscribed) []frames.Frame {
	t.Helper()
	f = base.Begin(f)
	all := []frames.Frame{f}
	for i := range f.BaseParts {
		all = append(all, base.Part(f.SessionID, i))
	}
	for i := range all {
		b, err := frames.EncodeFrame(all[i])
		if err != nil {
			t.Fatalf("frame %d of %d: %v", i, len(all), err)
		}
		if all[i], err = frames.DecodeFrame(b); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// A base goes into session/subscribed while the whole frame fits; a larger one
// follows in parts that are cut between characters, fit into frames whatever the
// session is called, and join to what was cut.
func TestBaseIsCutToFrames(t *testing.T) {
	small := []byte(toJSON(t, folded(t, story(t)).Durable()))
	for _, c := range []struct {
		name  string
		raw   []byte
		parts int
	}{
		{"none", nil, 0},
		{"small", small, 0},
		{"2 MiB", []byte(toJSON(t, large(t, 2<<20))), 12},
		{"one byte less than fits with its envelope", []byte(`"` + strings.Repeat("x", frames.MaxFrame-250) + `"`), 0},
		{"one frame alone", []byte(`"` + strings.Repeat("x", frames.MaxFrame-2) + `"`), 2},
		{"escapes only", []byte(strings.Repeat("\x01", 100<<10)), 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := frames.NewBase(c.raw)
			sid := frames.SessionID(strings.Repeat("\x01", 256))
			if c.parts == 0 {
				sid = "s"
			}
			all := framesOf(t, base, frames.SessionSubscribed{SessionID: sid, Epoch: "e", First: 9, Head: 12})
			sub := all[0].(*frames.SessionSubscribed)
			if c.parts == 0 {
				if string(sub.Base) != string(c.raw) || sub.BaseParts != 0 || len(all) != 1 {
					t.Fatalf("base of %d bytes, %d parts; want %d bytes inline", len(sub.Base), sub.BaseParts, len(c.raw))
				}
				return
			}
			if sub.Base != nil || sub.BaseParts < c.parts || sub.BaseParts > 2*c.parts {
				t.Fatalf("%d bytes inline, %d parts; want none and about %d", len(sub.Base), sub.BaseParts, c.parts)
			}
			var joined strings.Builder
			for i, f := range all[1:] {
				p := f.(*frames.SessionBase)
				if p.Part != i || p.Parts != sub.BaseParts || p.SessionID != sid || !utf8.ValidString(p.Text) || p.Text == "" {
					t.Errorf("part %d is %d of %d with %d bytes, valid %v", i, p.Part, p.Parts, len(p.Text), utf8.ValidString(p.Text))
				}
				joined.WriteString(p.Text)
			}
			if joined.String() != string(c.raw) {
				t.Error("the parts do not join to the base")
			}
		})
	}
}

// A view that gets a base in parts is, after the last one, the view that gets it
// whole; until then it is what it was, and it may become JSON and back at any
// part.
func TestBaseInPartsIsTheBase(t *testing.T) {
	base := frames.NewBase([]byte(toJSON(t, large(t, 1<<20))))
	sub := frames.SessionSubscribed{SessionID: "s", Epoch: "e2", First: 9, Head: 12, State: frames.StateRunning}
	whole := sub
	whole.Base = []byte(toJSON(t, large(t, 1<<20)))
	want := folded(t, story(t)[:8])
	if err := want.ApplyFrame(whole); err != nil {
		t.Fatal(err)
	}
	v := folded(t, story(t)[:8])
	items := len(v.Items)
	all := framesOf(t, base, sub)
	for i, f := range all {
		if err := v.ApplyFrame(f); err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		if i < len(all)-1 && (len(v.Items) != items || v.Epoch != "e2") {
			t.Fatalf("after frame %d: %d items in epoch %s, want %d in e2", i, len(v.Items), v.Epoch, items)
		}
		again := frames.NewView()
		if err := json.Unmarshal([]byte(toJSON(t, v)), again); err != nil {
			t.Fatal(err)
		}
		if toJSON(t, again) != toJSON(t, v) {
			t.Fatalf("after frame %d the view does not survive its JSON", i)
		}
		v = again
	}
	if toJSON(t, v) != toJSON(t, want) {
		t.Errorf("got  %.300s\nwant %.300s", toJSON(t, v), toJSON(t, want))
	}
}

// A part that does not follow, and a base that is none, are errors; the view goes
// on from where it stood, and a new subscription begins anew.
func TestBrokenBaseChangesNothing(t *testing.T) {
	sub := frames.SessionSubscribed{SessionID: "s", Epoch: "e", First: 9, BaseParts: 2}
	part := func(i, n int, text string) frames.SessionBase {
		return frames.SessionBase{SessionID: "s", Part: i, Parts: n, Text: text}
	}
	for name, fs := range map[string][]frames.Frame{
		"unannounced":  {part(0, 1, `{}`)},
		"out of order": {sub, part(1, 2, `{`)},
		"repeated":     {sub, part(0, 2, `{`), part(0, 2, `{`)},
		"another cut":  {sub, part(0, 3, `{`)},
		"no view":      {sub, part(0, 2, `{"items":[nu`), part(1, 2, `ll]}`)},
		"after its end": {
			frames.SessionSubscribed{SessionID: "s", Epoch: "e", First: 9, BaseParts: 1},
			part(0, 1, toJSON(t, frames.NewView())), part(0, 1, `{}`),
		},
	} {
		v := frames.NewView()
		before := ""
		for _, f := range fs[:len(fs)-1] {
			if err := v.ApplyFrame(f); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		before = toJSON(t, v.Durable())
		if err := v.ApplyFrame(fs[len(fs)-1]); err == nil || toJSON(t, v.Durable()) != before {
			t.Errorf("%s: err %v; want an error and the view unchanged", name, err)
		}
		for _, f := range framesOf(t, frames.NewBase([]byte(toJSON(t, folded(t, story(t)).Durable()))), sub) {
			if err := v.ApplyFrame(f); err != nil {
				t.Errorf("%s: subscribed again: %v", name, err)
			}
		}
		if v.Seq == 0 {
			t.Errorf("%s: the new base did not come", name)
		}
	}
}
