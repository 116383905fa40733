package frames

import "encoding/json"

// FrameType names a kind of frame; it is the method of the notification.
type FrameType string

// Frame is the params of one notification. The set is closed but for [Unknown].
type Frame interface{ FrameType() FrameType }

// Unknown is a frame of a type this program does not know.
type Unknown struct {
	Type   FrameType
	Params json.RawMessage
}

// The params types, one for each frame type.
type (
	// HostSubscribed opens the host baseline; `host/live` closes it.
	HostSubscribed struct{}
	// HostLive closes the host baseline.
	HostLive struct{}
	// SessionAdded tells of a session; to a tree's subscribers before the
	// descendant's `session/subscribed`.
	SessionAdded struct {
		SessionID SessionID `json:"sessionId"`
		Session   Session   `json:"session"`
	}
	// SessionUpdated carries a changed summary.
	SessionUpdated struct {
		SessionID SessionID `json:"sessionId"`
		Session   Session   `json:"session"`
	}
	// SessionRemoved tells that a session is gone: deleted, closed.
	SessionRemoved struct {
		SessionID SessionID `json:"sessionId"`
		Reason    string    `json:"reason"`
	}
	// SessionStatus carries what a session does now.
	SessionStatus struct {
		SessionID    SessionID    `json:"sessionId"`
		State        SessionState `json:"state"`
		TurnID       TurnID       `json:"turnId,omitempty"`
		Pending      int          `json:"pending"`
		PendingBelow int          `json:"pendingBelow"`
	}
	// AgentError is a failure that has no place in a turn.
	AgentError struct {
		SessionID SessionID `json:"sessionId,omitempty"`
		Message   string    `json:"message"`
	}
	// HostDraining tells that the host is going down.
	HostDraining struct {
		Deadline Time `json:"deadline"`
	}
	// SessionSubscribed opens a subscription and voids earlier cards of the
	// session.
	SessionSubscribed struct {
		SessionID SessionID       `json:"sessionId"`
		Since     Seq             `json:"since"`
		Head      Seq             `json:"head"`
		First     Seq             `json:"first"`
		Epoch     Epoch           `json:"epoch"`
		Base      json.RawMessage `json:"base,omitempty"`
		BaseParts int             `json:"baseParts,omitempty"`
		State     SessionState    `json:"state"`
		Pending   int             `json:"pending"`
	}
	// SessionBase is one part of a base that is too large for one frame: parts
	// 0 … Parts-1 follow `session/subscribed` at once, and their texts, joined,
	// are the JSON of the base.
	SessionBase struct {
		SessionID SessionID `json:"sessionId"`
		Part      int       `json:"part"`
		Parts     int       `json:"parts"`
		Text      string    `json:"text"`
	}
	// SessionEvent carries one event. Event holds the encoded event.
	SessionEvent struct {
		SessionID SessionID       `json:"sessionId"`
		Event     json.RawMessage `json:"event"`
	}
	// SessionLive carries the open turn so far, or a null turn. It is one part
	// of several when More is true; each part repeats TurnID.
	SessionLive struct {
		SessionID SessionID `json:"sessionId"`
		Seq       Seq       `json:"seq"`
		Turn      *LiveTurn `json:"turn"`
		More      bool      `json:"more,omitempty"`
	}
	// SessionLagging tells that live events are withheld until the next
	// `session/live`.
	SessionLagging struct {
		SessionID SessionID `json:"sessionId"`
	}
	// SessionUnsubscribed ends a subscription. Reasons: requested, deleted,
	// forbidden, cursor-expired.
	SessionUnsubscribed struct {
		SessionID SessionID `json:"sessionId"`
		Reason    string    `json:"reason"`
		First     Seq       `json:"first,omitempty"`
	}
	// ApprovalRequested asks a person to allow a tool call.
	ApprovalRequested struct {
		SessionID       SessionID       `json:"sessionId"`
		ID              RequestID       `json:"id"`
		RootSessionID   SessionID       `json:"rootSessionId"`
		ParentSessionID SessionID       `json:"parentSessionId,omitempty"`
		Depth           int             `json:"depth"`
		TurnID          TurnID          `json:"turnId,omitempty"`
		CallID          CallID          `json:"callId,omitempty"`
		Tool            Tool            `json:"tool"`
		Input           json.RawMessage `json:"input"`
		InputHash       string          `json:"inputHash"`
		Truncated       *Truncated      `json:"truncated,omitempty"`
		Reason          string          `json:"reason,omitempty"`
		Options         []Outcome       `json:"options"`
		AskedAt         Time            `json:"askedAt"`
		ExpiresAt       Time            `json:"expiresAt"`
	}
	// ApprovalResolved tells how an approval ended.
	ApprovalResolved struct {
		SessionID SessionID `json:"sessionId"`
		ID        RequestID `json:"id"`
		Outcome   Outcome   `json:"outcome"`
		Origin    Cause     `json:"origin"`
		By        *By       `json:"by,omitempty"`
		Feedback  string    `json:"feedback,omitempty"`
	}
	// QuestionRequested asks a person something.
	QuestionRequested struct {
		SessionID       SessionID  `json:"sessionId"`
		ID              RequestID  `json:"id"`
		RootSessionID   SessionID  `json:"rootSessionId"`
		ParentSessionID SessionID  `json:"parentSessionId,omitempty"`
		Depth           int        `json:"depth"`
		TurnID          TurnID     `json:"turnId,omitempty"`
		CallID          CallID     `json:"callId,omitempty"`
		Questions       []Question `json:"questions"`
		AskedAt         Time       `json:"askedAt"`
		ExpiresAt       Time       `json:"expiresAt,omitzero"`
	}
	// QuestionResolved tells how a question ended.
	QuestionResolved struct {
		SessionID SessionID `json:"sessionId"`
		ID        RequestID `json:"id"`
		Outcome   Outcome   `json:"outcome"`
		Origin    Cause     `json:"origin"`
		By        *By       `json:"by,omitempty"`
		Answers   []Answer  `json:"answers,omitempty"`
	}
	// Heartbeat fills a silent connection.
	Heartbeat struct {
		TS Time `json:"ts"`
	}
)

