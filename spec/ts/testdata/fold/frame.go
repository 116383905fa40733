package main

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/muxhost/muxhost/frames"
)

// frame returns the next notification, most often a `session/event`.
func (g *generator) frame(v *frames.View) ([]byte, error) {
	method, params, err := g.params(v)
	if err != nil {
		return nil, err
	}
	p, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	if g.one(15) { // half a surrogate pair alone
		p = bytes.ReplaceAll(p, []byte("日"), []byte(`\ud800`))
	}
	return json.Marshal(object{"jsonrpc": "2.0", "method": method, "params": json.RawMessage(p)})
}

func (g *generator) params(v *frames.View) (string, object, error) {
	switch g.r.IntN(40) {
	case 0:
		p, err := g.subscribed(v)
		return "session/subscribed", p, err
	case 1:
		p, err := g.base(v)
		return "session/base", p, err
	case 2, 3:
		return "session/live", g.live(), nil
	case 4:
		return "session/lagging", object{}, nil
	case 5:
		return "host/session-status", object{"state": pick(g, "idle", "running", "", "new"), "pending": 0, "pendingBelow": 0}, nil
	case 6:
		return "host/subscribed", object{}, nil
	case 7, 8:
		return "approval/requested", g.approval(), nil
	case 9:
		return "question/requested", object{"id": g.id(), "rootSessionId": "s", "depth": 0, "questions": g.questions(), "askedAt": g.time()}, nil
	case 10, 11:
		return pick(g, "approval/resolved", "question/resolved"), object{"id": g.id(), "outcome": "rejected", "origin": "reply"}, nil
	case 12:
		return pick(g, "vendor/frame", "session/unsubscribed", "host/session-removed", "mux/heartbeat"), object{"x": g.raw()}, nil
	}
	return "session/event", object{"sessionId": "s", "event": g.event(), "extra": 1}, nil
}

func (g *generator) subscribed(v *frames.View) (object, error) {
	p := object{
		"since": pick(g, 0, 0, g.next-1), "head": g.next - 1, "first": 1, "epoch": pick(g, "e1", "e1", "e2"),
		"state": pick(g, "idle", "running", "requires-action"), "pending": 0,
	}
	switch g.r.IntN(6) {
	case 0:
		b, err := json.Marshal(v.Durable())
		if err != nil {
			return nil, err
		}
		p["base"] = json.RawMessage(b)
	case 1:
		p["base"] = pick[any](g, nil, object{}, 3, object{"items": []any{nil}}, object{"turnId": "zz"},
			object{"turnId": "t1", "turns": []any{object{"turnId": "t1"}}, "extra": 1, "surface": object{"upTo": 4}})
	case 2:
		p["baseParts"] = 2
	}
	return p, nil
}

// base returns one half of the view.
func (g *generator) base(v *frames.View) (object, error) {
	b, err := json.Marshal(v.Durable())
	if err != nil {
		return nil, err
	}
	half := len(b) / 2
	for !utf8.RuneStart(b[half]) {
		half--
	}
	part := g.r.IntN(2)
	return object{"part": part, "parts": 2, "text": string([][]byte{b[:half], b[half:]}[part])}, nil
}

func (g *generator) live() object {
	p := object{"seq": g.next - 1, "turn": nil}
	if g.one(8) {
		return p
	}
	turn := object{"turnId": g.turn()}
	var blocks, tools []any
	for range g.r.IntN(3) {
		b := object{"block": g.r.IntN(3), "kind": pick(g, "assistant", "reasoning"), "text": g.text(), "to": g.r.IntN(5)}
		g.maybe(b, "offset", pick(g, 0, 0, 1, 5))
		blocks = append(blocks, b)
	}
	for range g.r.IntN(3) {
		t := object{"callId": g.id(), "text": g.text(), "to": g.r.IntN(5)}
		g.maybe(t, "offset", pick(g, 0, 0, 1, 5))
		tools = append(tools, t)
	}
	g.maybe(turn, "blocks", blocks)
	g.maybe(turn, "tools", tools)
	p["turn"] = turn
	if g.one(3) {
		p["more"] = true
	}
	return p
}

func (g *generator) approval() object {
	p := object{
		"id": g.id(), "rootSessionId": "s", "depth": 0, "tool": g.tool(), "input": g.raw(), "inputHash": g.short(),
		"options": []any{"rejected"}, "askedAt": g.time(), "expiresAt": g.time(),
	}
	g.maybe(p, "turnId", g.turn())
	g.maybe(p, "callId", g.id())
	if g.one(10) {
		p["askedAt"] = pick[any](g, nil, 3)
	}
	return p
}
