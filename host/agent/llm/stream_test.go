package llm_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/muxhost/muxhost/host/agent/llm"
)

// An event stream is read whatever its line ends, comments, fields and cuts.
func TestEventsOfAStream(t *testing.T) {
	for in, want := range map[string][]string{
		"":                                      nil,
		"data: a\n\ndata: b\n\n":                {"a", "b"},
		"data: a\r\n\r\ndata: b\r\n\r\n":        {"a", "b"},
		"data: a\r\ndata: b\r\n\r\n":            {"a\nb"},
		"data: a\r\rdata: b\r\r":                {"a", "b"},
		"data:a\ndata: b\ndata\n\n":             {"a\nb\n"},
		": hello\nevent: x\nid: 1\ndata: a\n\n": {"a"},
		": ping\n\n: ping\n\ndata: a\n\n":       {"a"},
		"\uFEFFdata: a\n\n":                     {"a"},
		"data: a":                               {"a"},
		"data: a\n":                             {"a"},
		"data:  a\n\n\n\n":                      {" a"},
		"database: a\n\n":                       nil,
	} {
		for name, r := range map[string]func(string) []string{
			"whole":   func(s string) []string { got, _ := llm.Events(strings.NewReader(s)); return got },
			"by byte": func(s string) []string { got, _ := llm.Events(iotest.OneByteReader(strings.NewReader(s))); return got },
		} {
			if got := r(in); !slices.Equal(got, want) {
				t.Errorf("%q %s = %q; want %q", in, name, got, want)
			}
		}
	}
}

// A line that never ends is an error, not memory.
func TestEndlessLineIsAnError(t *testing.T) {
	if _, err := llm.Events(strings.NewReader("data: " + strings.Repeat("x", 9<<20))); err == nil {
		t.Error("9 MiB in a line were read; want an error")
	}
}

// An event that never ends is an error, not memory.
func TestEndlessEventIsAnError(t *testing.T) {
	if _, err := llm.Events(strings.NewReader(strings.Repeat("data: "+strings.Repeat("x", 1<<10)+"\n", 9<<10))); err == nil {
		t.Error("an event of 9 MiB was read; want an error")
	}
	if _, err := llm.Events(strings.NewReader(strings.Repeat("data: "+strings.Repeat("x", 1<<10)+"\n\n", 9<<10))); err != nil {
		t.Errorf("many events are %v", err)
	}
}

// data makes a stream of JSON events.
func data(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("data: " + e + "\n\n")
	}
	return b.String()
}

func content(s string) string { return `{"choices":[{"index":0,"delta":{"content":"` + s + `"}}]}` }

func calls(s string) string { return `{"choices":[{"index":0,"delta":{"tool_calls":[` + s + `]}}]}` }

func finish(s string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + s + `"}]}`
}

