package host_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/rpc"
)

// told is a session with two turns; it returns the seqs of their ends.
func (r *rig) told(p *peer, more map[string]any) (frames.Session, []frames.Seq) {
	r.t.Helper()
	s := r.create(p, more)
	subscribe(p, s.SessionID)
	var ends []frames.Seq
	for i := range 2 {
		prompt(p, s.SessionID, fmt.Sprint("say turn ", i))
		ends = append(ends, p.event(frames.TurnEndEvent).Seq)
	}
	return s, ends
}

// A fork is announced to whoever follows the tree of its source, with all its
// events from the first, after the response; it goes on by itself.
func TestForkOverTheWire(t *testing.T) {
	r := start(t, nil)
	p, tree := r.dial(canary), r.dial(canary)
	src, ends := r.told(p, map[string]any{"title": "one"})
	must[rpc.SubscribeResult](tree, "mux.subscribe", map[string]any{"tree": true, "sessions": []any{map[string]any{"sessionId": src.SessionID}}})
	tree.frame(frames.SessionLiveFrame)
	f := must[rpc.SessionResult](tree, "session.fork", map[string]any{"sessionId": src.SessionID, "at": ends[0]}).Session
	mustNotSee(t, tree, "session.fork", string(f.SessionID))
	if f.Origin != frames.OriginFork || f.ParentSessionID != src.SessionID || f.Depth != 1 || f.Head != ends[0]+1 || f.Epoch == src.Epoch {
		t.Errorf("fork = %+v", f)
	}
	var added frames.SessionAdded
	if err := json.Unmarshal(tree.frame(frames.SessionAddedFrame).Params, &added); err != nil || added.Session.SessionID != f.SessionID {
		t.Errorf("added %+v, %v", added, err)
	}
	v := frames.NewView()
	tree.until("the fork's session/live", func(m message) bool {
		if m.Method == "" {
			return false
		}
		fr, err := frames.DecodeFrame(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":%s}`, m.Method, m.Params))
		if err == nil {
			err = v.ApplyFrame(fr)
		}
		if err != nil {
			t.Error(err)
		}
		live, ok := fr.(*frames.SessionLive)
		return ok && live.SessionID == f.SessionID
	})
	if v.Seq != f.Head || len(v.Turns) != 1 || v.ForkedFrom == nil || v.ForkedFrom.Seq != ends[0] || v.Title != "one" {
		t.Errorf("the fork folds to %+v", v)
	}
	prompt(tree, f.SessionID, "say more")
	if e := tree.event(frames.TurnEndEvent); e.Seq <= f.Head {
		t.Errorf("the fork's turn ends at %d", e.Seq)
	}
	if got := must[rpc.GetResult](p, "session.get", map[string]any{"sessionId": src.SessionID}); got.Session.Head != ends[1] {
		t.Errorf("the source has %d events, want %d", got.Session.Head, ends[1])
	}
}

// A requestId that was used is refused for anything else: the session it made may
// have another policy than the one that is asked for now.
func TestRequestIDsAreForOneRequest(t *testing.T) {
	r := start(t, nil)
	p := r.dial(canary)
	src, ends := r.told(p, nil)
	other, _ := r.told(p, nil)
	calls := []struct{ method, params string }{
		{"session.create", fmt.Sprintf(`{"cwd":%q,"requestId":"r"}`, r.cwd)},
		{"session.create", fmt.Sprintf(`{"cwd":%q,"requestId":"r","policy":{"mode":"deny"}}`, r.cwd)},
		{"session.create", fmt.Sprintf(`{"cwd":%q,"requestId":"r","config":{"a":1}}`, r.cwd)},
		{"session.fork", fmt.Sprintf(`{"sessionId":%q,"requestId":"r"}`, src.SessionID)},
		{"session.fork", fmt.Sprintf(`{"sessionId":%q,"requestId":"r","at":%d}`, src.SessionID, ends[0])},
		{"session.fork", fmt.Sprintf(`{"sessionId":%q,"requestId":"r"}`, other.SessionID)},
	}
	for i, first := range calls {
		for j, again := range calls {
			id := func(params string) json.RawMessage {
				return json.RawMessage(strings.Replace(params, `"requestId":"r"`, fmt.Sprintf(`"requestId":"%d-%d"`, i, j), 1))
			}
			want := "request-id-conflict"
			if i == j {
				want = "ok"
			}
			made := p.call(first.method, id(first.params))
			got := p.call(again.method, id(again.params))
			if kindOf(made) != "ok" || kindOf(got) != want || i == j && !bytes.Equal(made.Result, got.Result) {
				t.Errorf("%s %s, then %s %s: %s, want %s", first.method, first.params, again.method, again.params, kindOf(got), want)
			}
		}
	}
}

// The same request returns the same fork; a point that ends no turn is refused with
// the nearest that do.
func TestForkRefusals(t *testing.T) {
	r := start(t, nil)
	p := r.dial(canary)
	src, ends := r.told(p, nil)
	fork := func(more string) message {
		return p.call("session.fork", fmt.Sprintf(`{"sessionId":%q%s}`, src.SessionID, more))
	}
	first, again := fork(`,"requestId":"r"`), fork(`,"requestId":"r"`)
	if kindOf(first) != "ok" || !bytes.Equal(first.Result, again.Result) {
		t.Errorf("the same request: %s and %s", first.Result, again.Result)
	}
	for more, want := range map[string]string{
		fmt.Sprintf(`,"at":%d`, ends[0]+1): fmt.Sprintf(`{"before":%d,"after":%d}`, ends[0], ends[1]),
		`,"at":1`:                          fmt.Sprintf(`{"after":%d}`, ends[0]),
		`,"at":99999`:                      fmt.Sprintf(`{"before":%d}`, ends[1]),
	} {
		m := fork(more)
		var d struct{ Details json.RawMessage }
		if kindOf(m) != "fork-not-at-turn-end" || json.Unmarshal(m.Error.Data, &d) != nil || string(d.Details) != want {
			t.Errorf("%s: %s %s, want fork-not-at-turn-end with %s", more, kindOf(m), d.Details, want)
		}
	}
	for more, want := range map[string]string{`,"at":-1`: "-32602", `,"at":1.5`: "-32602", `,"it":1`: "-32602"} {
		if m := fork(more); kindOf(m) != want {
			t.Errorf("%s: %s, want %s", more, kindOf(m), want)
		}
	}
}

// A client that is limited to a tree forks inside it and nothing else, and cannot
// be answered with another token's fork; the scope operate is needed.
func TestForkWithinTrees(t *testing.T) {
	one, two, eye := host.NewToken(), host.NewToken(), host.NewToken()
	r := start(t, func(c *host.Config) {
		c.Tokens = []host.Token{
			{ID: "one", Secret: one, Scopes: []rpc.Scope{rpc.ScopeOperate}, Trees: []frames.SessionID{"tree"}},
			{ID: "two", Secret: two, Scopes: []rpc.Scope{rpc.ScopeOperate}, Trees: []frames.SessionID{"other"}},
			{ID: "eye", Secret: eye, Scopes: []rpc.Scope{rpc.ScopeAnswer}},
		}
	})
	p := r.dial(canary)
	src, _ := r.told(p, nil)
	for name, token := range map[string]string{"one": one, "two": two} {
		if got := kindOf(r.dial(token).call("session.fork", map[string]any{"sessionId": src.SessionID})); got != "session-not-found" {
			t.Errorf("%s: %s, want session-not-found", name, got)
		}
		if got := kindOf(r.dial(token).call("session.export", map[string]any{"sessionId": src.SessionID, "format": "jsonl"})); got != "session-not-found" {
			t.Errorf("%s: export: %s, want session-not-found", name, got)
		}
	}
	if got := kindOf(r.dial(eye).call("session.fork", map[string]any{"sessionId": src.SessionID})); got != "forbidden" {
		t.Errorf("the scope answer: %s, want forbidden", got)
	}
}

// An export is a blob that pages give back whole, in both forms.
func TestExportOverTheWire(t *testing.T) {
	r := start(t, nil)
	p := r.dial(canary)
	src, ends := r.told(p, map[string]any{"title": "one"})
	c := r.client(canary, nil)
	for format, want := range map[string]string{"jsonl": `{"type":"session/created","seq":1,`, "markdown": "# one\n"} {
		x, err := c.Export(t.Context(), rpc.ExportParams{SessionID: src.SessionID, Format: format})
		if err != nil || x.Head != ends[1] {
			t.Fatalf("%s: %+v, %v", format, x, err)
		}
		var doc bytes.Buffer
		if n, err := c.ReadBlob(t.Context(), x.Blob, &doc); err != nil || n != x.Bytes || !strings.HasPrefix(doc.String(), want) {
			t.Errorf("%s: %d of %d bytes, %v:\n%.200s", format, n, x.Bytes, err, doc.String())
		}
	}
	if m := p.call("session.export", map[string]any{"sessionId": src.SessionID, "format": "pdf"}); kindOf(m) != "-32602" {
		t.Errorf("another format: %s", kindOf(m))
	}
}
