package frames

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
)

// ErrTooLarge reports an event over [MaxEvent] or a frame over [MaxFrame].
var ErrTooLarge = errors.New("frames: too large")

// NewEvent returns an event with Type and Data from p; the caller fills in the
// rest. Data is JSON without HTML escaping; lists that are not optional are
// never null. Text that is not UTF-8 is repaired with U+FFFD. It fails only on a
// payload that holds raw JSON which is none.
func NewEvent(p Payload) (Event, error) {
	if p == nil {
		return Event{}, errors.New("new event: want a payload, got nil")
	}
	data, err := marshal(p)
	if err != nil {
		return Event{}, fmt.Errorf("new event %s: %w", p.EventType(), err)
	}
	return Event{Type: p.EventType(), Data: data}, nil
}

// EncodeEvent encodes e once for its whole life: {"type","seq"|"after","ts",
// "turnId"?,"by"?,"traceId"?,"data"}. Data goes in byte for byte; it must be a
// JSON object in valid UTF-8. A durable event needs Seq >= 1, a live-only one
// has Seq 0 and carries After. An event over [MaxEvent] is [ErrTooLarge].
func EncodeEvent(e Event) (Encoded, error) {
	class := ClassOf(e.Type)
	if err := checkEvent(e, class); err != nil {
		return Encoded{}, fmt.Errorf("encode event %s: %w", clip([]byte(e.Type)), err)
	}
	buf := appendEvent(make([]byte, 0, sizeHint(e)), e, class.Durable())
	if len(buf) > MaxEvent {
		return Encoded{}, fmt.Errorf("%w: event %s seq %d has %d bytes, want at most %d: cut its parts to previews",
			ErrTooLarge, e.Type, e.Seq, len(buf), MaxEvent)
	}
	return Encoded{Seq: e.Seq, Class: class, Type: e.Type, Data: buf}, nil
}

func checkEvent(e Event, class Class) error {
	switch {
	case e.Type == "":
		return errors.New("want a type")
	case class.Durable() && e.Seq == 0:
		return errors.New("a durable event wants a seq from 1, got 0")
	case !class.Durable() && e.Seq != 0:
		return fmt.Errorf("a live-only event wants no seq, got %d", e.Seq)
	case e.Seq >= MaxInteger || e.After >= MaxInteger:
		return fmt.Errorf("seq %d, after %d: want less than 2^53", e.Seq, e.After)
	}
	if !writable(e.Time.Time) {
		return fmt.Errorf("time: want a year from 0 to 9999, got %d", e.Time.UTC().Year())
	}
	if err := checkObject(e.Data); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	return nil
}

// sizeHint is at least the encoded size but for escapes in ids.
func sizeHint(e Event) int {
	n := 160 + len(e.Type) + len(e.TurnID) + len(e.TraceID) + len(e.Data)
	if e.By != nil {
		n += 40 + len(e.By.ClientID) + len(e.By.Label)
	}
	return n
}

func appendEvent(b []byte, e Event, durable bool) []byte {
	b = appendString(append(b, `{"type":`...), e.Type)
	if durable {
		b = strconv.AppendUint(append(b, `,"seq":`...), uint64(e.Seq), 10)
	} else {
		b = strconv.AppendUint(append(b, `,"after":`...), uint64(e.After), 10)
	}
	b = e.Time.UTC().AppendFormat(append(b, `,"ts":"`...), timeLayout)
	b = append(b, '"')
	if e.TurnID != "" {
		b = appendString(append(b, `,"turnId":`...), e.TurnID)
	}
	if e.By != nil {
		b = appendString(append(b, `,"by":{"clientId":`...), e.By.ClientID)
		if e.By.Label != "" {
			b = appendString(append(b, `,"label":`...), e.By.Label)
		}
		b = append(b, '}')
	}
	if e.TraceID != "" {
		b = appendString(append(b, `,"traceId":`...), e.TraceID)
	}
	return append(append(append(b, `,"data":`...), e.Data...), '}')
}

