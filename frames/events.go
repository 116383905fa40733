package frames

// EventInfo is one row of the registry of event types.
type EventInfo struct {
	Type   EventType
	Family string
	Class  Class
	// Model says that the event reaches the model.
	Model bool
	Doc   string
	// New returns a pointer to a zero payload, ready to decode into.
	New func() any
}

// The event types of the contract.
const (
	SessionCreatedEvent     EventType = "session/created"
	SessionResumedEvent     EventType = "session/resumed"
	SessionRenamedEvent     EventType = "session/renamed"
	SessionConfiguredEvent  EventType = "session/configured"
	SessionCompactedEvent   EventType = "session/compacted"
	SessionClosedEvent      EventType = "session/closed"
	PromptQueuedEvent       EventType = "prompt/queued"
	PromptDequeuedEvent     EventType = "prompt/dequeued"
	TurnStartEvent          EventType = "turn/start"
	TurnEndEvent            EventType = "turn/end"
	StepStartEvent          EventType = "step/start"
	StepEndEvent            EventType = "step/end"
	UserMessageEvent        EventType = "user/message"
	SteeringMessageEvent    EventType = "steering/message"
	ContextMessageEvent     EventType = "context/message"
	PromptBlockedEvent      EventType = "prompt/blocked"
	AssistantMessageEvent   EventType = "assistant/message"
	ReasoningMessageEvent   EventType = "reasoning/message"
	AssistantRetractedEvent EventType = "assistant/retracted"
	AssistantDeltaEvent     EventType = "assistant/delta"
	ReasoningDeltaEvent     EventType = "reasoning/delta"
	ToolCallEvent           EventType = "tool/call"
	ToolResultEvent         EventType = "tool/result"
	ToolProgressEvent       EventType = "tool/progress"
	TodoWriteEvent          EventType = "todo/write"
	ApprovalAskedEvent      EventType = "approval/asked"
	ApprovalDecidedEvent    EventType = "approval/decided"
	QuestionAskedEvent      EventType = "question/asked"
	QuestionDecidedEvent    EventType = "question/decided"
	AgentSpawnedEvent       EventType = "agent/spawned"
	AgentCompletedEvent     EventType = "agent/completed"
	TaskStartedEvent        EventType = "task/started"
	TaskCompletedEvent      EventType = "task/completed"
	ModelStartEvent         EventType = "model/start"
	ModelEndEvent           EventType = "model/end"
	ModelSwitchedEvent      EventType = "model/switched"
	RequestHeaderEvent      EventType = "request/header"
	UsageUpdatedEvent       EventType = "usage/updated"
	HookTriggeredEvent      EventType = "hook/triggered"
	HookCompletedEvent      EventType = "hook/completed"
	HookBlockedEvent        EventType = "hook/blocked"
	MCPConnectedEvent       EventType = "mcp/connected"
	MCPFailedEvent          EventType = "mcp/failed"
	MCPClosedEvent          EventType = "mcp/closed"
	KnowledgeRetrievedEvent EventType = "knowledge/retrieved"
	CitationCreatedEvent    EventType = "citation/created"
	ArtifactCreatedEvent    EventType = "artifact/created"
	UICreatedEvent          EventType = "ui/created"
	CommandAvailableEvent   EventType = "command/available"
	ErrorReportedEvent      EventType = "error"
)

// EventType names the event.
func (SessionCreated) EventType() EventType { return SessionCreatedEvent }

// EventType names the event.
func (SessionResumed) EventType() EventType { return SessionResumedEvent }

// EventType names the event.
func (SessionRenamed) EventType() EventType { return SessionRenamedEvent }

// EventType names the event.
func (SessionConfigured) EventType() EventType { return SessionConfiguredEvent }

// EventType names the event.
func (SessionCompacted) EventType() EventType { return SessionCompactedEvent }

// EventType names the event.
func (SessionClosed) EventType() EventType { return SessionClosedEvent }