// Answers are put together as servers send them, in all their ways.
func TestAnswersOfServers(t *testing.T) {
	stop, over := finish("stop"), "[DONE]"
	for name, c := range map[string]struct {
		stream string
		want   llm.Answer
	}{
		"plain":           {data(content("a"), content("b"), stop, over), llm.Answer{Text: "ab", Finish: "stop"}},
		"no [DONE]":       {data(content("a"), stop), llm.Answer{Text: "a", Finish: "stop"}},
		"no finish":       {data(content("a"), over), llm.Answer{Text: "a"}},
		"cut after end":   {data(content("a"), stop) + "data: {\"ch", llm.Answer{Text: "a", Finish: "stop"}},
		"behind [DONE]":   {data(content("a"), stop, over, content("b")), llm.Answer{Text: "a", Finish: "stop"}},
		"empty deltas":    {data(`{"choices":[]}`, `{}`, `{"choices":[{"delta":{}}]}`, `{"choices":[{"delta":{"content":null}}]}`, content("a"), stop), llm.Answer{Text: "a", Finish: "stop"}},
		"two choices":     {data(content("a"), `{"choices":[{"index":1,"delta":{"content":"X"},"finish_reason":"stop"}]}`, content("b"), stop), llm.Answer{Text: "ab", Finish: "stop"}},
		"parts":           {data(`{"choices":[{"delta":{"content":[{"type":"text","text":"a"}]}}]}`, stop), llm.Answer{Text: "a", Finish: "stop"}},
		"not streamed":    {data(`{"choices":[{"message":{"content":"a","tool_calls":[{"id":"x","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"stop"}]}`), llm.Answer{Text: "a", Finish: "stop", Calls: [][2]string{{"f", "{}"}}}},
		"reasoning":       {data(`{"choices":[{"delta":{"reasoning_content":"r"}}]}`, content("a"), stop), llm.Answer{Text: "a", Reasoning: "r", Finish: "stop"}},
		"other reasoning": {data(`{"choices":[{"delta":{"reasoning":"r"}}]}`, content("a"), `{"choices":[{"delta":{"reasoning":"s"}}]}`, stop), llm.Answer{Text: "a", Reasoning: "rs", Finish: "stop"}},
		"both reasonings": {data(`{"choices":[{"delta":{"reasoning":"r","reasoning_content":"r"}}]}`, stop), llm.Answer{Reasoning: "r", Finish: "stop"}},
		"call in pieces": {data(calls(`{"index":0,"id":"c","function":{"name":"f","arguments":""}}`), calls(`{"index":0,"function":{"arguments":"{\"a\""}}`),
			calls(`{"index":0,"function":{"arguments":":1}"}}`), finish("tool_calls")), llm.Answer{Finish: "tool_calls", Calls: [][2]string{{"f", `{"a":1}`}}}},
		"interleaved calls": {
			data(calls(`{"index":0,"id":"c","function":{"name":"f","arguments":"{"}},{"index":1,"id":"d","function":{"name":"g","arguments":"["}}`), content("t"),
				calls(`{"index":1,"function":{"arguments":"]"}}`), calls(`{"index":0,"function":{"arguments":"}"}}`), finish("tool_calls")),
			llm.Answer{Text: "t", Finish: "tool_calls", Calls: [][2]string{{"f", "{}"}, {"g", "[]"}}},
		},
		"one index for all": {
			data(calls(`{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}`), calls(`{"index":0,"id":"d","function":{"name":"f","arguments":"{}"}}`), stop),
			llm.Answer{Finish: "stop", Calls: [][2]string{{"f", "{}"}, {"f", "{}"}}},
		},
		"no index": {
			data(calls(`{"id":"c","function":{"name":"f","arguments":"{"}}`), calls(`{"function":{"arguments":"}"}}`), calls(`{"id":"d","function":{"name":"g"}}`), stop),
			llm.Answer{Finish: "stop", Calls: [][2]string{{"f", "{}"}, {"g", ""}}},
		},
		"no index, no id": {
			data(calls(`{"function":{"name":"f","arguments":"{}"}}`), calls(`{"function":{"name":"g","arguments":"{}"}}`), stop),
			llm.Answer{Finish: "stop", Calls: [][2]string{{"f", "{}"}, {"g", "{}"}}},
		},
		"id in every piece": {
			data(calls(`{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}`), calls(`{"index":0,"id":"c","function":{"name":"f","arguments":"}"}}`), stop),
			llm.Answer{Finish: "stop", Calls: [][2]string{{"f", "{}"}}},
		},
		"arguments as object": {
			data(calls(`{"index":0,"id":"c","function":{"name":"f","arguments":{"a":1}}}`), stop),
			llm.Answer{Finish: "stop", Calls: [][2]string{{"f", `{"a":1}`}}},
		},
	} {
		c.want.Started = true
		got, err := llm.Read(c.stream)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
}

// A stream that is cut, broken, says that it failed, or says too much is an error,
// and it is known whether something of an answer had come.
func TestBrokenStreamsAreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		stream, want string
		started      bool
	}{
		"empty":            {"", "cut", false},
		"only [DONE]":      {data("[DONE]"), "without an answer", false},
		"cut":              {data(content("a")), "cut", true},
		"cut before":       {data(`{"choices":[{"delta":{"role":"assistant"}}]}`), "cut", false},
		"no JSON":          {data("{oops"), "no JSON", false},
		"no JSON later":    {data(content("a"), "{oops"), "no JSON", true},
		"error":            {data(`{"error":{"message":"gpu on fire","code":500}}`), "gpu on fire", false},
		"error text":       {data(content("a"), `{"error":"gpu on fire"}`), "gpu on fire", true},
		"too much":         {data(slices.Repeat([]string{content(strings.Repeat("x", 1<<20))}, 5)...), "passed", true},
		"too many calls":   {data(slices.Repeat([]string{calls(`{"function":{"name":"f"}}`)}, 65)...), "65", true},
		"endless argument": {data(slices.Repeat([]string{calls(`{"index":0,"function":{"arguments":"` + strings.Repeat("x", 1<<20) + `"}}`)}, 5)...), "passed", true},
	} {
		if name == "too many calls" {
			c.want = "more than 64"
		}
		got, err := llm.Read(c.stream)
		if err == nil || !strings.Contains(err.Error(), c.want) || got.Started != c.started {
			t.Errorf("%s: %v, started %v; want %q, %v", name, err, got.Started, c.want, c.started)
		}
	}
}

// No stream makes the reader fall over, and how it is cut does not matter.
func FuzzStream(f *testing.F) {
	f.Add(data(content("a"), calls(`{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}`), finish("stop"), "[DONE]"))
	f.Add("data: a\r\ndata: b\r\r: c\n\n\uFEFF")
	f.Fuzz(func(t *testing.T, s string) {
		whole, err := llm.Events(strings.NewReader(s))
		bytewise, err2 := llm.Events(iotest.OneByteReader(strings.NewReader(s)))
		if !slices.Equal(whole, bytewise) || (err == nil) != (err2 == nil) {
			t.Errorf("%q = %q, %v; by byte %q, %v", s, whole, err, bytewise, err2)
		}
		_, _ = llm.Read(s)
	})
}
