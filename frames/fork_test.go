package frames_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
)

// Renumber moves the seq, and what a compaction says of seqs; every other byte
// stays: of fields nobody knows, of vendor types, of seqs inside payloads that are
// no seqs of this log.
func TestRenumberChangesNothingButSeqs(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"type":"turn/end","seq":9,"ts":"x","turnId":"t","data":{"reason":"completed"}}`, `{"type":"turn/end","seq":10,"ts":"x","turnId":"t","data":{"reason":"completed"}}`},
		{`{ "x-new" : [1, {"seq":4}] , "seq" : 99 ,"type":"a.b/c","data":{"seq":7,"upTo":3,"\u0073eq":1e2}}`, `{ "x-new" : [1, {"seq":4}] , "seq" : 100 ,"type":"a.b/c","data":{"seq":7,"upTo":3,"\u0073eq":1e2}}`},
		{`{"type":"session/compacted","seq":5,"data":{"upTo":4,"content":[],"x":{"upTo":4}}}`, `{"type":"session/compacted","seq":6,"data":{"upTo":5,"content":[],"x":{"upTo":4}}}`},
		{`{"data":{"content":[], "upTo":999 },"seq":1000,"type":"session\/compacted"}`, `{"data":{"content":[], "upTo":1000 },"seq":1001,"type":"session\/compacted"}`},
		{`{"type":"session/compacted","seq":5,"data":{"upTo":0}}`, `{"type":"session/compacted","seq":6,"data":{"upTo":0}}`},
		{`{"type":"session/compacted","seq":5,"data":{"upTo":"4"}}`, `{"type":"session/compacted","seq":6,"data":{"upTo":"4"}}`},
		{`{"type":"session/created","seq":1,"data":{"forkedFrom":{"sessionId":"s","seq":3}}}`, `{"type":"session/created","seq":2,"data":{"forkedFrom":{"sessionId":"s","seq":3}}}`},
	} {
		in := []byte(c.in)
		got, err := frames.Renumber(in, 1)
		if err != nil || string(got) != c.want {
			t.Errorf("Renumber(%s)\n got %s, %v\nwant %s", c.in, got, err, c.want)
		}
		if string(in) != c.in {
			t.Errorf("Renumber changed its input to %s", in)
		}
	}
	for _, bad := range []string{``, `[]`, `{"type":"x","data":{}}`, `{"type":"x","seq":-1}`, `{"type":"x","seq":1`} {
		if got, err := frames.Renumber([]byte(bad), 1); err == nil {
			t.Errorf("Renumber(%s) = %s, want an error", bad, got)
		}
	}
}

// forked returns the log of a fork of es: its own first event, then the copies.
func forked(t *testing.T, es []frames.Event, created frames.SessionCreated) []frames.Event {
	t.Helper()
	first := event(t, 1, created)
	first.Time = es[0].Time
	out := []frames.Event{first}
	for _, e := range es {
		if e.Seq == 0 {
			continue
		}
		enc, err := frames.EncodeEvent(e)
		if err != nil {
			t.Fatal(err)
		}
		b, err := frames.Renumber(enc.Data, 1)
		if err != nil {
			t.Fatal(err)
		}
		e, err = frames.DecodeEvent(b)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// The copy of the source's session/created in the log of a fork says nothing of
// the fork; all else folds as it did in the source.
func TestOnlyTheFirstCreatedCounts(t *testing.T) {
	es := story(t)
	created := frames.SessionCreated{
		Agent: "other", Cwd: "/f", ParentSessionID: "s", RootSessionID: "r", Depth: 3,
		Origin: frames.OriginFork, ForkedFrom: &frames.ForkPoint{SessionID: "s", Seq: 9},
	}
	v := folded(t, forked(t, es, created))
	if v.Agent != "other" || v.Cwd != "/f" || v.Origin != frames.OriginFork || v.ParentSessionID != "s" || v.RootSessionID != "r" || v.Depth != 3 || v.ForkedFrom == nil {
		t.Errorf("the fork took over what its source was: %s", toJSON(t, v))
	}
	if src := folded(t, es); len(v.Items) != len(src.Items) || len(v.Turns) != len(src.Turns) {
		t.Errorf("%d items and %d turns, want the source's %d and %d", len(v.Items), len(v.Turns), len(src.Items), len(src.Turns))
	}
}

// At every point of a log, the view of a fork made from the source's view is the
// fold of the fork's own log; so a fork may begin with a base.
func TestForkOfAViewIsTheFoldOfTheFork(t *testing.T) {
	es := story(t)
	created := frames.SessionCreated{Agent: "echo", Cwd: "/w", RootSessionID: "s", ParentSessionID: "s", Origin: frames.OriginFork, Depth: 1}
	for n := range es {
		base := folded(t, es[:n+1])
		if base.Seq == 0 {
			continue
		}
		base = base.Durable()
		base.Fork(created, es[0].Time)
		want := folded(t, forked(t, es[:n+1], created)).Durable()
		// What the source was created with and what changed it are told apart
		// only by the log.
		base.Title, base.Labels, base.Policy, base.Budget = want.Title, want.Labels, want.Policy, want.Budget
		if got, want := toJSON(t, base.Durable()), toJSON(t, want); got != want {
			t.Fatalf("after %s %d:\n got %s\nwant %s", es[n].Type, es[n].Seq, got, want)
		}
	}
}

// Every member of a view that is a seq of its log is moved.
func TestForkMovesEverySeq(t *testing.T) {
	v := folded(t, story(t)).Durable()
	before := seqsIn(t, v)
	v.Fork(frames.SessionCreated{RootSessionID: "s"}, frames.Time{})
	after := seqsIn(t, v)
	if len(before) == 0 || len(before) != len(after) {
		t.Fatalf("%d seqs before, %d after", len(before), len(after))
	}
	for i, s := range before {
		if after[i] != s+1 {
			t.Errorf("seq %d of %d: %v became %v", i, len(before), s, after[i])
		}
	}
}

// seqsIn returns the numbers in the JSON of v whose names say that they are seqs.
func seqsIn(t *testing.T, v any) []float64 {
	t.Helper()
	var out []float64
	var walk func(name string, x any)
	walk = func(name string, x any) {
		switch x := x.(type) {
		case map[string]any:
			for _, k := range sortedKeys(x) {
				walk(k, x[k])
			}
		case []any:
			for _, e := range x {
				walk(name, e)
			}
		case float64:
			if x > 0 && (strings.HasSuffix(strings.ToLower(name), "seq") || name == "seqs" || name == "upTo") {
				out = append(out, x)
			}
		}
	}
	var m any
	if err := json.Unmarshal([]byte(toJSON(t, v)), &m); err != nil {
		t.Fatal(err)
	}
	walk("", m)
	return out
}

func sortedKeys(m map[string]any) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