// EventType names the event.
func (PromptQueued) EventType() EventType { return PromptQueuedEvent }

// EventType names the event.
func (PromptDequeued) EventType() EventType { return PromptDequeuedEvent }

// EventType names the event.
func (TurnStart) EventType() EventType { return TurnStartEvent }

// EventType names the event.
func (TurnEnd) EventType() EventType { return TurnEndEvent }

// EventType names the event.
func (StepStart) EventType() EventType { return StepStartEvent }

// EventType names the event.
func (StepEnd) EventType() EventType { return StepEndEvent }

// EventType names the event.
func (UserMessage) EventType() EventType { return UserMessageEvent }

// EventType names the event.
func (SteeringMessage) EventType() EventType { return SteeringMessageEvent }

// EventType names the event.
func (ContextMessage) EventType() EventType { return ContextMessageEvent }

// EventType names the event.
func (PromptBlocked) EventType() EventType { return PromptBlockedEvent }

// EventType names the event.
func (AssistantMessage) EventType() EventType { return AssistantMessageEvent }

// EventType names the event.
func (ReasoningMessage) EventType() EventType { return ReasoningMessageEvent }

// EventType names the event.
func (AssistantRetracted) EventType() EventType { return AssistantRetractedEvent }

// EventType names the event.
func (AssistantDelta) EventType() EventType { return AssistantDeltaEvent }

// EventType names the event.
func (ReasoningDelta) EventType() EventType { return ReasoningDeltaEvent }

// EventType names the event.
func (ToolCall) EventType() EventType { return ToolCallEvent }

// EventType names the event.
func (ToolResult) EventType() EventType { return ToolResultEvent }

// EventType names the event.
func (ToolProgress) EventType() EventType { return ToolProgressEvent }

// EventType names the event.
func (TodoWrite) EventType() EventType { return TodoWriteEvent }

// EventType names the event.
func (ApprovalAsked) EventType() EventType { return ApprovalAskedEvent }

// EventType names the event.
func (ApprovalDecided) EventType() EventType { return ApprovalDecidedEvent }

// EventType names the event.
func (QuestionAsked) EventType() EventType { return QuestionAskedEvent }

// EventType names the event.
func (QuestionDecided) EventType() EventType { return QuestionDecidedEvent }

// EventType names the event.
func (AgentSpawned) EventType() EventType { return AgentSpawnedEvent }

// EventType names the event.
func (AgentCompleted) EventType() EventType { return AgentCompletedEvent }

// EventType names the event.
func (TaskStarted) EventType() EventType { return TaskStartedEvent }

// EventType names the event.
func (TaskCompleted) EventType() EventType { return TaskCompletedEvent }

// EventType names the event.
func (ModelStart) EventType() EventType { return ModelStartEvent }

// EventType names the event.
func (ModelEnd) EventType() EventType { return ModelEndEvent }

// EventType names the event.
func (ModelSwitched) EventType() EventType { return ModelSwitchedEvent }

// EventType names the event.
func (RequestHeader) EventType() EventType { return RequestHeaderEvent }

// EventType names the event.
func (UsageUpdated) EventType() EventType { return UsageUpdatedEvent }

// EventType names the event.
func (HookTriggered) EventType() EventType { return HookTriggeredEvent }

// EventType names the event.
func (HookCompleted) EventType() EventType { return HookCompletedEvent }

// EventType names the event.
func (HookBlocked) EventType() EventType { return HookBlockedEvent }

// EventType names the event.
func (MCPConnected) EventType() EventType { return MCPConnectedEvent }

// EventType names the event.
func (MCPFailed) EventType() EventType { return MCPFailedEvent }

// EventType names the event.
func (MCPClosed) EventType() EventType { return MCPClosedEvent }

// EventType names the event.
func (KnowledgeRetrieved) EventType() EventType { return KnowledgeRetrievedEvent }

