package main

import (
	"math/rand/v2"
	"strings"
)

type object = map[string]any

// generator makes up the frames of one session.
type generator struct {
	r    *rand.Rand
	next int            // the next seq
	have map[string]int // chunks of each block and call so far
}

func newGenerator(seed uint64) *generator {
	return &generator{r: rand.New(rand.NewPCG(seed, 7)), next: 1, have: map[string]int{}}
}

func pick[T any](g *generator, of ...T) T { return of[g.r.IntN(len(of))] }

// one is true once in n times.
func (g *generator) one(n int) bool { return g.r.IntN(n) == 0 }

// maybe sets a member, two times of three.
func (g *generator) maybe(o object, name string, value any) {
	if !g.one(3) {
		o[name] = value
	}
}

func (g *generator) id() string    { return pick(g, "1", "2", "3") }
func (g *generator) turn() string  { return pick(g, "t1", "t1", "t2", "t2", "t3", "") }
func (g *generator) short() string { return pick(g, "", "a", "b", "é", "__proto__", "x") }

func (g *generator) text() string {
	return pick(g, "", "a", "héllo", "日本", "😀", "\\", strings.Repeat("é", g.r.IntN(50)), strings.Repeat("ab€", g.r.IntN(12000)))
}

// raw is JSON of an agent's own.
func (g *generator) raw() any {
	return pick[any](g, nil, 1, 1.5, "s", object{"a": object{}, "__proto__": 1, "b": []any{nil, 1}}, []any{}, true, object{})
}

func (g *generator) time() any {
	const usual = "2026-01-02T03:04:05.678Z"
	return pick[any](g, usual, usual, usual, "2025-12-31T23:59:59.9999+01:30", "2026-01-02T03:04:06Z", "0001-01-01T00:00:00Z", "2024-02-29T00:00:00-23:59")
}

func (g *generator) content() any {
	if g.one(10) {
		return nil
	}
	out := []any{}
	for range g.r.IntN(4) {
		b := object{"type": pick(g, "text", "text", "image", "resource", "vendor")}
		g.maybe(b, "text", g.short())
		if g.one(4) {
			b["truncated"], b["vendorField"] = object{"bytes": g.r.IntN(5), "blob": g.short(), "x": 1}, 3
		}
		out = append(out, b)
	}
	return out
}

func (g *generator) blocks() any {
	out := []any{}
	for range g.r.IntN(4) {
		out = append(out, g.r.IntN(4))
	}
	return out
}

func (g *generator) usage() any {
	return pick[any](g, nil, object{}, object{"inputTokens": g.r.IntN(3), "cost": g.short(), "z": 1})
}

func (g *generator) by() any {
	return pick[any](g, nil, object{"clientId": "c"}, object{"clientId": "c", "label": g.short(), "x": 1})
}

func (g *generator) tool() any {
	return pick[any](g, object{}, object{"name": "sh"}, object{"name": "sh", "kind": g.short(), "title": g.short(), "x": 1})
}

func (g *generator) questions() any {
	q := object{"id": "q", "question": "?", "options": []any{object{"label": "x"}}, "multiSelect": g.one(2)}
	return pick[any](g, nil, []any{}, []any{q})
}

func (g *generator) answers() any {
	return pick[any](g, nil, []any{}, []any{object{"id": "q", "labels": []any{"x"}, "text": g.short()}})
}

func (g *generator) policy() any {
	rule := object{"tool": "*", "decision": "deny", "input": g.raw()}
	return pick[any](g, nil, object{}, object{"mode": "ask", "rules": []any{rule}, "askTimeoutMs": g.r.IntN(2)})
}

func (g *generator) labels() any {
	return pick[any](g, nil, object{}, object{"a": "b", "__proto__": "c"})
}

// chunks returns a range that most often follows the last one of the key.
func (g *generator) chunks(key string) (from, to int) {
	have := g.have[key]
	from = have
	switch g.r.IntN(24) {
	case 0, 1, 2, 3:
		from = max(0, have-g.r.IntN(3))
	case 4:
		from = have + 1
	}
	to = from + 1 + g.r.IntN(2)
	if from == have {
		g.have[key] = to
	}
	return from, to
}
