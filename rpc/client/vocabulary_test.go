package client_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc/client"
)

// words makes names and JSON of no vocabulary.
type words struct{ *rand.Rand }

func (w words) name() string {
	return fmt.Sprintf("x%c%d", 'a'+rune(w.IntN(26)), w.IntN(1000))
}

func (w words) value(depth int) string {
	switch n := w.IntN(8); {
	case n == 0:
		return "null"
	case n == 1:
		return fmt.Sprint(w.Int64N(1<<53) - 1<<52)
	case n == 2:
		return fmt.Sprintf("%.3f", w.Float64())
	case n == 3 && depth > 0:
		return "[" + w.value(depth-1) + "," + w.value(depth-1) + "]"
	case n < 6 && depth > 0:
		return w.object(depth - 1)
	}
	return `"` + strings.Repeat("<ü\\u2028\\\"&>", w.IntN(3)) + `"`
}

func (w words) object(depth int) string {
	var members []string
	for i := range w.IntN(4) {
		members = append(members, fmt.Sprintf("%q:%s", fmt.Sprint(w.name(), i), w.value(depth)))
	}
	return "{" + strings.Join(members, ",") + "}"
}

// with returns object with one more member, at a random end.
func (w words) with(object string) string {
	member := fmt.Sprintf("%q:%s", w.name(), w.value(3))
	inner := strings.TrimSuffix(strings.TrimPrefix(object, "{"), "}")
	switch {
	case inner == "":
		return "{" + member + "}"
	case w.IntN(2) == 0:
		return "{" + member + "," + inner + "}"
	}
	return "{" + inner + "," + member + "}"
}

// Frames of unknown types, and unknown fields of known frames, events and payloads,
// reach the consumer byte for byte and leave the fold as it would be without them.
func TestUnknownWordsPassThrough(t *testing.T) {
	for seed := range uint64(20) {
		w := words{rand.New(rand.NewPCG(seed, 7))}
		var sent []string
		plain := frames.NewView()
		add := func(method, params string) { // one that the fold knows
			apply(t, plain, note(method, params))
			sent = append(sent, note(method, w.with(params)))
		}
		noise := func() { sent = append(sent, note("vendor."+w.name()+"/"+w.name(), w.object(4))) }
		add("session/subscribed", `{"sessionId":"s","since":0,"head":3,"first":1,"epoch":"e","state":"idle","pending":0}`)
		for i, e := range []string{
			`{"agent":"a","cwd":"/w","rootSessionId":"s","depth":0,"origin":"user"}`, `{"trigger":"prompt"}`,
			`{"content":[{"type":"text","text":"hi"}],"blocks":[0]}`, `{"reason":"completed"}`,
		} {
			noise()
			typ := []string{"session/created", "turn/start", "assistant/message", "turn/end"}[i]
			head := fmt.Sprintf(`"type":%q,"seq":%d,"ts":"2026-11-30T12:00:00.000Z","turnId":"t"`, typ, i+1)
			apply(t, plain, note("session/event", fmt.Sprintf(`{"sessionId":"s","event":{%s,"data":%s}}`, head, e)))
			sent = append(sent, note("session/event", w.with(fmt.Sprintf(`{"sessionId":"s","event":%s}`, w.with(fmt.Sprintf(`{%s,"data":%s}`, head, w.with(e)))))))
		}
		vendor := fmt.Sprintf(`{"sessionId":"s","event":{"type":"vendor.x/%s","seq":5,"ts":"2026-11-30T12:00:00.000Z","data":%s}}`, w.name(), w.object(4))
		apply(t, plain, note("session/event", vendor))
		sent = append(sent, note("session/event", vendor))
		noise()
		bubble(t, func(c *hostConn, _ int) {
			r, _ := c.next()
			c.reply(r.ID, []any{map[string]any{"sessionId": "s", "head": 5, "epoch": "e"}})
			for _, s := range sent {
				c.write([]byte(s))
			}
			c.wait()
		}, func(t *testing.T, h *fakeHost) {
			c := h.connect(h.options())
			watch(t, c, "s")
			received(t, c, sent, plain)
		})
	}
}

func note(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params)
}

func apply(t *testing.T, v *frames.View, msg string) {
	t.Helper()
	f, err := frames.DecodeFrame([]byte(msg))
	if err != nil {
		t.Fatalf("%s: %v", msg, err)
	}
	if err := v.ApplyFrame(f); err != nil {
		t.Fatalf("%s: %v", msg, err)
	}
}

// received takes as many messages as were sent, and compares them and their fold.
func received(t *testing.T, c *client.Client, sent []string, plain *frames.View) {
	t.Helper()
	var d client.Folder
	for m, err := range c.Messages(t.Context()) {
		if err != nil || string(m.Raw) != sent[0] {
			t.Fatalf("received %s (%v), want %s", m.Raw, err, sent[0])
		}
		if u, ok := m.Frame.(*frames.Unknown); ok && !bytes.Contains(m.Raw, u.Params) {
			t.Errorf("params %s of %s", u.Params, m.Raw)
		}
		if _, err := d.Apply(m.Frame); err != nil {
			t.Fatal(err)
		}
		if sent = sent[1:]; len(sent) == 0 {
			break
		}
	}
	got, err := json.Marshal(d.View("s"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(plain)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the fold with unknown words:\n%s\nwithout:\n%s", got, want)
	}
}