// EventType names the event.
func (CitationCreated) EventType() EventType { return CitationCreatedEvent }

// EventType names the event.
func (ArtifactCreated) EventType() EventType { return ArtifactCreatedEvent }

// EventType names the event.
func (UICreated) EventType() EventType { return UICreatedEvent }

// EventType names the event.
func (CommandAvailable) EventType() EventType { return CommandAvailableEvent }

// EventType names the event.
func (ErrorReported) EventType() EventType { return ErrorReportedEvent }

// eventTypes is the one table of event types; everything published about them
// is generated from it.
var eventTypes = []EventInfo{
	{SessionCreatedEvent, "session", ClassDurable, false, "The first event of every session.", func() any { return new(SessionCreated) }},
	{SessionResumedEvent, "session", ClassDurable, false, "The session became live again after it was cold.", func() any { return new(SessionResumed) }},
	{SessionRenamedEvent, "session", ClassDurable, false, "The title changed.", func() any { return new(SessionRenamed) }},
	{SessionConfiguredEvent, "session", ClassDurable, false, "Policy, budget, labels or agent options changed; absent fields did not.", func() any { return new(SessionConfigured) }},
	{SessionCompactedEvent, "session", ClassDurable, false, "The surface up to a seq was replaced by a summary.", func() any { return new(SessionCompacted) }},
	{SessionClosedEvent, "session", ClassDurable, false, "The session was closed by a client.", func() any { return new(SessionClosed) }},
	{PromptQueuedEvent, "turn", ClassDurable, false, "A prompt was accepted and waits for its turn.", func() any { return new(PromptQueued) }},
	{PromptDequeuedEvent, "turn", ClassDurable, false, "A queued prompt left the queue. Reasons: started, cancelled, steered, closed.", func() any { return new(PromptDequeued) }},
	{TurnStartEvent, "turn", ClassDurable, false, "A turn began. Triggers: prompt, steer, spawn, wake.", func() any { return new(TurnStart) }},
	{TurnEndEvent, "turn", ClassDurable, false, "A turn ended.", func() any { return new(TurnEnd) }},
	{StepStartEvent, "turn", ClassDurable, false, "One model or tool step of a turn began.", func() any { return new(StepStart) }},
	{StepEndEvent, "turn", ClassDurable, false, "A step ended.", func() any { return new(StepEnd) }},
	{UserMessageEvent, "input", ClassDurable, true, "What the person said, when its turn takes it up.", func() any { return new(UserMessage) }},
	{SteeringMessageEvent, "input", ClassDurable, true, "What the person said into a running turn, when the agent took it.", func() any { return new(SteeringMessage) }},
	{ContextMessageEvent, "input", ClassDurable, true, "Context added without running the model.", func() any { return new(ContextMessage) }},
	{PromptBlockedEvent, "input", ClassDurable, false, "A prompt was refused by a hook, a policy or a budget.", func() any { return new(PromptBlocked) }},
	{AssistantMessageEvent, "assistant", ClassDurable, true, "Text of the assistant; replaces the blocks it lists.", func() any { return new(AssistantMessage) }},
	{ReasoningMessageEvent, "assistant", ClassDurableReasoning, false, "Reasoning of the assistant; replaces the blocks it lists.", func() any { return new(ReasoningMessage) }},
	{AssistantRetractedEvent, "assistant", ClassDurable, false, "The listed blocks are void.", func() any { return new(AssistantRetracted) }},
	{AssistantDeltaEvent, "assistant", ClassText, false, "Chunks [from, to) of an open text block.", func() any { return new(AssistantDelta) }},
	{ReasoningDeltaEvent, "assistant", ClassReasoning, false, "Chunks [from, to) of an open reasoning block.", func() any { return new(ReasoningDelta) }},
	{ToolCallEvent, "tool", ClassDurable, true, "A tool call began.", func() any { return new(ToolCall) }},
	{ToolResultEvent, "tool", ClassDurable, true, "A tool call ended.", func() any { return new(ToolResult) }},
	{ToolProgressEvent, "tool", ClassTool, false, "Chunks [from, to) of a running tool's output.", func() any { return new(ToolProgress) }},
	{TodoWriteEvent, "plan", ClassDurable, false, "The whole plan; last write wins.", func() any { return new(TodoWrite) }},
	{ApprovalAskedEvent, "gate", ClassDurable, false, "Audit: an approval was asked for.", func() any { return new(ApprovalAsked) }},
	{ApprovalDecidedEvent, "gate", ClassDurable, false, "Audit: how an approval ended.", func() any { return new(ApprovalDecided) }},
	{QuestionAskedEvent, "gate", ClassDurable, false, "Audit: a question was asked.", func() any { return new(QuestionAsked) }},
	{QuestionDecidedEvent, "gate", ClassDurable, false, "Audit: how a question ended.", func() any { return new(QuestionDecided) }},
	{AgentSpawnedEvent, "subagent", ClassDurable, false, "This session's agent started a child session.", func() any { return new(AgentSpawned) }},
	{AgentCompletedEvent, "subagent", ClassDurable, true, "The child's work for this turn ended. Status is the child's turn/end reason.", func() any { return new(AgentCompleted) }},
	{TaskStartedEvent, "task", ClassDurable, false, "Background work began.", func() any { return new(TaskStarted) }},
	{TaskCompletedEvent, "task", ClassDurable, false, "Background work ended. Status: completed, failed, cancelled, interrupted.", func() any { return new(TaskCompleted) }},
	{ModelStartEvent, "model", ClassDurable, false, "One try to reach a model began.", func() any { return new(ModelStart) }},
	{ModelEndEvent, "model", ClassDurable, false, "That try ended. Status: ok, error, cancelled, skipped.", func() any { return new(ModelEnd) }},
	{ModelSwitchedEvent, "model", ClassDurable, false, "The session's model changed.", func() any { return new(ModelSwitched) }},
	{RequestHeaderEvent, "model", ClassDurable, false, "What a model request was sent with.", func() any { return new(RequestHeader) }},
	{UsageUpdatedEvent, "account", ClassDurable, false, "Cumulative usage of the session; last write wins.", func() any { return new(UsageUpdated) }},
	{HookTriggeredEvent, "world", ClassDurable, false, "A hook began.", func() any { return new(HookTriggered) }},
	{HookCompletedEvent, "world", ClassDurable, false, "A hook ended.", func() any { return new(HookCompleted) }},
	{HookBlockedEvent, "world", ClassDurable, false, "A hook refused something.", func() any { return new(HookBlocked) }},
	{MCPConnectedEvent, "world", ClassDurable, false, "An MCP server was connected.", func() any { return new(MCPConnected) }},
	{MCPFailedEvent, "world", ClassDurable, false, "An MCP server could not be reached.", func() any { return new(MCPFailed) }},
	{MCPClosedEvent, "world", ClassDurable, false, "An MCP server was closed.", func() any { return new(MCPClosed) }},
	{KnowledgeRetrievedEvent, "world", ClassDurable, false, "Documents were retrieved.", func() any { return new(KnowledgeRetrieved) }},
	{CitationCreatedEvent, "world", ClassDurable, false, "The text cites a source.", func() any { return new(CitationCreated) }},
	{ArtifactCreatedEvent, "world", ClassDurable, false, "The agent made something to keep.", func() any { return new(ArtifactCreated) }},
	{UICreatedEvent, "world", ClassDurable, false, "The agent made something to show.", func() any { return new(UICreated) }},
	{CommandAvailableEvent, "world", ClassDurable, false, "The commands the agent offers; last write wins.", func() any { return new(CommandAvailable) }},
	{ErrorReportedEvent, "trouble", ClassDurable, false, "Something went wrong inside the session.", func() any { return new(ErrorReported) }},
}
