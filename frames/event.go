package frames

import "encoding/json"

// EventType names a kind of event, such as "turn/start".
type EventType string

// Class says how an event travels; mux knows events by nothing else.
type Class uint8

// The classes of events.
const (
	// ClassDurable events are stored, numbered, and never withheld.
	ClassDurable Class = iota
	// ClassDurableReasoning is durable; delivery reasoning "off" gets it with
	// its data withheld (see [Withhold]).
	ClassDurableReasoning
	// ClassText, ClassReasoning and ClassTool are live-only streams that a
	// delivery option can turn off.
	ClassText
	ClassReasoning
	ClassTool
	// ClassLive is any other live-only event.
	ClassLive
)

// Durable reports whether events of the class are stored and numbered.
func (c Class) Durable() bool { return c <= ClassDurableReasoning }

// Event is one fact of a session. Exactly one of Seq and After counts: a
// durable event has Seq >= 1.
type Event struct {
	Type    EventType
	Seq     Seq // 0 on a live-only event
	After   Seq // live-only: the last durable seq before it
	Time    Time
	TurnID  TurnID
	By      *By
	TraceID string
	// Data is the payload, a JSON object. Its Go type is in the registry;
	// [Event.Payload] decodes it.
	Data json.RawMessage
}

// Encoded is an event as it travels through the host: encoded once, shared,
// never changed.
type Encoded struct {
	Seq   Seq // 0 on a live-only event
	Class Class
	Type  EventType
	// Data is the whole event object: {"type":…,"seq":…,…,"data":{…}}.
	Data []byte
}

// Payload is the typed data of one event type. Every payload type of the
// registry implements it on its value receiver.
type Payload interface{ EventType() EventType }