// LiveTurn is the open turn of a [SessionLive].
type LiveTurn struct {
	TurnID TurnID      `json:"turnId"`
	Blocks []LiveBlock `json:"blocks,omitempty"`
	Tools  []LiveTool  `json:"tools,omitempty"`
}

// LiveBlock is an open text or reasoning block: all of its text, and the number
// of chunks that make it up. Where a block is split over parts, Offset is where Text
// begins in the block's text, in bytes, and To counts only on the last part.
type LiveBlock struct {
	Block  int    `json:"block"`
	Kind   string `json:"kind"` // "assistant" or "reasoning"
	Text   string `json:"text"`
	Offset int    `json:"offset,omitempty"`
	To     int    `json:"to"`
}

// LiveTool is a running tool: the kept tail of its progress, and the number of
// chunks so far.
type LiveTool struct {
	CallID CallID `json:"callId"`
	Text   string `json:"text"`
	Offset int    `json:"offset,omitempty"`
	To     int    `json:"to"`
}

// Origin of the words below: contract section 4.
const (
	HostSubscribedFrame      FrameType = "host/subscribed"
	HostLiveFrame            FrameType = "host/live"
	SessionAddedFrame        FrameType = "host/session-added"
	SessionUpdatedFrame      FrameType = "host/session-updated"
	SessionRemovedFrame      FrameType = "host/session-removed"
	SessionStatusFrame       FrameType = "host/session-status"
	AgentErrorFrame          FrameType = "host/agent-error"
	HostDrainingFrame        FrameType = "host/draining"
	SessionSubscribedFrame   FrameType = "session/subscribed"
	SessionBaseFrame         FrameType = "session/base"
	SessionEventFrame        FrameType = "session/event"
	SessionLiveFrame         FrameType = "session/live"
	SessionLaggingFrame      FrameType = "session/lagging"
	SessionUnsubscribedFrame FrameType = "session/unsubscribed"
	ApprovalRequestedFrame   FrameType = "approval/requested"
	ApprovalResolvedFrame    FrameType = "approval/resolved"
	QuestionRequestedFrame   FrameType = "question/requested"
	QuestionResolvedFrame    FrameType = "question/resolved"
	HeartbeatFrame           FrameType = "mux/heartbeat"
)

// FrameInfo is one row of the registry of frame types.
type FrameInfo struct {
	Type FrameType
	Doc  string
	// New returns a pointer to zero params, ready to decode into.
	New func() Frame
}

