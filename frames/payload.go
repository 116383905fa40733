package frames

import "encoding/json"

// ForkPoint says where a fork left its source.
type ForkPoint struct {
	SessionID SessionID `json:"sessionId"`
	Seq       Seq       `json:"seq"`
}

// Source is where knowledge came from.
type Source struct {
	URI   string `json:"uri,omitempty"`
	Title string `json:"title,omitempty"`
	Text  string `json:"text,omitempty"`
}

// Command is one command that an agent offers.
type Command struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// The payload types, one for each event type; the registry holds their classes.
type (
	// SessionCreated is the data of `session/created`: the first event of every session.
	SessionCreated struct {
		Agent           string            `json:"agent"`
		Cwd             string            `json:"cwd"`
		Title           string            `json:"title,omitempty"`
		ParentSessionID SessionID         `json:"parentSessionId,omitempty"`
		RootSessionID   SessionID         `json:"rootSessionId"`
		Depth           int               `json:"depth"`
		Origin          Origin            `json:"origin"`
		CallID          CallID            `json:"callId,omitempty"`
		ForkedFrom      *ForkPoint        `json:"forkedFrom,omitempty"`
		Config          json.RawMessage   `json:"config,omitempty"`
		Policy          *Policy           `json:"policy,omitempty"`
		Budget          *Budget           `json:"budget,omitempty"`
		Labels          map[string]string `json:"labels,omitempty"`
	}
	// SessionResumed is the data of `session/resumed`: the session became live again after it was cold.
	SessionResumed struct {
		Reason string `json:"reason,omitempty"`
	}
	// SessionRenamed is the data of `session/renamed`: the title changed.
	SessionRenamed struct {
		Title string `json:"title"`
	}
	// SessionConfigured is the data of `session/configured`: policy, budget, labels or agent options changed; absent fields did not.
	SessionConfigured struct {
		Policy  *Policy           `json:"policy,omitempty"`
		Budget  *Budget           `json:"budget,omitempty"`
		Labels  map[string]string `json:"labels,omitzero"` // empty: none are left
		Options json.RawMessage   `json:"options,omitempty"`
	}
	// SessionCompacted is the data of `session/compacted`: the surface up to a seq was replaced by a summary.
	SessionCompacted struct {
		UpTo    Seq            `json:"upTo"`
		Content []ContentBlock `json:"content,omitempty"`
	}
	// SessionClosed is the data of `session/closed`: the session was closed by a client.
	SessionClosed struct {
		Reason string `json:"reason,omitempty"`
	}
	// PromptQueued is the data of `prompt/queued`: a prompt was accepted and waits for its turn.
	PromptQueued struct {
		PromptID PromptID       `json:"promptId"`
		Mode     PromptMode     `json:"mode"`
		Content  []ContentBlock `json:"content"`
	}
	// PromptDequeued is the data of `prompt/dequeued`: a queued prompt left the queue. Reasons: started, cancelled, steered, closed.
	PromptDequeued struct {
		PromptID PromptID `json:"promptId"`
		Reason   string   `json:"reason"`
	}
	// TurnStart is the data of `turn/start`: a turn began. Triggers: prompt, steer, spawn, wake.
	TurnStart struct {
		Trigger  string   `json:"trigger"`
		PromptID PromptID `json:"promptId,omitempty"`
	}
	// TurnEnd is the data of `turn/end`: a turn ended.
	TurnEnd struct {
		Reason  TurnEndReason `json:"reason"`
		Usage   *Usage        `json:"usage,omitempty"`
		Message string        `json:"message,omitempty"`
	}
	// StepStart is the data of `step/start`: one model or tool step of a turn began.
	StepStart struct {
		Step int `json:"step"`
	}
	// StepEnd is the data of `step/end`: a step ended.
	StepEnd struct {
		Step  int    `json:"step"`
		Usage *Usage `json:"usage,omitempty"`
	}
	// UserMessage is the data of `user/message`: what the person said, when its turn takes it up.
	UserMessage struct {
		PromptID PromptID       `json:"promptId,omitempty"`
		Content  []ContentBlock `json:"content"`
	}
	// SteeringMessage is the data of `steering/message`: what the person said into a running turn, when the agent took it.
	SteeringMessage struct {
		PromptID PromptID       `json:"promptId,omitempty"`
		Content  []ContentBlock `json:"content"`
	}
	// ContextMessage is the data of `context/message`: context added without running the model.
	ContextMessage struct {
		PromptID PromptID       `json:"promptId,omitempty"`
		Content  []ContentBlock `json:"content"`
	}
	// PromptBlocked is the data of `prompt/blocked`: a prompt was refused by a hook, a policy or a budget.
	PromptBlocked struct {
		PromptID PromptID `json:"promptId,omitempty"`
		Reason   string   `json:"reason"`
	}
	// AssistantMessage is the data of `assistant/message`: text of the assistant; replaces the blocks it lists.
	AssistantMessage struct {
		Content []ContentBlock `json:"content"`
		Blocks  []int          `json:"blocks"`
		Partial bool           `json:"partial,omitempty"`
		Usage   *Usage         `json:"usage,omitempty"`
	}
	// ReasoningMessage is the data of `reasoning/message`: reasoning of the assistant; replaces the blocks it lists.
	ReasoningMessage struct {
		Content []ContentBlock `json:"content"`
		Blocks  []int          `json:"blocks"`
		Partial bool           `json:"partial,omitempty"`
		// Withheld says that delivery kept the rest from this client; nothing else is there then. No host stores it.
		Withheld bool `json:"withheld,omitempty"`
	}
	// AssistantRetracted is the data of `assistant/retracted`: the listed blocks are void.
	AssistantRetracted struct {
		Blocks []int  `json:"blocks"`
		Reason string `json:"reason,omitempty"`
	}
	// AssistantDelta is the data of `assistant/delta`: chunks [from, to) of an open text block.
	AssistantDelta struct {
		Block int    `json:"block"`
		From  int    `json:"from"`
		To    int    `json:"to"`
		Text  string `json:"text"`
	}
	// ReasoningDelta is the data of `reasoning/delta`: chunks [from, to) of an open reasoning block.
	ReasoningDelta struct {
		Block int    `json:"block"`
		From  int    `json:"from"`
		To    int    `json:"to"`
		Text  string `json:"text"`
	}
	// ToolCall is the data of `tool/call`: a tool call began.
	ToolCall struct {
		CallID    CallID          `json:"callId"`
		Name      string          `json:"name"`
		Kind      string          `json:"kind,omitempty"`
		Title     string          `json:"title,omitempty"`
		Input     json.RawMessage `json:"input,omitempty"`
		Locations []Location      `json:"locations,omitempty"`
		Truncated *Truncated      `json:"truncated,omitempty"`
	}
	// ToolResult is the data of `tool/result`: a tool call ended.
	ToolResult struct {
		CallID     CallID          `json:"callId"`
		Content    []ContentBlock  `json:"content"`
		IsError    bool            `json:"isError"`
		ErrorCode  string          `json:"errorCode,omitempty"`
		DurationMs int64           `json:"durationMs"`
		Details    json.RawMessage `json:"details,omitempty"`
	}
	// ToolProgress is the data of `tool/progress`: chunks [from, to) of a running tool's output.
	ToolProgress struct {
		CallID CallID `json:"callId"`
		From   int    `json:"from"`
		To     int    `json:"to"`
		Text   string `json:"text"`
	}
	// TodoWrite is the data of `todo/write`: the whole plan; last write wins.
	TodoWrite struct {
		Todos []Todo `json:"todos"`
	}
	// ApprovalAsked is the data of `approval/asked`: audit: an approval was asked for.
	ApprovalAsked struct {
		ID        RequestID       `json:"id"`
		CallID    CallID          `json:"callId,omitempty"`
		Tool      Tool            `json:"tool"`
		Input     json.RawMessage `json:"input,omitempty"`
		InputHash string          `json:"inputHash,omitempty"`
		Truncated *Truncated      `json:"truncated,omitempty"`
		Reason    string          `json:"reason,omitempty"`
		Options   []Outcome       `json:"options,omitempty"`
		ExpiresAt Time            `json:"expiresAt,omitzero"`
	}
	// ApprovalDecided is the data of `approval/decided`: audit: how an approval ended.
	ApprovalDecided struct {
		ID        RequestID `json:"id"`
		Outcome   Outcome   `json:"outcome"`
		Origin    Cause     `json:"origin"`
		InputHash string    `json:"inputHash,omitempty"`
		By        *By       `json:"by,omitempty"`
		Feedback  string    `json:"feedback,omitempty"`
		Grant     GrantID   `json:"grant,omitempty"`
	}
	// QuestionAsked is the data of `question/asked`: audit: a question was asked.
	QuestionAsked struct {
		ID        RequestID  `json:"id"`
		Questions []Question `json:"questions"`
		ExpiresAt Time       `json:"expiresAt,omitzero"`
	}
	// QuestionDecided is the data of `question/decided`: audit: how a question ended.
	QuestionDecided struct {
		ID      RequestID `json:"id"`
		Outcome Outcome   `json:"outcome"`
		Origin  Cause     `json:"origin"`
		By      *By       `json:"by,omitempty"`
		Answers []Answer  `json:"answers,omitempty"`
	}
	// AgentSpawned is the data of `agent/spawned`: this session's agent started a child session.
	AgentSpawned struct {
		ChildSessionID SessionID `json:"childSessionId"`
		CallID         CallID    `json:"callId,omitempty"`
		Agent          string    `json:"agent,omitempty"`
		Title          string    `json:"title,omitempty"`
	}
	// AgentCompleted is the data of `agent/completed`: the child's work for this turn ended. Status is the child's turn/end reason.
	AgentCompleted struct {
		ChildSessionID SessionID      `json:"childSessionId"`
		CallID         CallID         `json:"callId,omitempty"`
		Status         string         `json:"status"`
		Message        string         `json:"message,omitempty"`
		Result         []ContentBlock `json:"result,omitempty"`
	}
	// TaskStarted is the data of `task/started`: background work began.
	TaskStarted struct {
		TaskID TaskID `json:"taskId"`
		Kind   string `json:"kind,omitempty"`
		Label  string `json:"label,omitempty"`
	}
	// TaskCompleted is the data of `task/completed`: background work ended. Status: completed, failed, cancelled, interrupted.
	TaskCompleted struct {
		TaskID TaskID `json:"taskId"`
		Status string `json:"status"`
		Detail string `json:"detail,omitempty"`
	}
	// ModelStart is the data of `model/start`: one try to reach a model began.
	ModelStart struct {
		Attempt         int    `json:"attempt"`
		Model           string `json:"model"`
		Provider        string `json:"provider,omitempty"`
		SelectionReason string `json:"selectionReason,omitempty"`
	}
	// ModelEnd is the data of `model/end`: that try ended. Status: ok, error, cancelled, skipped.
	ModelEnd struct {
		Attempt         int    `json:"attempt"`
		Model           string `json:"model"`
		Status          string `json:"status"`
		SelectionReason string `json:"selectionReason,omitempty"`
		OutputStarted   bool   `json:"outputStarted"`
		Usage           *Usage `json:"usage,omitempty"`
		Cost            string `json:"cost,omitempty"`
	}
	// ModelSwitched is the data of `model/switched`: the session's model changed.
	ModelSwitched struct {
		From   string `json:"from,omitempty"`
		To     string `json:"to"`
		Reason string `json:"reason,omitempty"`
	}
	// RequestHeader is the data of `request/header`: what a model request was sent with.
	RequestHeader struct {
		Attempt int               `json:"attempt,omitempty"`
		Headers map[string]string `json:"headers,omitempty"`
	}
	// UsageUpdated is the data of `usage/updated`: cumulative usage of the session; last write wins.
	UsageUpdated struct {
		Usage Usage `json:"usage"`
	}
	// HookTriggered is the data of `hook/triggered`: a hook began.
	HookTriggered struct {
		HookID string `json:"hookId"`
		Name   string `json:"name,omitempty"`
	}
	// HookCompleted is the data of `hook/completed`: a hook ended.
	HookCompleted struct {
		HookID string `json:"hookId"`
		Status string `json:"status,omitempty"`
		Output string `json:"output,omitempty"`
	}
	// HookBlocked is the data of `hook/blocked`: a hook refused something.
	HookBlocked struct {
		HookID string `json:"hookId"`
		Reason string `json:"reason,omitempty"`
	}
	// MCPConnected is the data of `mcp/connected`: an MCP server was connected.
	MCPConnected struct {
		Server string   `json:"server"`
		Tools  []string `json:"tools,omitempty"`
	}
	// MCPFailed is the data of `mcp/failed`: an MCP server could not be reached.
	MCPFailed struct {
		Server  string `json:"server"`
		Message string `json:"message,omitempty"`
	}
	// MCPClosed is the data of `mcp/closed`: an MCP server was closed.
	MCPClosed struct {
		Server string `json:"server"`
		Reason string `json:"reason,omitempty"`
	}
	// KnowledgeRetrieved is the data of `knowledge/retrieved`: documents were retrieved.
	KnowledgeRetrieved struct {
		Query   string   `json:"query,omitempty"`
		Sources []Source `json:"sources,omitempty"`
	}
	// CitationCreated is the data of `citation/created`: the text cites a source.
	CitationCreated struct {
		Block  int    `json:"block"`
		Source Source `json:"source"`
	}
	// ArtifactCreated is the data of `artifact/created`: the agent made something to keep.
	ArtifactCreated struct {
		ArtifactID string `json:"artifactId"`
		Name       string `json:"name,omitempty"`
		MimeType   string `json:"mimeType,omitempty"`
		URI        string `json:"uri,omitempty"`
		Blob       BlobID `json:"blob,omitempty"`
	}
	// UICreated is the data of `ui/created`: the agent made something to show.
	UICreated struct {
		UIID     string `json:"uiId"`
		MimeType string `json:"mimeType,omitempty"`
		URI      string `json:"uri,omitempty"`
		Blob     BlobID `json:"blob,omitempty"`
	}
	// CommandAvailable is the data of `command/available`: the commands the agent offers; last write wins.
	CommandAvailable struct {
		Commands []Command `json:"commands"`
	}
	// ErrorReported is the data of `error`: something went wrong inside the session.
	ErrorReported struct {
		Code      string `json:"code"`
		Message   string `json:"message"`
		Retryable bool   `json:"retryable"`
	}
)
