package frames

import "encoding/json"

// ContentBlock is one piece of a prompt or a message.
type ContentBlock struct {
	// Type is "text", "image", "resource" or "resource_link" (ACP's names).
	Type string `json:"type"`
	// Text is the text of a "text" block, or an embedded resource's text.
	Text string `json:"text,omitempty"`
	// MimeType, Data (base64) or Blob hold an image or an embedded resource.
	MimeType string `json:"mimeType,omitempty"`
	Data     string `json:"data,omitempty"`
	Blob     BlobID `json:"blob,omitempty"`
	// URI and Name identify a resource or a link.
	URI  string `json:"uri,omitempty"`
	Name string `json:"name,omitempty"`
	// Truncated says that this block is a preview of something larger.
	Truncated *Truncated `json:"truncated,omitempty"`
}

// MarshalJSON writes a text block with its text, also when that is empty.
func (b ContentBlock) MarshalJSON() ([]byte, error) {
	type plain ContentBlock
	if b.Type != "text" || b.Text != "" {
		return marshal(plain(b))
	}
	return marshal(struct {
		plain
		Text string `json:"text"`
	}{plain: plain(b)})
}

// Text returns a text block.
func Text(s string) ContentBlock { return ContentBlock{Type: "text", Text: s} }

// Truncated describes the whole of which only a preview was kept.
type Truncated struct {
	Bytes int64  `json:"bytes"`
	Blob  BlobID `json:"blob,omitempty"`
}

// Usage counts what a model used. Money is a decimal string.
type Usage struct {
	InputTokens      int64  `json:"inputTokens,omitempty"`
	OutputTokens     int64  `json:"outputTokens,omitempty"`
	CacheReadTokens  int64  `json:"cacheReadTokens,omitempty"`
	CacheWriteTokens int64  `json:"cacheWriteTokens,omitempty"`
	ContextTokens    int64  `json:"contextTokens,omitempty"`
	ContextWindow    int64  `json:"contextWindow,omitempty"`
	Cost             string `json:"cost,omitempty"`
	Currency         string `json:"currency,omitempty"`
}

// Location points into a file.
type Location struct {
	Path string `json:"path"`
	Line int    `json:"line,omitempty"`
}

// Tool describes a tool call as an approval card shows it. Kind and Title are
// the agent's own words and decide nothing.
type Tool struct {
	Name  string `json:"name"`
	Kind  string `json:"kind,omitempty"`
	Title string `json:"title,omitempty"`
}

// Todo is one entry of a plan.
type Todo struct {
	ID       string `json:"id,omitempty"`
	Content  string `json:"content"`
	Status   string `json:"status"` // pending, in_progress, completed
	Priority string `json:"priority,omitempty"`
}

// Question is one thing an agent asks a person.
type Question struct {
	ID          string           `json:"id"`
	Header      string           `json:"header,omitempty"`
	Question    string           `json:"question"`
	Options     []QuestionOption `json:"options,omitempty"`
	MultiSelect bool             `json:"multiSelect,omitempty"`
	AllowText   bool             `json:"allowText,omitempty"`
}

// QuestionOption is one offered answer.
type QuestionOption struct {
	Label       string `json:"label"`
	Description string `json:"description,omitempty"`
}

// Answer answers one [Question]: the chosen labels, or free text.
type Answer struct {
	ID     string   `json:"id"`
	Labels []string `json:"labels,omitempty"`
	Text   string   `json:"text,omitempty"`
}

// Rule is one line of a session's policy. Deny rules are tried first.
type Rule struct {
	// Tool is an exact tool name, or "*".
	Tool string `json:"tool"`
	// Input, when present, must equal the whole canonical input.
	Input json.RawMessage `json:"input,omitempty"`
	// Decision is "allow", "deny" or "ask".
	Decision string `json:"decision"`
}