// DecodeEvent reads an encoded event. Names match by exact case, unknown fields
// are ignored, and Data aliases b.
func DecodeEvent(b []byte) (Event, error) {
	var e Event
	err := eachField(b, func(name string, _ int, v []byte) error { return e.set(name, v) })
	switch {
	case err != nil:
	case e.Type == "":
		err = errors.New("want a type")
	case e.Data == nil:
		err = errors.New("data: want an object, got none")
	}
	if err != nil {
		return Event{}, fmt.Errorf("decode event: %w", err)
	}
	return e, nil
}

// set takes one field of the envelope.
func (e *Event) set(name string, v []byte) error {
	switch name {
	case "type":
		return setString(&e.Type, name, v)
	case "seq":
		return setSeq(&e.Seq, name, v)
	case "after":
		return setSeq(&e.After, name, v)
	case "ts":
		return setTime(&e.Time, v)
	case "turnId":
		return setString(&e.TurnID, name, v)
	case "traceId":
		return setString(&e.TraceID, name, v)
	case "by":
		return setBy(&e.By, v)
	case "data":
		if v[0] != '{' {
			return fmt.Errorf("data: want an object, got %s", clip(v))
		}
		e.Data = v
	}
	return nil
}

func setTime(dst *Time, v []byte) error {
	if isNull(v) {
		return nil
	}
	if err := dst.UnmarshalJSON(v); err != nil {
		return fmt.Errorf("ts: %w", err)
	}
	return nil
}

