package frames

// Ids are opaque strings to clients; only the host mints them.
type (
	// SessionID names a session; the host mints UUIDv7 strings.
	SessionID string
	// TurnID names a turn; minted when its prompt is accepted.
	TurnID string
	// PromptID names a prompt within its session; the client may choose it.
	PromptID string
	// RequestID names an approval or a question.
	RequestID string
	// CallID names a tool call within its session; the agent chooses it.
	CallID string
	// ClientID names one authenticated connection.
	ClientID string
	// GrantID names a stored "always".
	GrantID string
	// TaskID names background work of an agent.
	TaskID string
	// BlobID names stored bytes: "sha256-" and 64 hex digits.
	BlobID string
	// Epoch is the identity of a session's log. It changes only when a log is
	// replaced, never at a restart.
	Epoch string
)

// Seq numbers the durable events of one session: 1, 2, 3 … without gaps. Zero
// means "none" or "before the first".
type Seq uint64

// By names the client that caused something.
type By struct {
	ClientID ClientID `json:"clientId"`
	Label    string   `json:"label,omitempty"`
}
