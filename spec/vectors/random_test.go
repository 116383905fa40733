package vectors_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/spec/vectors/refold"
)

// dice makes frames at random, from few ids, so that they meet.
type dice struct {
	*rand.Rand
	seq  int
	more bool // a session/live in parts is under way
}

func (d *dice) of(words ...string) string { return words[d.IntN(len(words))] }

func (d *dice) id(prefix string) string { return fmt.Sprint(prefix, d.IntN(3)+1) }

func (d *dice) chance(percent int) bool { return d.IntN(100) < percent }

func (d *dice) turn() string {
	if d.chance(15) {
		return ""
	}
	return d.id("t")
}

func (d *dice) text() []any {
	var out []any
	for range d.IntN(3) {
		out = append(out, map[string]any{"type": "text", "text": d.of("", "a", "é🙂", "long text")})
	}
	if out == nil {
		out = []any{}
	}
	return out
}

func (d *dice) blocks() []any {
	out := []any{}
	for range d.IntN(3) {
		out = append(out, d.IntN(4))
	}
	return out
}

// frame makes the next frame.
func (d *dice) frame() map[string]any {
	p := map[string]any{"sessionId": "s"}
	method := d.of("session/event", "session/event", "session/event", "session/event", "session/event", "session/event", "session/event",
		"session/live", "session/live", "approval/requested", "question/requested", "approval/resolved", "question/resolved", "session/lagging",
		"session/subscribed", "host/subscribed", "host/session-status", "session/unsubscribed")
	switch method {
	case "session/event":
		p["event"] = d.event()
	case "session/live":
		d.live(p)
	case "session/subscribed":
		d.more = false
		p["since"], p["head"], p["first"], p["epoch"] = d.of0(d.seq), d.seq, 1, "e1"
		if d.chance(10) {
			p["epoch"] = "e2"
		}
		p["state"], p["pending"] = d.of("idle", "running", "requires-action"), 0
	case "host/session-status":
		p["state"], p["pending"], p["pendingBelow"] = d.of("idle", "running", "requires-action"), 0, 0
	case "host/subscribed":
		p = map[string]any{}
	case "approval/requested", "question/requested":
		p["id"], p["rootSessionId"], p["depth"], p["turnId"] = d.id("r"), "s", 0, d.turn()
		p["tool"], p["input"], p["inputHash"], p["options"], p["questions"] = map[string]any{"name": "sh"}, d.IntN(9), "h", []any{"rejected"}, []any{}
		p["askedAt"], p["expiresAt"] = d.time(d.IntN(5)), d.time(59)
	case "approval/resolved", "question/resolved":
		p["id"], p["outcome"], p["origin"] = d.id("r"), "rejected", "reply"
	}
	return map[string]any{"method": method, "params": p}
}

// of0 is n or 0.
func (d *dice) of0(n int) int {
	if d.chance(40) {
		return 0
	}
	return n
}

func (d *dice) time(s int) string { return fmt.Sprintf("2026-11-30T12:00:%02d.000Z", s) }

func (d *dice) live(p map[string]any) {
	p["seq"], p["turn"] = d.seq, nil
	if d.more = d.chance(40); d.more {
		p["more"] = true
	}
	if d.chance(15) && !d.more {
		return
	}
	turn := map[string]any{"turnId": d.id("t")}
	var blocks, tools []any
	for range d.IntN(3) {
		blocks = append(blocks, map[string]any{"block": d.IntN(4), "kind": d.of("assistant", "reasoning"), "text": d.of("", "ab", "é"), "offset": d.of0(d.IntN(4)), "to": d.IntN(4)})
		tools = append(tools, map[string]any{"callId": d.id("c"), "text": d.of("", "ab", "€"), "offset": d.of0(d.IntN(4)), "to": d.IntN(4)})
	}
	turn["blocks"], turn["tools"] = blocks, tools
	p["turn"] = turn
}

// event makes an event; now and then one that was here, or one after a hole.
func (d *dice) event() map[string]any {
	typ, data := d.payload()
	e := map[string]any{"type": typ, "ts": d.time(d.seq % 60), "data": data}
	if turn := d.turn(); turn != "" {
		e["turnId"] = turn
	}
	if d.chance(20) {
		e["by"] = map[string]any{"clientId": "c", "label": d.of("", "phone")}
	}
	switch live := strings.HasSuffix(typ, "/delta") || typ == "tool/progress"; {
	case live:
		e["after"] = d.seq
		return e
	case d.chance(5) && d.seq > 0:
		e["seq"] = 1 + d.IntN(d.seq)
		return e
	case d.chance(2):
		d.seq++
	}
	d.seq++
	e["seq"] = d.seq
	return e
}

