package frames_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// kindOf returns the kind and offset of a refusal, "" for none.
func kindOf(t testing.TB, err error) (frames.JSONErrorKind, int) {
	t.Helper()
	if err == nil {
		return "", 0
	}
	e, ok := errors.AsType[*frames.JSONError](err)
	if !ok {
		t.Fatalf("error %v (%T), want a *JSONError", err, err)
	}
	return e.Kind, e.Offset
}

// Each flaw has its kind and its place.
func TestCheckJSONNamesTheFlaw(t *testing.T) {
	for _, c := range []struct {
		in   string
		lim  frames.JSONLimits
		kind frames.JSONErrorKind
		at   int
	}{
		{in: `{"a":[1,2.5e-3,true,false,null,"\u00e9\n"],"b":{}}`},
		{in: ` 1 `},
		{in: ``, kind: frames.JSONSyntax},
		{in: `1 2`, kind: frames.JSONSyntax, at: 2},
		{in: "\ufeff1", kind: frames.JSONSyntax},
		{in: `[1,]`, kind: frames.JSONSyntax, at: 3},
		{in: `{"a" 1}`, kind: frames.JSONSyntax, at: 5},
		{in: `"\x"`, kind: frames.JSONSyntax, at: 2},
		{in: "\"a\xff\"", kind: frames.JSONUTF8, at: 2},
		{in: "[\"\xff\",", kind: frames.JSONSyntax, at: 5},
		{in: `{"a":1,"a":2`, kind: frames.JSONSyntax, at: 12},
		{in: `{"a":1,"a":2}`, kind: frames.JSONDuplicateKey, at: 7},
		{in: `{"a":1,"\u0061":2}`, kind: frames.JSONDuplicateKey, at: 7},
		{in: `[{"x":{"b":1,"c":2,"b":3}}]`, kind: frames.JSONDuplicateKey, at: 19},
		{in: `{"a":1,"A":2}`},
		{in: `[{"a":1},{"a":1}]`},
		{in: `{"a":{"a":{"a":1}}}`},
		{in: strings.Repeat("[", 64) + strings.Repeat("]", 64)},
		{in: strings.Repeat("[", 65) + strings.Repeat("]", 65), kind: frames.JSONDepth, at: 64},
		{in: `[[1]]`, lim: frames.JSONLimits{Depth: 2}},
		{in: `[[{}]]`, lim: frames.JSONLimits{Depth: 2}, kind: frames.JSONDepth, at: 2},
		{in: `{"a":[1,2]}`, lim: frames.JSONLimits{Tokens: 5}},
		{in: `{"a":[1,2]}`, lim: frames.JSONLimits{Tokens: 4}, kind: frames.JSONTooMany, at: 8},
		{in: `[1]`, lim: frames.JSONLimits{Bytes: 3}},
		{in: `[10]`, lim: frames.JSONLimits{Bytes: 3}, kind: frames.JSONTooLarge, at: 3},
		{in: `9007199254740992`},
		{in: `9007199254740991`, lim: frames.JSONLimits{IJSON: true}},
		{in: `-9007199254740991`, lim: frames.JSONLimits{IJSON: true}},
		{in: `[9007199254740992]`, lim: frames.JSONLimits{IJSON: true}, kind: frames.JSONNumber, at: 1},
		{in: `-9007199254740992`, lim: frames.JSONLimits{IJSON: true}, kind: frames.JSONNumber},
		{in: `10000000000000001.0`, lim: frames.JSONLimits{IJSON: true}, kind: frames.JSONNumber},
		{in: `1e16`, lim: frames.JSONLimits{IJSON: true}, kind: frames.JSONNumber},
		{in: `1e300`, lim: frames.JSONLimits{IJSON: true}},
		{in: `1e400`, lim: frames.JSONLimits{IJSON: true}, kind: frames.JSONNumber},
		{in: `1e400`},
		{in: `"\ud83d\ude00"`, lim: frames.JSONLimits{IJSON: true}},
		{in: `"\ud83d"`},
		{in: `"\ud83d"`, lim: frames.JSONLimits{IJSON: true}, kind: frames.JSONSurrogate, at: 1},
		{in: `"a\ude00"`, lim: frames.JSONLimits{IJSON: true}, kind: frames.JSONSurrogate, at: 2},
		{in: `"\ud83d\ud83d\ude00"`, lim: frames.JSONLimits{IJSON: true}, kind: frames.JSONSurrogate, at: 1},
		{in: `"\ud83d\n"`, lim: frames.JSONLimits{IJSON: true}, kind: frames.JSONSurrogate, at: 1},
		{in: `{"\udc00":1}`, lim: frames.JSONLimits{IJSON: true}, kind: frames.JSONSurrogate, at: 2},
	} {
		kind, at := kindOf(t, frames.CheckJSON([]byte(c.in), c.lim))
		if kind != c.kind || kind != "" && at != c.at {
			t.Errorf("CheckJSON(%.60q, %+v) = %q at %d, want %q at %d", c.in, c.lim, kind, at, c.kind, c.at)
		}
	}
}

