package frames_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
)

var noon = frames.At(time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC))

// event returns an event of p in turn t1.
func event(t testing.TB, seq frames.Seq, p frames.Payload) frames.Event {
	t.Helper()
	e, err := frames.NewEvent(p)
	if err != nil {
		t.Fatalf("NewEvent(%T): %v", p, err)
	}
	e.Seq, e.Time, e.TurnID = seq, noon, "t1"
	return e
}

// encode returns the bytes of e.
func encode(t testing.TB, e frames.Event) []byte {
	t.Helper()
	enc, err := frames.EncodeEvent(e)
	if err != nil {
		t.Fatalf("EncodeEvent(%+v): %v", e, err)
	}
	return enc.Data
}

// A durable event is written with its seq, every field in the contract's order,
// and its data byte for byte.
func TestEncodeEventWritesTheContractsForm(t *testing.T) {
	e := frames.Event{
		Type: "vendor.x/y", Seq: 7, After: 3, Time: noon, TurnID: "t1", TraceID: "tr",
		By:   &frames.By{ClientID: "c1", Label: `my "phone"`},
		Data: json.RawMessage(`{ "b" : 1.0, "a":"<&>" }`),
	}
	got, err := frames.EncodeEvent(e)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"type":"vendor.x/y","seq":7,"ts":"2026-11-30T12:00:00.123Z","turnId":"t1",` +
		`"by":{"clientId":"c1","label":"my \"phone\""},"traceId":"tr","data":{ "b" : 1.0, "a":"<&>" }}`
	if string(got.Data) != want {
		t.Errorf("Data = %s\nwant   %s", got.Data, want)
	}
	if got.Seq != 7 || got.Class != frames.ClassDurable || got.Type != e.Type {
		t.Errorf("Encoded = %d %v %s, want 7, durable, %s", got.Seq, got.Class, got.Type, e.Type)
	}
}

// A live-only event carries after, also when it is 0.
func TestEncodeEventWritesAfterOnLiveEvents(t *testing.T) {
	e := event(t, 0, frames.AssistantDelta{Block: 0, From: 0, To: 1, Text: "<b>"})
	want := `{"type":"assistant/delta","after":0,"ts":"2026-11-30T12:00:00.123Z","turnId":"t1","data":{"block":0,"from":0,"to":1,"text":"<b>"}}`
	if got := encode(t, e); string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// What would break a promise of the wire is refused, not sent.
func TestEncodeEventRefusesWhatBreaksTheWire(t *testing.T) {
	good := frames.Event{Type: "v/x", Seq: 1, Time: noon, Data: json.RawMessage(`{}`)}
	for name, change := range map[string]func(*frames.Event){
		"no type":           func(e *frames.Event) { e.Type = "" },
		"durable, no seq":   func(e *frames.Event) { e.Seq = 0 },
		"live with seq":     func(e *frames.Event) { e.Type = frames.AssistantDeltaEvent },
		"seq over 2^53":     func(e *frames.Event) { e.Seq = frames.MaxInteger },
		"no data":           func(e *frames.Event) { e.Data = nil },
		"data is a list":    func(e *frames.Event) { e.Data = json.RawMessage(`[]`) },
		"data is cut":       func(e *frames.Event) { e.Data = json.RawMessage(`{"a":`) },
		"data has a tail":   func(e *frames.Event) { e.Data = json.RawMessage(`{}}`) },
		"data is not UTF-8": func(e *frames.Event) { e.Data = json.RawMessage("{\"a\":\"\xff\"}") },
		"year 10000":        func(e *frames.Event) { e.Time = frames.At(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)) },
	} {
		e := good
		change(&e)
		if got, err := frames.EncodeEvent(e); err == nil {
			t.Errorf("%s: EncodeEvent = %s, want an error", name, got.Data)
		}
	}
}

// An event of exactly MaxEvent bytes passes; one byte more is ErrTooLarge.
func TestEncodeEventStopsAtMaxEvent(t *testing.T) {
	e := event(t, 1, frames.UserMessage{Content: []frames.ContentBlock{frames.Text("x")}})
	room := frames.MaxEvent - len(encode(t, e)) + 1
	for _, n := range []int{room, room + 1} {
		e := event(t, 1, frames.UserMessage{Content: []frames.ContentBlock{frames.Text(strings.Repeat("x", n))}})
		_, err := frames.EncodeEvent(e)
		if fits := n == room; fits != (err == nil) || !fits && !errors.Is(err, frames.ErrTooLarge) {
			t.Errorf("text of %d (room %d): err = %v", n, room, err)
		}
	}
}

// Every payload of the registry survives the wire; lists that are not optional
// are [] and never null.
func TestEveryPayloadSurvivesTheWire(t *testing.T) {
	for _, info := range frames.EventTypes() {
		p := reflect.ValueOf(info.New()).Elem().Interface().(frames.Payload)
		if p.EventType() != info.Type {
			t.Errorf("%s: New makes a payload of %s", info.Type, p.EventType())
		}
		e := event(t, 0, p)
		if info.Class.Durable() {
			e.Seq = 1
		}
		if list := listOf(p); list != "" && !strings.Contains(string(e.Data), `"`+list+`":[]`) {
			t.Errorf("%s: %s does not hold %q as []", info.Type, e.Data, list)
		}
		back, err := frames.DecodeEvent(encode(t, e))
		if err != nil {
			t.Errorf("%s: %v", info.Type, err)
			continue
		}
		if !reflect.DeepEqual(back, e) {
			t.Errorf("%s: got %+v, want %+v", info.Type, back, e)
		}
		if got, err := back.Payload(); err != nil || reflect.TypeOf(got) != reflect.TypeOf(info.New()) {
			t.Errorf("%s: Payload = %T, %v", info.Type, got, err)
		}
	}
}

// listOf names one list of the payload that is always present.
func listOf(p frames.Payload) string {
	switch p.(type) {
	case frames.UserMessage, frames.ToolResult:
		return "content"
	case frames.AssistantMessage, frames.ReasoningMessage, frames.AssistantRetracted:
		return "blocks"
	case frames.TodoWrite:
		return "todos"
	case frames.QuestionAsked:
		return "questions"
	case frames.CommandAvailable:
		return "commands"
	}
	return ""
}

// Names match by exact case, unknown fields are ignored and an unknown type has
// no payload.
func TestDecodeEventMatchesExactCase(t *testing.T) {
	in := `{"TYPE":"evil","type":"v/x","Seq":9,"seq":2,"ts":"2026-11-30T12:00:00.123Z","new":{"a":[1]},"d\u0061ta":{"x":1},"turnId":null}`
	e, err := frames.DecodeEvent([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	want := frames.Event{Type: "v/x", Seq: 2, Time: noon, Data: json.RawMessage(`{"x":1}`)}
	if !reflect.DeepEqual(e, want) {
		t.Errorf("got %+v, want %+v", e, want)
	}
	if p, err := e.Payload(); p != nil || err != nil {
		t.Errorf("Payload = %v, %v; want nil, nil", p, err)
	}
}

// A field whose name differs in case is unknown at every depth, as it is to any
// other language; the input is not changed.
func TestPayloadMatchesExactCase(t *testing.T) {
	const data = `{"CONTENT":[{"type":"x"}],"promptId":"p","PromptId":"evil","content":[{"type":"text","Text":"evil","text":"good","t\u0059pe":"evil","truncated":{"bytes":1,"BYTES":2}}],"promptID":"evil","new":{"Text":1}}`
	e := frames.Event{Type: frames.UserMessageEvent, Data: json.RawMessage(data)}
	got, err := e.Payload()
	want := &frames.UserMessage{PromptID: "p", Content: []frames.ContentBlock{{Type: "text", Text: "good", Truncated: &frames.Truncated{Bytes: 1}}}}
	if err != nil || !reflect.DeepEqual(got, want) || string(e.Data) != data {
		t.Errorf("got %+v (%v), want %+v and the data as it was", got, err, want)
	}
	f, err := frames.DecodeFrame([]byte(`{"jsonrpc":"2.0","method":"approval/resolved","params":{"outcome":"rejected","OUTCOME":"allowed-once"}}`))
	if r, ok := f.(*frames.ApprovalResolved); !ok || r.Outcome != frames.Rejected {
		t.Errorf("got %+v (%v), want rejected", f, err)
	}
}

// Data shares memory with what was decoded.
func TestDecodeEventDataAliases(t *testing.T) {
	b := []byte(`{"type":"v/x","seq":1,"ts":"2026-11-30T12:00:00Z","data":{"x":1}}`)
	e, err := frames.DecodeEvent(b)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-3] = '2'
	if string(e.Data) != `{"x":2}` {
		t.Errorf("Data = %s, want the changed bytes", e.Data)
	}
}

// Withholding replaces the data alone.
func TestWithholdKeepsTheEnvelope(t *testing.T) {
	e := event(t, 4, frames.ReasoningMessage{Content: []frames.ContentBlock{frames.Text("secret")}, Blocks: []int{1}})
	e.By = &frames.By{ClientID: "c"}
	b := encode(t, e)
	kept := bytes.Clone(b)
	got, err := frames.Withhold(b)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(string(b), string(e.Data), `{"withheld":true}`, 1)
	if string(got) != want || !bytes.Equal(b, kept) {
		t.Errorf("got  %s\nwant %s\nand the input unchanged: %s", got, want, b)
	}
	if _, err := frames.Withhold([]byte(`{"type":"x"}`)); err == nil {
		t.Error("Withhold of an event without data: want an error")
	}
}

// Every frame survives the wire, as a value and as a pointer.
func TestEveryFrameSurvivesTheWire(t *testing.T) {
	for _, info := range frames.FrameTypes() {
		f := info.New()
		switch f := f.(type) {
		case *frames.SessionEvent:
			f.SessionID, f.Event = "s", json.RawMessage(`{ "type":"x" }`)
		case *frames.ApprovalRequested:
			f.Input, f.Options = json.RawMessage(`{}`), []frames.Outcome{}
		case *frames.QuestionRequested:
			f.Questions = []frames.Question{}
		case *frames.SessionLive:
			f.Turn = &frames.LiveTurn{TurnID: "t", Blocks: []frames.LiveBlock{{Kind: "assistant", Text: "<x>", To: 2}}}
		}
		byPointer, err := frames.EncodeFrame(f)
		if err != nil {
			t.Errorf("%s: %v", info.Type, err)
			continue
		}
		byValue, err := frames.EncodeFrame(reflect.ValueOf(f).Elem().Interface().(frames.Frame))
		if err != nil || !bytes.Equal(byPointer, byValue) {
			t.Errorf("%s: by value %s (%v), by pointer %s", info.Type, byValue, err, byPointer)
		}
		back, err := frames.DecodeFrame(byPointer)
		if err != nil || !reflect.DeepEqual(back, f) {
			t.Errorf("%s: got %+v (%v), want %+v", info.Type, back, err, f)
		}
	}
}

// An unknown frame passes through with its params byte for byte.
func TestUnknownFramesPassThrough(t *testing.T) {
	const in = `{"jsonrpc":"2.0","method":"new/thing","params":{ "a":1.50, "b":"\u0041" }}`
	f, err := frames.DecodeFrame([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := f.(*frames.Unknown); !ok {
		t.Fatalf("got %T, want *Unknown", f)
	}
	if out, err := frames.EncodeFrame(f); err != nil || string(out) != in {
		t.Errorf("got  %s (%v)\nwant %s", out, err, in)
	}
}

// What is no notification of the host is refused.
func TestDecodeFrameRefusesOtherMessages(t *testing.T) {
	for _, in := range []string{
		``, `null`, `[]`, `{}`, `{"jsonrpc":"2.0"}`, `{"method":"mux/heartbeat"}`,
		`{"jsonrpc":"1.0","method":"mux/heartbeat"}`, `{"jsonrpc":"2.0","Method":"mux/heartbeat"}`,
		`{"jsonrpc":"2.0","method":"mux/heartbeat","id":1}`, `{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","method":"x","params":1}`, `{"jsonrpc":"2.0","method":"x"}x`,
	} {
		if f, err := frames.DecodeFrame([]byte(in)); err == nil {
			t.Errorf("DecodeFrame(%s) = %+v, want an error", in, f)
		}
	}
}

