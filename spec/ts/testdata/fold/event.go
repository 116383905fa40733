package main

import "github.com/muxhost/muxhost/frames"

// types has the event types, those that matter most several times.
var types = func() []string {
	out := []string{"vendor.x/y", "new/live"}
	for _, t := range frames.EventTypes() {
		times := 1
		switch t.Family {
		case "turn", "assistant", "tool", "gate":
			times = 3
		}
		if !t.Class.Durable() {
			times = 7
		}
		for range times {
			out = append(out, string(t.Type))
		}
	}
	return out
}()

func liveOnly(typ string) bool {
	return typ == "new/live" || !frames.ClassOf(frames.EventType(typ)).Durable()
}

// event returns the next event; now and then one that is repeated, skipped or broken.
func (g *generator) event() object {
	typ := pick(g, types...)
	if g.next == 1 && g.one(2) {
		typ = "session/created"
	}
	if typ == "turn/start" {
		clear(g.have)
	}
	e := object{"type": typ, "data": g.data(typ), "ts": g.time()}
	g.maybe(e, "turnId", g.turn())
	g.maybe(e, "by", g.by())
	if liveOnly(typ) {
		e["after"] = g.next - 1
	} else {
		switch g.r.IntN(30) {
		case 0:
			g.next++
		case 1:
			g.next = max(1, g.next-2)
		}
		e["seq"] = g.next
		g.next++
	}
	g.spoil(e)
	return e
}

// spoil breaks an envelope, seldom.
func (g *generator) spoil(e object) {
	switch g.r.IntN(300) {
	case 0:
		delete(e, "type")
	case 1:
		e["data"] = g.raw()
	case 2:
		e["ts"] = pick[any](g, nil, 3, "x", "2026-02-30T00:00:00Z")
	case 3:
		e["by"] = 3
	case 4:
		e["seq"] = pick[any](g, -1, 1.5, "1", nil, uint64(1<<53))
	}
}

// data returns a payload; now and then with a member of another type.
func (g *generator) data(typ string) object {
	d := g.payload(typ)
	if g.one(40) {
		name := pick(g, "id", "content", "blocks", "callId", "text", "tool", "from", "policy", "by")
		if _, ok := d[name]; ok {
			d[name] = pick[any](g, nil, 1, "s", []any{}, object{}, true, -1, 1.5)
		}
	}
	if g.one(10) {
		d["x-unknown"] = g.raw()
	}
	return d
}

func (g *generator) payload(typ string) object {
	d := object{}
	switch typ {
	case "assistant/delta", "reasoning/delta":
		block := g.r.IntN(3)
		from, to := g.chunks(string(rune('0' + block)))
		return object{"block": block, "from": from, "to": to, "text": g.text()}
	case "tool/progress":
		id := g.id()
		from, to := g.chunks("call " + id)
		return object{"callId": id, "from": from, "to": to, "text": g.text()}
	case "tool/call":
		id := g.id()
		delete(g.have, "call "+id)
		d = object{"callId": id, "name": "sh"}
	}
	for _, m := range optional[typ] {
		g.maybe(d, m.name, m.make(g))
	}
	return d
}
