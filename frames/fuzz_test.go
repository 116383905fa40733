package frames_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/muxhost/muxhost/frames"
)

func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,-0.5e+3,"\ud83d\ude00"],"a":null}`, "[\"\xff\"]", `[[[[`, `01`, `"\u12"`, "\ufeff{}", `{"":{"":[]}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) { agree(t, b) })
}

func FuzzDecodeEvent(f *testing.F) {
	for _, e := range story(f) {
		f.Add(encode(f, e))
	}
	f.Add([]byte(`{"type":"v/x","seq":1,"ts":"0001-01-01T00:00:00+23:59","data":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := frames.DecodeEvent(b)
		if err != nil {
			return
		}
		if _, err := e.Payload(); err != nil && json.Unmarshal(e.Data, new(any)) != nil {
			t.Errorf("Data of %q is no JSON", b)
		}
		enc, err := frames.EncodeEvent(e)
		if err != nil {
			return // no seq where one must be, or the reverse
		}
		back, err := frames.DecodeEvent(enc.Data)
		if err != nil {
			t.Fatalf("%s does not decode: %v", enc.Data, err)
		}
		if e.Seq > 0 {
			e.After = 0
		}
		if !reflect.DeepEqual(back, e) {
			t.Errorf("got %+v, want %+v", back, e)
		}
		if _, err := frames.Withhold(enc.Data); err != nil {
			t.Errorf("Withhold(%s): %v", enc.Data, err)
		}
	})
}

func FuzzDecodeFrame(f *testing.F) {
	for _, info := range frames.FrameTypes() {
		fr := info.New()
		if se, ok := fr.(*frames.SessionEvent); ok {
			se.Event = json.RawMessage(`{"type":"v/x","seq":1,"data":{}}`)
		}
		b, err := frames.EncodeFrame(fr)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"jsonrpc":"2.0","method":"x/y","params":[1]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, err := frames.DecodeFrame(b)
		if err != nil {
			return
		}
		enc, err := frames.EncodeFrame(fr)
		if err != nil {
			return // an event that is no object
		}
		back, err := frames.DecodeFrame(enc)
		if err != nil {
			t.Fatalf("%s does not decode: %v", enc, err)
		}
		again, err := frames.EncodeFrame(back)
		if err != nil || !bytes.Equal(again, enc) {
			t.Errorf("got  %s (%v)\nwant %s", again, err, enc)
		}
	})
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"b":1.50,"a":[1e21,1e-7,-0],"\ud83d\ude00":"\u000f"}`, `{"\ufb33":1,"\ud83d\ude00":2}`, `"\u2028"`, `9007199254740991`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := frames.Canonical(b)
		if err != nil {
			kindOf(t, err)
			return
		}
		again, err := frames.Canonical(c)
		if err != nil || !bytes.Equal(again, c) {
			t.Fatalf("Canonical(%q) = %q, then %q (%v)", b, c, again, err)
		}
		var v any
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatalf("%q has a canonical form and does not decode: %v", b, err)
		}
		std, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := frames.Canonical(std); err != nil || !bytes.Equal(got, c) {
			t.Errorf("%q: canonical %q, after encoding/json %q (%v)", b, c, got, err)
		}
	})
}

// steps reads a sequence of events and frames from bytes: lines of JSON, or,
// where a line is none, events chosen by its bytes.
func steps(b []byte, es []frames.Event) []any {
	var out []any
	for line := range bytes.SplitSeq(b, []byte("\n")) {
		if fr, err := frames.DecodeFrame(line); err == nil {
			out = append(out, fr)
		} else if e, err := frames.DecodeEvent(line); err == nil {
			out = append(out, e)
		} else {
			for _, c := range line {
				out = append(out, es[int(c)%len(es)])
			}
		}
	}
	return out
}

// run applies the steps; durable events from the story get the next seq.
func run(v *frames.View, steps []any) {
	for _, s := range steps {
		switch s := s.(type) {
		case frames.Event:
			if s.Seq > 0 && s.Time.Year() == noon.Year() {
				s.Seq = v.Seq + 1
			}
			_ = v.ApplyEvent(s)
		case frames.Frame:
			_ = v.ApplyFrame(s)
		}
	}
}

// differ shows where two texts part.
func differ(got, want string) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	show := func(s string) string { return s[max(0, i-300):min(len(s), i+300)] }
	return "got  …" + show(got) + "\nwant …" + show(want)
}

// goOn checks that events fold the same through the JSON of the view between
// any two of them.
func goOn(t *testing.T, ss []any, cut int) {
	t.Helper()
	whole, first, second := frames.NewView(), frames.NewView(), frames.NewView()
	run(whole, ss)
	run(first, ss[:cut])
	if err := json.Unmarshal([]byte(toJSON(t, first)), second); err != nil {
		t.Fatal(err)
	}
	run(second, ss[cut:])
	if got, want := toJSON(t, second), toJSON(t, whole); got != want {
		t.Fatalf("through JSON at %d:\n%s", cut, differ(got, want))
	}
}

func FuzzView(f *testing.F) {
	es := story(f)
	var all []byte
	for i := range es {
		all = append(all, byte(i))
	}
	f.Add(all, 7)
	f.Add([]byte("\x05\x06\x09\x0a\x0b\x0e\x12\x0b\x12\x17\x06\x21"), 3)
	f.Add([]byte(`{"jsonrpc":"2.0","method":"session/live","params":{"sessionId":"s","seq":3,"turn":{"turnId":"t1","blocks":[{"block":1,"kind":"assistant","text":"x","offset":0,"to":1}],"tools":[{"callId":"c1","text":"a","to":2}]},"more":true}}`+"\n\x05\x06\x0a"), 1)
	f.Add([]byte("\x05\x06\n"+`{"jsonrpc":"2.0","method":"session/subscribed","params":{"sessionId":"s","since":0,"epoch":"e","state":"idle","base":{"seq":4,"turns":[{"turnId":"a"}],"turnId":"a","items":[{"kind":"tool","seq":2,"turnId":"a","tool":{"callId":"c1","running":true}}]}}}`+"\n\x0a\x0b"), 2)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		if len(b) > 4096 {
			return
		}
		ss := steps(b, es)
		cut := 0
		if len(ss) > 0 {
			cut = max(at, -at, 0) % len(ss)
		}
		if !slices.ContainsFunc(ss, func(s any) bool { _, frame := s.(frames.Frame); return frame }) {
			goOn(t, ss, cut)
		}
		whole, split := frames.NewView(), frames.NewView()
		run(whole, ss)
		run(split, ss[:cut])
		run(split, ss[cut:])
		want := toJSON(t, whole)
		if got := toJSON(t, split); got != want {
			t.Fatalf("split at %d:\n%s", cut, differ(got, want))
		}
		d := whole.Durable()
		if a, b := toJSON(t, d), toJSON(t, d.Durable()); a != b {
			t.Fatalf("durable of durable:\n%s", differ(b, a))
		}
		back := frames.NewView()
		if err := json.Unmarshal([]byte(want), back); err != nil {
			t.Fatalf("the view does not decode: %v\n%s", err, want)
		}
		if got := toJSON(t, back); got != want {
			t.Fatalf("after a round trip:\n%s", differ(got, want))
		}
	})
}