// Policy decides what a session asks about.
type Policy struct {
	// Mode is "ask" (default) or "deny": nothing is asked, what would be asked
	// is rejected.
	Mode         string `json:"mode,omitempty"`
	Rules        []Rule `json:"rules,omitempty"`
	AskTimeoutMs int64  `json:"askTimeoutMs,omitempty"` // default 300000
}

// Budget limits what a session may use; zero fields do not limit.
type Budget struct {
	Tokens int64  `json:"tokens,omitempty"`
	Cost   string `json:"cost,omitempty"`
	Turns  int64  `json:"turns,omitempty"`
	// Action is "block" (default) or "warn".
	Action string `json:"action,omitempty"`
}

// Origin says how a session came to be.
type Origin string

// The origins of a session.
const (
	OriginUser     Origin = "user"
	OriginSubagent Origin = "subagent"
	OriginFork     Origin = "fork"
)

// SessionState is what a session does now. It is never stored.
type SessionState string

// The states of a session.
const (
	StateIdle           SessionState = "idle"
	StateRunning        SessionState = "running"
	StateRequiresAction SessionState = "requires-action"
)

// Session is the summary of a session, in every list and baseline.
type Session struct {
	SessionID       SessionID         `json:"sessionId"`
	ParentSessionID SessionID         `json:"parentSessionId,omitempty"`
	RootSessionID   SessionID         `json:"rootSessionId"`
	Depth           int               `json:"depth"`
	Origin          Origin            `json:"origin"`
	Agent           string            `json:"agent"`
	Cwd             string            `json:"cwd"`
	Title           string            `json:"title,omitempty"`
	State           SessionState      `json:"state"`
	Pending         int               `json:"pending"`
	PendingBelow    int               `json:"pendingBelow"`
	Head            Seq               `json:"head"`
	Epoch           Epoch             `json:"epoch"`
	CreatedAt       Time              `json:"createdAt"`
	UpdatedAt       Time              `json:"updatedAt"`
	Labels          map[string]string `json:"labels,omitempty"`
}

// Outcome is how an approval or a question ended.
type Outcome string

// The outcomes. AllowedOnce and AllowedAlways are the only ones that allow, and
// only the pending table may produce them.
const (
	AllowedOnce   Outcome = "allowed-once"
	AllowedAlways Outcome = "allowed-always"
	Rejected      Outcome = "rejected"
	Cancelled     Outcome = "cancelled"
	Unavailable   Outcome = "unavailable"
	Answered      Outcome = "answered"
)

// Allows reports whether o lets a tool call run.
func (o Outcome) Allows() bool { return o == AllowedOnce || o == AllowedAlways }

// Cause is the origin of an outcome: who or what settled it.
type Cause string

// The causes of an outcome (the contract's "origin").
const (
	CauseReply      Cause = "reply"
	CauseTimeout    Cause = "timeout"
	CauseAbort      Cause = "abort"
	CauseShutdown   Cause = "shutdown"
	CauseCascade    Cause = "cascade"
	CausePolicy     Cause = "policy"
	CauseModeChange Cause = "mode-change"
)

// TurnEndReason says why a turn ended.
type TurnEndReason string

// The reasons of `turn/end`.
const (
	TurnCompleted      TurnEndReason = "completed"
	TurnCancelled      TurnEndReason = "cancelled"
	TurnRefused        TurnEndReason = "refused"
	TurnMaxTokens      TurnEndReason = "max-tokens"
	TurnMaxSteps       TurnEndReason = "max-steps"
	TurnBudgetExceeded TurnEndReason = "budget-exceeded"
	TurnError          TurnEndReason = "error"
	TurnInterrupted    TurnEndReason = "interrupted"
)

// PromptMode says how a prompt meets a running turn.
type PromptMode string

// The modes of a prompt.
const (
	ModeQueue  PromptMode = "queue"
	ModeSteer  PromptMode = "steer"
	ModeInject PromptMode = "inject"
)