// The syntax is that of encoding/json, also for every text that one byte makes.
func TestCheckJSONAgreesOnSyntax(t *testing.T) {
	const base = `{"a":[1,-2.5e+3,true,null,"\u00e9\"x"],"b":{"c":0}}`
	for i := range base {
		for c := range 256 {
			b := []byte(base)
			b[i] = byte(c)
			agree(t, b)
			agree(t, b[:i])
		}
	}
}

// agree checks CheckJSON against json.Valid.
func agree(t testing.TB, b []byte) {
	t.Helper()
	kind, at := kindOf(t, frames.CheckJSON(b, frames.JSONLimits{Depth: 10000, IJSON: true}))
	if valid := json.Valid(b); kind != frames.JSONDepth && valid == (kind == frames.JSONSyntax) {
		t.Errorf("CheckJSON(%q) = %q at %d, json.Valid = %v", b, kind, at, valid)
	}
	if at > len(b) {
		t.Errorf("CheckJSON(%q): offset %d of %d bytes", b, at, len(b))
	}
}

// Duplicates are found however many names an object has, and many names cost
// linear time.
func TestCheckJSONManyNames(t *testing.T) {
	object := func(n int, last string) []byte {
		var b strings.Builder
		b.WriteString("{")
		for i := range n {
			fmt.Fprintf(&b, `"k%d":%d,`, i, i)
		}
		fmt.Fprintf(&b, "%q:1}", last)
		return []byte(b.String())
	}
	for _, n := range []int{1, 7, 8, 9, 10, 40, 1000} {
		for _, at := range []int{0, n / 2, n - 1} {
			if kind, _ := kindOf(t, frames.CheckJSON(object(n, fmt.Sprint("k", at)), frames.JSONLimits{})); kind != frames.JSONDuplicateKey {
				t.Errorf("%d names, the last repeats k%d: %q, want duplicate-key", n, at, kind)
			}
		}
		if err := frames.CheckJSON(object(n, "new"), frames.JSONLimits{}); err != nil {
			t.Errorf("%d names: %v", n, err)
		}
	}
	small, large := object(2000, "x"), object(64000, "x")
	check := func(b []byte) {
		if err := frames.CheckJSON(b, frames.JSONLimits{}); err != nil {
			t.Fatal(err)
		}
	}
	if r := ratio(32, func() { check(small) }, func() { check(large) }); r > 10 {
		t.Errorf("a name costs %.1f times as much among 64000 as among 2000", r)
	}
}

// ratio compares running large once with running small times times, at their
// best of some tries: about 1 where the cost is linear, times where it is
// quadratic.
func ratio(times int, small, large func()) float64 {
	least := [2]time.Duration{time.Hour, time.Hour}
	for range 3 {
		start := time.Now()
		for range times {
			small()
		}
		mid := time.Now()
		large()
		least[0] = min(least[0], mid.Sub(start))
		least[1] = min(least[1], time.Since(mid))
	}
	return float64(least[1]) / float64(least[0])
}

// The published vectors of RFC 8785, and what its rules say of the rest.
func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{
		`{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}`:                                        `{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`: "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}",
		` [ 1 , { "b" : [ ] , "a" : { } } ] `:             `[1,{"a":{},"b":[]}]`,
		`[-0,0.0,-0.0,1.0,100e-2,1e21,1.5e21,1e-6,1e-7] `: `[0,0,0,1,1,1e+21,1.5e+21,0.000001,1e-7]`,
		`[5e-324,1.7976931348623157e308,-1e-10]`:          `[5e-324,1.7976931348623157e+308,-1e-10]`,
		`"\u2028\u007f<>&\b\f\u0001"`:                     "\"\u2028\u007f<>&\\b\\f\\u0001\"",
		`{"a":1,"":0,"aa":2}`:                             `{"":0,"a":1,"aa":2}`,
	} {
		got, err := frames.Canonical([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("Canonical(%s)\n got %s (%v)\nwant %s", in, got, err, want)
		}
	}
}

// Input that is not I-JSON has no canonical form and no hash.
func TestInputHashRefusesWhatIsNotIJSON(t *testing.T) {
	for in, kind := range map[string]frames.JSONErrorKind{
		`{"a":1,"a":1}`: frames.JSONDuplicateKey, `9007199254740993`: frames.JSONNumber, `"\ud800"`: frames.JSONSurrogate,
		"\"\xff\"": frames.JSONUTF8, `{`: frames.JSONSyntax,
	} {
		b, hash, err := frames.InputHash([]byte(in))
		if got, _ := kindOf(t, err); got != kind || b != nil || hash != "" {
			t.Errorf("InputHash(%q) = %s, %q, %v; want %s", in, b, hash, err, kind)
		}
	}
}

// The hash is that of the canonical bytes, whatever way the input was written.
func TestInputHashIsOfTheCanonicalForm(t *testing.T) {
	const want = "43258cff783fe7036d8a43033f830adfc60ec037382473548ac742b888292777" // sha256 of {"a":1,"b":2}
	for _, in := range []string{`{"a":1,"b":2}`, ` { "b" : 2.0, "\u0061": 10e-1 } `} {
		b, hash, err := frames.InputHash([]byte(in))
		if err != nil || string(b) != `{"a":1,"b":2}` || hash != want {
			t.Errorf("InputHash(%s) = %s, %s, %v; want %s", in, b, hash, err, want)
		}
	}
}