// payload makes the data of an event, with members of many types: those of other
// types are not known and do not matter.
func (d *dice) payload() (string, map[string]any) {
	typ := d.of("turn/start", "turn/start", "turn/end", "assistant/message", "assistant/message", "reasoning/message", "assistant/retracted",
		"assistant/delta", "assistant/delta", "assistant/delta", "reasoning/delta", "tool/progress", "tool/progress", "tool/call", "tool/call",
		"tool/result", "approval/asked", "approval/decided", "question/asked", "question/decided", "user/message", "steering/message",
		"prompt/queued", "prompt/dequeued", "prompt/blocked", "agent/spawned", "agent/completed", "task/started", "task/completed",
		"session/compacted", "session/configured", "session/renamed", "session/closed", "session/resumed", "session/created", "model/start",
		"model/switched", "usage/updated", "todo/write", "command/available", "error", "step/start", "acme/x", "context/message")
	from := d.IntN(4)
	data := map[string]any{
		"promptId": d.id("p"), "mode": "queue", "content": d.text(), "blocks": d.blocks(), "callId": d.id("c"), "id": d.id("r"),
		"block": d.IntN(4), "from": from, "to": from + d.IntN(3), "text": d.of("", "x", "é🙂"), "childSessionId": d.id("k"), "taskId": d.id("b"),
		"title": d.of("", "T", "U"), "questions": []any{}, "upTo": d.IntN(d.seq + 1), "todos": []any{}, "model": "m", "options": map[string]any{d.id("o"): nil},
		"code": "x", "message": "m", "usage": map[string]any{"inputTokens": d.IntN(3)}, "outcome": "rejected", "origin": d.of("reply", "policy"),
		"status": d.of("", "completed"), "durationMs": d.IntN(2), "isError": d.chance(50), "partial": d.chance(50), "withheld": d.chance(50),
		"name": "sh", "kind": d.of("", "execute"), "tool": map[string]any{"name": "sh"}, "input": d.IntN(3), "step": 1, "trigger": "prompt",
		"agent": "demo", "cwd": "/w", "rootSessionId": "s", "depth": d.IntN(2), "commands": []any{}, "retryable": true,
	}
	if strings.HasPrefix(typ, "session/configured") {
		data["labels"] = map[string]any{d.id("l"): "1"}
	}
	switch typ {
	case "turn/end", "prompt/dequeued", "prompt/blocked":
		data["reason"] = "completed"
	case "model/switched":
		data["from"], data["to"] = "a", "b"
	case "session/created":
		data["origin"] = "user"
	}
	return typ, data
}

// spoil replaces something below v by a value of whatever type, and returns v.
func (d *dice) spoil(v any) any {
	switch v := v.(type) {
	case map[string]any:
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(v)), func(name string) bool { return name == "sessionId" })
		if len(names) > 0 && !d.chance(10) {
			name := names[d.IntN(len(names))]
			v[name] = d.spoil(v[name])
			return v
		}
	case []any:
		if len(v) > 0 && !d.chance(20) {
			i := d.IntN(len(v))
			v[i] = d.spoil(v[i])
			return v
		}
	}
	all := []any{nil, "x", "", 1, 1.5, true, []any{}, []any{nil}, map[string]any{}, d.time(1)}
	return all[d.IntN(len(all))]
}

// spoiled makes a frame that may be malformed.
func (d *dice) spoiled(t *testing.T) map[string]any {
	fr := d.frame()
	var params map[string]any
	if err := json.Unmarshal(mustJSON(t, fr["params"]), &params); err != nil {
		t.Fatal(err)
	}
	if made, ok := d.spoil(params).(map[string]any); ok {
		fr["params"] = made
	}
	return fr
}

// disagree folds frames twice and says where the outcomes differ.
func disagree(t *testing.T, f *refold.Fold, all []json.RawMessage) string {
	t.Helper()
	v := &foldVector{Session: "s", file: "random"}
	for _, raw := range all {
		v.add(t, raw)
	}
	return differ(v.folded(t, false), v.refolded(f))
}

// shrink leaves out frames as long as the folds disagree.
func shrink(t *testing.T, f *refold.Fold, all []json.RawMessage) []json.RawMessage {
	t.Helper()
	for i := 0; i < len(all); {
		if less := slices.Delete(slices.Clone(all), i, i+1); disagree(t, f, less) != "" {
			all, i = less, 0
		} else {
			i++
		}
	}
	return all
}

// Two folds agree on whatever comes, also on what no host would send: every second
// round has frames that are malformed.
func TestFoldsAgreeAtRandom(t *testing.T) {
	f := &refold.Fold{Schemas: schemas(t)}
	rounds := 600
	if testing.Short() {
		rounds = 100
	}
	for seed := range rounds {
		d := &dice{Rand: rand.New(rand.NewPCG(uint64(seed), 7))}
		var all []json.RawMessage
		for range 4 + d.IntN(30) {
			if seed%2 == 1 && d.chance(15) {
				all = append(all, mustJSON(t, d.spoiled(t)))
				continue
			}
			all = append(all, mustJSON(t, d.frame()))
		}
		if disagree(t, f, all) == "" {
			continue
		}
		all = shrink(t, f, all)
		for i, fr := range all {
			t.Logf("%d %s", i, fr)
		}
		t.Errorf("seed %d: frames.View against refold:\n%s", seed, disagree(t, f, all))
	}
}
