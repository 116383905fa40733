package frames

import "encoding/json"

// ItemKind says what an [Item] shows.
type ItemKind string

// The kinds of items.
const (
	ItemUser       ItemKind = "user"
	ItemSteering   ItemKind = "steering"
	ItemContext    ItemKind = "context"
	ItemAssistant  ItemKind = "assistant"
	ItemReasoning  ItemKind = "reasoning"
	ItemTool       ItemKind = "tool"
	ItemAgent      ItemKind = "agent"
	ItemApproval   ItemKind = "approval" // one that belongs to no tool card
	ItemQuestion   ItemKind = "question"
	ItemCompaction ItemKind = "compaction"
	ItemBlocked    ItemKind = "blocked"
	ItemError      ItemKind = "error"
)

// Item is one entry of a session's transcript, made by a durable event.
type Item struct {
	Kind ItemKind `json:"kind"`
	// Seq is the event that made the item, or that last replaced it whole.
	Seq      Seq      `json:"seq"`
	Time     Time     `json:"ts,omitzero"`
	TurnID   TurnID   `json:"turnId,omitempty"`
	By       *By      `json:"by,omitempty"`
	PromptID PromptID `json:"promptId,omitempty"`
	// Content is a message's text, or the summary of a compaction.
	Content []ContentBlock `json:"content,omitempty"`
	// Blocks are the numbers of the turn's blocks that an assistant or reasoning
	// message holds; where there are as many, Blocks[i] is Content[i].
	Blocks []int `json:"blocks,omitempty"`
	// Partial says that a later message replaces this one.
	Partial bool   `json:"partial,omitempty"`
	Usage   *Usage `json:"usage,omitempty"`
	// Void says that all of the message was retracted or replaced by others;
	// there is nothing to show.
	Void bool `json:"void,omitempty"`
	// Withheld says that delivery kept the content from this client.
	Withheld bool       `json:"withheld,omitempty"`
	Tool     *ToolCard  `json:"tool,omitempty"`
	Agent    *AgentCard `json:"agent,omitempty"`
	// Decision is the approval or question of an item of that kind.
	Decision *Decision `json:"decision,omitempty"`
	// UpTo is the seq up to which a compaction replaced the surface.
	UpTo Seq `json:"upTo,omitempty"`
	// Code, Message and Retryable describe an error or a blocked prompt.
	Code      string `json:"code,omitempty"`
	Message   string `json:"message,omitempty"`
	Retryable bool   `json:"retryable,omitempty"`
}

// ToolCard is a tool call and, once it ended, its result. The progress of a
// running one is in [View.Live].
type ToolCard struct {
	CallID    CallID          `json:"callId"`
	Name      string          `json:"name,omitempty"`
	Kind      string          `json:"kind,omitempty"`
	Title     string          `json:"title,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	Locations []Location      `json:"locations,omitempty"`
	Truncated *Truncated      `json:"truncated,omitempty"`
	Running   bool            `json:"running,omitempty"`
	// ResultSeq is the event of the result; 0 where there is none, also when the
	// turn ended without it.
	ResultSeq  Seq             `json:"resultSeq,omitempty"`
	Content    []ContentBlock  `json:"content,omitempty"`
	IsError    bool            `json:"isError,omitempty"`
	ErrorCode  string          `json:"errorCode,omitempty"`
	DurationMs int64           `json:"durationMs,omitempty"`
	Details    json.RawMessage `json:"details,omitempty"`
	// Decisions are the approvals that were asked for this call, oldest first.
	Decisions []*Decision `json:"decisions,omitempty"`
}

// AgentCard is a child session that this session's agent started.
type AgentCard struct {
	ChildSessionID SessionID `json:"childSessionId"`
	CallID         CallID    `json:"callId,omitempty"`
	Agent          string    `json:"agent,omitempty"`
	Title          string    `json:"title,omitempty"`
	// Status is empty while the child works.
	Status string         `json:"status,omitempty"`
	EndSeq Seq            `json:"endSeq,omitempty"`
	Result []ContentBlock `json:"result,omitempty"`
}

// Decision is the history of one approval or question.
type Decision struct {
	ID RequestID `json:"id"`
	// AskedSeq is 0 when a rule decided without asking; Seq is 0 while open.
	AskedSeq  Seq        `json:"askedSeq,omitempty"`
	Seq       Seq        `json:"seq,omitempty"`
	Time      Time       `json:"ts,omitzero"`
	Outcome   Outcome    `json:"outcome,omitempty"`
	Origin    Cause      `json:"origin,omitempty"`
	By        *By        `json:"by,omitempty"`
	Feedback  string     `json:"feedback,omitempty"`
	Grant     GrantID    `json:"grant,omitempty"`
	Questions []Question `json:"questions,omitempty"`
	Answers   []Answer   `json:"answers,omitempty"`
}
