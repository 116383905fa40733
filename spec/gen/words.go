package main

import (
	"reflect"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
)

// enums lists the words of every string type that has a set of them. A test
// compares it with the constants in the sources.
var enums = map[reflect.Type][]string{
	reflect.TypeFor[frames.Origin]():       words(frames.OriginUser, frames.OriginSubagent, frames.OriginFork),
	reflect.TypeFor[frames.SessionState](): words(frames.StateIdle, frames.StateRunning, frames.StateRequiresAction),
	reflect.TypeFor[frames.Outcome](): words(frames.AllowedOnce, frames.AllowedAlways, frames.Rejected,
		frames.Cancelled, frames.Unavailable, frames.Answered),
	reflect.TypeFor[frames.Cause](): words(frames.CauseReply, frames.CauseTimeout, frames.CauseAbort,
		frames.CauseShutdown, frames.CauseCascade, frames.CausePolicy, frames.CauseModeChange),
	reflect.TypeFor[frames.TurnEndReason](): words(frames.TurnCompleted, frames.TurnCancelled, frames.TurnRefused,
		frames.TurnMaxTokens, frames.TurnMaxSteps, frames.TurnBudgetExceeded, frames.TurnError, frames.TurnInterrupted),
	reflect.TypeFor[frames.PromptMode](): words(frames.ModeQueue, frames.ModeSteer, frames.ModeInject),
	reflect.TypeFor[frames.ItemKind](): words(frames.ItemUser, frames.ItemSteering, frames.ItemContext,
		frames.ItemAssistant, frames.ItemReasoning, frames.ItemTool, frames.ItemAgent, frames.ItemApproval,
		frames.ItemQuestion, frames.ItemCompaction, frames.ItemBlocked, frames.ItemError),
	reflect.TypeFor[rpc.Scope](): words(rpc.ScopeObserve, rpc.ScopeAnswer, rpc.ScopeOperate, rpc.ScopeAdmin),
}

// words returns constants as plain strings.
func words[S ~string](of ...S) []string {
	list := make([]string, len(of))
	for i, w := range of {
		list[i] = string(w)
	}
	return list
}

// names are the published names of types that are called otherwise in Go.
var names = map[reflect.Type]string{
	reflect.TypeFor[view]():           "View",
	reflect.TypeFor[frames.Pending](): "ViewPending",
	reflect.TypeFor[rpc.Pending]():    "Waiting",
	reflect.TypeFor[frames.By]():      "By",
	reflect.TypeFor[rpc.Task]():       "BackgroundTask",
}

// view is the JSON of a [frames.View]: its fields, and what it keeps behind
// methods. A test compares it with what a view marshals to.
type view struct {
	frames.View
	Pending      []frames.Pending      `json:"pending"`
	Children     []frames.Child        `json:"children"`
	Tasks        []frames.Task         `json:"tasks"`
	Queue        []frames.QueuedPrompt `json:"queue"`
	Surface      frames.Surface        `json:"surface"`
	ClosedBlocks []int                 `json:"closedBlocks,omitempty"`
	Live         *frames.LiveTurn      `json:"live,omitempty"`
	Subscribed   bool                  `json:"subscribed,omitempty"`
	PartialBase  *frames.PartialBase   `json:"partialBase,omitempty"`
}

// rule narrows one field beyond what its Go type says.
type rule struct {
	words    []string     // the only values
	min, max int64        // bounds, where max > 0
	as       reflect.Type // the type of raw JSON
	event    bool         // raw JSON that is an encoded event
	object   bool         // raw JSON that is an object
	signed   bool         // may be negative
}

// rules holds what the Go types cannot say, by "Type.Field". A test refuses a row
// that names no field.
var rules = map[string]rule{
	"frames.ContentBlock.Type":         {words: []string{"text", "image", "resource", "resource_link"}},
	"frames.Todo.Status":               {words: []string{"pending", "in_progress", "completed"}},
	"frames.Rule.Decision":             {words: []string{"allow", "deny", "ask"}},
	"frames.Policy.Mode":               {words: []string{"ask", "deny"}},
	"frames.Budget.Action":             {words: []string{"block", "warn"}},
	"frames.LiveBlock.Kind":            {words: []string{"assistant", "reasoning"}},
	"frames.Pending.Kind":              {words: words(frames.ItemApproval, frames.ItemQuestion)},
	"frames.SessionSubscribed.Base":    {as: reflect.TypeFor[view]()},
	"frames.SessionEvent.Event":        {event: true},
	"frames.SessionConfigured.Options": {object: true},
	"frames.ApprovalRequested.Options": {words: words(frames.AllowedOnce, frames.AllowedAlways, frames.Rejected)},
	"frames.ApprovalAsked.Options":     {words: words(frames.AllowedOnce, frames.AllowedAlways, frames.Rejected)},
	"frames.ApprovalResolved.Outcome":  {words: approvalOutcomes},
	"frames.ApprovalDecided.Outcome":   {words: approvalOutcomes},
	"frames.QuestionResolved.Outcome":  {words: questionOutcomes},
	"frames.QuestionDecided.Outcome":   {words: questionOutcomes},
	"rpc.Task.Status":                  {words: []string{"running", "completed", "failed", "cancelled", "interrupted"}},
	"rpc.ExportParams.Format":          {words: []string{"jsonl", "markdown"}},
	"rpc.ConnectedClient.Transport":    {words: []string{"websocket", "sse"}},
	"rpc.Delivery.Text":                {words: []string{"stream", "final"}},
	"rpc.Delivery.Reasoning":           {words: []string{"stream", "final", "off"}},
	"rpc.Delivery.Tools":               {words: []string{"stream", "off"}},
	"rpc.ListParams.Limit":             {max: rpc.MaxListLimit},
	"rpc.HistoryParams.Limit":          {max: rpc.MaxHistoryLimit},
	"rpc.HistoryParams.MaxBytes":       {max: rpc.MaxHistoryBytes},
	"rpc.BlobReadParams.Limit":         {max: rpc.MaxBlobLimit},
	"rpc.GrantRequest.Scope":           {words: []string{"session", "project"}},
	"rpc.GrantRequest.ForMs":           {min: 1, max: 30 * 24 * 60 * 60 * 1000},
	"rpc.Grant.Scope":                  {words: []string{"session", "project"}},
	"rpc.ApprovalParams.Outcome":       {words: words(frames.AllowedOnce, frames.AllowedAlways, frames.Rejected)},
	"rpc.Pending.Type":                 {words: []string{"approval", "question"}},
	"rpc.ConfigureParams.Options":      {object: true},
	"rpc.GetResult.View":               {as: reflect.TypeFor[view]()},
	"rpc.HistoryResult.Events":         {event: true},
	"rpc.WireError.Code":               {signed: true},
	"rpc.WireError.Data":               {object: true},
}

var (
	approvalOutcomes = words(frames.AllowedOnce, frames.AllowedAlways, frames.Rejected, frames.Cancelled, frames.Unavailable)
	questionOutcomes = words(frames.Answered, frames.Cancelled)
)