// The notification of an event holds the event's bytes as they are.
func TestAppendSessionEventIsAnEncodedFrame(t *testing.T) {
	ev := encode(t, event(t, 3, frames.SessionRenamed{Title: "a <b> \u2028"}))
	got := frames.AppendSessionEvent([]byte("x"), `s"1`, ev)
	want := `x{"jsonrpc":"2.0","method":"session/event","params":{"sessionId":"s\"1","event":` + string(ev) + `}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Delivery costs no allocation per client, encoding at most two per event.
func TestCodecAllocations(t *testing.T) {
	e := event(t, 1, frames.UserMessage{Content: []frames.ContentBlock{frames.Text(strings.Repeat("x", 1000))}})
	e.By = &frames.By{ClientID: "c", Label: "phone"}
	ev := encode(t, e)
	dst := make([]byte, 0, 2*len(ev))
	if n := testing.AllocsPerRun(100, func() { frames.AppendSessionEvent(dst, "session", ev) }); n != 0 {
		t.Errorf("AppendSessionEvent allocates %v times, want 0", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = frames.EncodeEvent(e) }); n > 2 {
		t.Errorf("EncodeEvent allocates %v times, want at most 2", n)
	}
}

func BenchmarkAppendSessionEvent(b *testing.B) {
	ev := encode(b, event(b, 1, frames.UserMessage{Content: []frames.ContentBlock{frames.Text(strings.Repeat("x", 200))}}))
	dst := make([]byte, 0, 2*len(ev))
	b.ReportAllocs()
	for b.Loop() {
		frames.AppendSessionEvent(dst, "01890a5d-ac96-774b-bcce-b302099a8057", ev)
	}
}

func BenchmarkEncodeEvent(b *testing.B) {
	e := event(b, 1, frames.UserMessage{Content: []frames.ContentBlock{frames.Text(strings.Repeat("x", 200))}})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := frames.EncodeEvent(e); err != nil {
			b.Fatal(err)
		}
	}
}