// frameTypes is the one table of frame types.
var frameTypes = []FrameInfo{
	{HostSubscribedFrame, "Opens the host baseline.", func() Frame { return new(HostSubscribed) }},
	{HostLiveFrame, "Closes the host baseline.", func() Frame { return new(HostLive) }},
	{SessionAddedFrame, "A session exists.", func() Frame { return new(SessionAdded) }},
	{SessionUpdatedFrame, "A summary changed.", func() Frame { return new(SessionUpdated) }},
	{SessionRemovedFrame, "A session is gone.", func() Frame { return new(SessionRemoved) }},
	{SessionStatusFrame, "What a session does now.", func() Frame { return new(SessionStatus) }},
	{AgentErrorFrame, "A failure that has no place in a turn.", func() Frame { return new(AgentError) }},
	{HostDrainingFrame, "The host is going down.", func() Frame { return new(HostDraining) }},
	{SessionSubscribedFrame, "Opens a subscription.", func() Frame { return new(SessionSubscribed) }},
	{SessionBaseFrame, "A part of the base, where it is too large for one frame.", func() Frame { return new(SessionBase) }},
	{SessionEventFrame, "One event.", func() Frame { return new(SessionEvent) }},
	{SessionLiveFrame, "The open turn so far; live events follow.", func() Frame { return new(SessionLive) }},
	{SessionLaggingFrame, "Live events are withheld.", func() Frame { return new(SessionLagging) }},
	{SessionUnsubscribedFrame, "A subscription ended.", func() Frame { return new(SessionUnsubscribed) }},
	{ApprovalRequestedFrame, "An approval is asked for.", func() Frame { return new(ApprovalRequested) }},
	{ApprovalResolvedFrame, "An approval ended.", func() Frame { return new(ApprovalResolved) }},
	{QuestionRequestedFrame, "A question is asked.", func() Frame { return new(QuestionRequested) }},
	{QuestionResolvedFrame, "A question ended.", func() Frame { return new(QuestionResolved) }},
	{HeartbeatFrame, "Fills a silent connection.", func() Frame { return new(Heartbeat) }},
}

// FrameType names the frame.
func (HostSubscribed) FrameType() FrameType { return HostSubscribedFrame }

// FrameType names the frame.
func (HostLive) FrameType() FrameType { return HostLiveFrame }

// FrameType names the frame.
func (SessionAdded) FrameType() FrameType { return SessionAddedFrame }

// FrameType names the frame.
func (SessionUpdated) FrameType() FrameType { return SessionUpdatedFrame }

// FrameType names the frame.
func (SessionRemoved) FrameType() FrameType { return SessionRemovedFrame }

// FrameType names the frame.
func (SessionStatus) FrameType() FrameType { return SessionStatusFrame }

// FrameType names the frame.
func (AgentError) FrameType() FrameType { return AgentErrorFrame }

// FrameType names the frame.
func (HostDraining) FrameType() FrameType { return HostDrainingFrame }

// FrameType names the frame.
func (SessionSubscribed) FrameType() FrameType { return SessionSubscribedFrame }

// FrameType names the frame.
func (SessionBase) FrameType() FrameType { return SessionBaseFrame }

// FrameType names the frame.
func (SessionEvent) FrameType() FrameType { return SessionEventFrame }

// FrameType names the frame.
func (SessionLive) FrameType() FrameType { return SessionLiveFrame }

// FrameType names the frame.
func (SessionLagging) FrameType() FrameType { return SessionLaggingFrame }

// FrameType names the frame.
func (SessionUnsubscribed) FrameType() FrameType { return SessionUnsubscribedFrame }

// FrameType names the frame.
func (ApprovalRequested) FrameType() FrameType { return ApprovalRequestedFrame }

// FrameType names the frame.
func (ApprovalResolved) FrameType() FrameType { return ApprovalResolvedFrame }

// FrameType names the frame.
func (QuestionRequested) FrameType() FrameType { return QuestionRequestedFrame }

// FrameType names the frame.
func (QuestionResolved) FrameType() FrameType { return QuestionResolvedFrame }

// FrameType names the frame.
func (Heartbeat) FrameType() FrameType { return HeartbeatFrame }

// FrameType returns the unknown type's name.
func (u Unknown) FrameType() FrameType { return u.Type }