func setBy(dst **By, v []byte) error {
	if isNull(v) {
		return nil
	}
	by := new(By)
	err := eachField(v, func(name string, _ int, v []byte) error {
		switch name {
		case "clientId":
			return setString(&by.ClientID, name, v)
		case "label":
			return setString(&by.Label, name, v)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("by: %w", err)
	}
	*dst = by
	return nil
}

// Payload decodes Data into the registry's type and returns a pointer to it, or
// nil, nil when the type is not in the registry. Nothing of it aliases Data.
func (e Event) Payload() (any, error) {
	info, ok := eventIndex[e.Type]
	if !ok {
		return nil, nil
	}
	p := info.New()
	if err := unmarshal(e.Data, p); err != nil {
		return nil, fmt.Errorf("payload of %s: %w", e.Type, err)
	}
	return p, nil
}

// Withhold returns the event with its data replaced by {"withheld":true}; every
// other byte stays. event must be an encoded event; it is not changed.
func Withhold(event []byte) ([]byte, error) {
	const withheld = `{"withheld":true}`
	out := make([]byte, 0, min(len(event), 512)+len(withheld))
	kept := 0
	err := eachField(event, func(name string, from int, v []byte) error {
		if name == "data" {
			out = append(append(out, event[kept:from]...), withheld...)
			kept = from + len(v)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("withhold: %w", err)
	}
	if kept == 0 {
		return nil, errors.New("withhold: want an event with data, got none")
	}
	return append(out, event[kept:]...), nil
}

const (
	frameHead  = `{"jsonrpc":"2.0","method":`
	eventHead  = frameHead + `"session/event","params":{"sessionId":`
	eventInner = `,"event":`
)

// AppendSessionEvent appends the whole `session/event` notification to dst.
// event goes in byte for byte. It allocates nothing when dst is large enough.
func AppendSessionEvent(dst []byte, sid SessionID, event []byte) []byte {
	dst = appendString(append(dst, eventHead...), sid)
	dst = append(append(dst, eventInner...), event...)
	return append(dst, '}', '}')
}

// EncodeFrame returns the whole notification. f is the params type of a frame or
// a pointer to one; the params of an [Unknown], and the event of a
// [SessionEvent], go through byte for byte. A frame over [MaxFrame] is
// [ErrTooLarge].
func EncodeFrame(f Frame) ([]byte, error) {
	if v := reflect.ValueOf(f); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("encode frame: want a frame, got nil")
	}
	b, err := encodeFrame(f)
	if err != nil {
		return nil, fmt.Errorf("encode frame %s: %w", clip([]byte(f.FrameType())), err)
	}
	if len(b) > MaxFrame {
		return nil, fmt.Errorf("%w: frame %s has %d bytes, want at most %d", ErrTooLarge, f.FrameType(), len(b), MaxFrame)
	}
	return b, nil
}

func encodeFrame(f Frame) ([]byte, error) {
	var params []byte
	switch f := value(f).(type) {
	case SessionEvent:
		if err := checkObject(f.Event); err != nil {
			return nil, fmt.Errorf("event: %w", err)
		}
		size := len(eventHead) + len(f.SessionID) + len(f.Event) + 32
		return AppendSessionEvent(make([]byte, 0, size), f.SessionID, f.Event), nil
	case Unknown:
		if f.Type == "" {
			return nil, errors.New("want a type")
		}
		if err := checkParams(f.Params); err != nil {
			return nil, err
		}
		params = f.Params
	default:
		var err error
		if params, err = marshal(f); err != nil {
			return nil, err
		}
	}
	b := make([]byte, 0, len(frameHead)+len(f.FrameType())+len(params)+16)
	b = appendString(append(b, frameHead...), f.FrameType())
	if len(params) > 0 {
		b = append(append(b, `,"params":`...), params...)
	}
	return append(b, '}'), nil
}

// checkParams accepts what JSON-RPC does: no params, an object or an array.
func checkParams(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	c := checker{b: b, maxDepth: maxScanDepth}
	if err := c.text(); err != nil {
		return fmt.Errorf("params: %w", err)
	}
	if at := skipSpace(b, 0); b[at] != '{' && b[at] != '[' {
		return fmt.Errorf("params: want an object or an array, got %s", clip(b))
	}
	return nil
}

// value returns the frame itself where f is a pointer to one.
func value(f Frame) Frame {
	if v := reflect.ValueOf(f); v.Kind() == reflect.Pointer && !v.IsNil() {
		if e, ok := v.Elem().Interface().(Frame); ok {
			return e
		}
	}
	return f
}

// DecodeFrame reads a notification and returns a pointer to the params type, or
// an *[Unknown] whose Params alias b. The envelope's names match by exact case;
// what is not a notification (it has an id, a result or an error) is refused.
func DecodeFrame(b []byte) (Frame, error) {
	u, err := decodeEnvelope(b)
	if err != nil {
		return nil, fmt.Errorf("decode frame: %w", err)
	}
	info, ok := frameIndex[u.Type]
	if !ok {
		return u, nil
	}
	f := info.New()
	if len(u.Params) == 0 {
		return f, nil
	}
	if err := unmarshal(u.Params, f); err != nil {
		return nil, fmt.Errorf("decode frame %s: %w", u.Type, err)
	}
	return f, nil
}

func decodeEnvelope(b []byte) (*Unknown, error) {
	u := new(Unknown)
	var version string
	err := eachField(b, func(name string, _ int, v []byte) error {
		switch name {
		case "jsonrpc":
			return setString(&version, name, v)
		case "method":
			return setString(&u.Type, name, v)
		case "params":
			u.Params = v
		case "id", "result", "error":
			return fmt.Errorf("want a notification, got a message with %q", name)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case version != "2.0":
		return nil, fmt.Errorf("jsonrpc: want \"2.0\", got %s", clip([]byte(version)))
	case u.Type == "":
		return nil, errors.New("method: want a frame type, got none")
	}
	return u, checkParams(u.Params)
}

// marshal encodes a payload or params without HTML escaping; lists that are not
// optional become [].
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(withLists(v)); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// withLists returns v, or a copy of it in which no list is nil.
func withLists(v any) any {
	rv := reflect.ValueOf(v)
	if rv.Kind() == reflect.Pointer {
		if rv.IsNil() {
			return v
		}
		rv = rv.Elem()
	}
	var out reflect.Value
	for _, i := range lists[rv.Type()] {
		if !rv.Field(i).IsNil() {
			continue
		}
		if !out.IsValid() {
			out = reflect.New(rv.Type()).Elem()
			out.Set(rv)
		}
		out.Field(i).Set(reflect.MakeSlice(rv.Field(i).Type(), 0, 0))
	}
	if out.IsValid() {
		return out.Interface()
	}
	return v
}

// unmarshal decodes one JSON value; the names of payloads and params match by
// exact case. It is the one place to change when the standard library's strict
// decoder arrives.
func unmarshal(b []byte, v any) error {
	if s := shapes[reflect.TypeOf(v).Elem()]; s != nil {
		if err := checkObject(b); err != nil {
			return err
		}
		b = exactCase(b, s)
	}
	return json.Unmarshal(b, v)
}
