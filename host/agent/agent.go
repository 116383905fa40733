// Package agent is the public interface between the host and the agents it runs.
//
// A [Driver] opens an [Agent] for one session; the host then asks it to run one
// turn at a time. While a turn runs the agent speaks through its [Turn]: it emits
// events, streams deltas, asks for approval, asks questions, spawns child
// sessions. The host numbers, stores and publishes what it says; it never lets a
// tool run that [Turn.Ask] did not allow.
//
// What the host promises a driver: Prompt is called once at a time; ctx is
// cancelled when the turn is cancelled and the cause says why; events are on disk
// when Emit returns. What a driver promises the host: Prompt returns soon after
// ctx is done, having ended every process it started; a rejected call is not run;
// what runs is [Decision.Input] and nothing else.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// Info describes a driver to clients (`host.describe`).
type Info struct {
	// Name is what `session.create` calls it: lower case, digits, dashes.
	Name string `json:"name"`
	// Kind groups drivers: "shell", "demo", "acp", …
	Kind     string   `json:"kind"`
	Provider string   `json:"provider,omitempty"`
	Model    string   `json:"model,omitempty"`
	Models   []string `json:"models,omitempty"`
	// Capabilities name what the agent can do: "steer", "questions",
	// "subagents", "images", "tasks".
	Capabilities []string `json:"capabilities"`
}

// Driver opens agents of one kind. It is safe for concurrent use.
type Driver interface {
	Info() Info
	// Open starts an agent for s. It is called when a session wakes, and may
	// block; ctx ends the attempt. An error is shown to people.
	Open(ctx context.Context, s Session) (Agent, error)
}

// Closer is implemented by drivers that hold something of their own, such as a
// process that serves several sessions.
type Closer interface {
	// Close lets go of it and waits for that; ctx bounds the wait to [CloseTimeout].
	// The host calls it once, when it shuts down, after the last agent of the driver
	// was closed or given up; no Open is called any more.
	Close(ctx context.Context) error
}

// Agent is one open conversation. Prompt and Close are never called at the same
// time as another Prompt; Steer may be called while Prompt runs.
type Agent interface {
	// Prompt runs one turn and returns when it has ended. An error ends the turn
	// with reason "error" and is shown to people; a panic counts as a crash.
	Prompt(ctx context.Context, t Turn, p Prompt) (Result, error)
	// Steer hands text to the running turn. [ErrNotTaken] means that the agent
	// cannot take it now; the prompt then waits for the next turn.
	Steer(ctx context.Context, p Prompt) error
	// Close ends the agent and everything it started, and waits for that.
	Close(ctx context.Context) error
}

// Configurable is implemented by agents that take options while they run.
type Configurable interface {
	// Configure applies agent options (`session.configure`), such as "model".
	Configure(ctx context.Context, options json.RawMessage) error
}

// ErrNotTaken is returned by Steer.
var ErrNotTaken = errors.New("agent: the running turn takes no steering now")

// Session is what an agent knows of the session that it serves.
type Session struct {
	ID     frames.SessionID
	Parent frames.SessionID
	Depth  int
	// Cwd is an absolute directory, symlinks resolved, that exists.
	Cwd string
	// Config is the `config` of `session.create`, nil if none; Options those of
	// later `session.configure` calls.
	Config, Options json.RawMessage
	// Env is the environment that child processes may have: built from a list
	// of allowed names, without anything of the host's own.
	Env []string
	// History reads the session's past events, oldest first, for agents that
	// keep no memory of their own.
	History func(ctx context.Context, after frames.Seq, limit int) ([]frames.Event, error)
	// Base reads the fold of what was dropped from the start of the log, and the
	// number of the last event in it; nil and 0 if nothing was.
	Base func(ctx context.Context) (*frames.View, frames.Seq, error)
	// ReadBlob opens a blob that an event or a prompt names; the caller closes it.
	ReadBlob func(ctx context.Context, id frames.BlobID) (io.ReadCloser, error)
	// State is what the agent kept last with [Background.Save], nil if nothing. A
	// fork begins with a copy of its source's.
	State json.RawMessage
	// Background speaks for the session outside of turns.
	Background Background
}

// Background is what an agent may say while no turn runs. Its methods are safe
// for concurrent use and block like those of [Turn].
type Background interface {
	// Emit appends durable events that belong to no turn.
	Emit(ctx context.Context, events ...frames.Payload) error
	// Failed tells clients of a failure that has no place in a turn.
	Failed(message string)
	// Ask and Question are those of [Turn] for a request that belongs to no turn.
	// Such a request keeps the session awake; it is settled `cancelled` with
	// `abort` when ctx ends or the session is cancelled or closed, and with
	// `shutdown` when the host goes down or crashed.
	Ask(ctx context.Context, a Approval) (Decision, error)
	Question(ctx context.Context, q ...frames.Question) (Answers, error)
	// Save keeps state, a JSON value of at most [MaxState] bytes, in place of what
	// was kept before; it is on disk when Save returns. It is no event: no client
	// sees it.
	Save(ctx context.Context, state json.RawMessage) error
	// Title names the session, unless a person or an earlier `session.create` did.
	Title(ctx context.Context, title string) error
}

// MaxState is the largest state in bytes that an agent may keep.
const MaxState = 64 << 10

// Tools offers the host's own tools (spawning subagents of any kind, asking people,
// reporting todos) to agents that can call tools by the Model Context Protocol.
// It is safe for concurrent use.
type Tools interface {
	// Offer opens a door for the agent of one session. The caller closes it.
	Offer(s Session) (ToolOffer, error)
}

// ToolOffer is the door of one session: who has its token may call the tools in the
// session's name, and nothing else.
type ToolOffer interface {
	// URL is a loopback address that speaks the protocol's streamable HTTP; Token is
	// the bearer token that it demands.
	URL() string
	Token() string
	// Begin makes t the turn in which calls are done, until end is called. Calls
	// while no turn runs are refused with a message for the model.
	Begin(t Turn) (end func())
	// Close shuts the door and waits until no call runs.
	Close()
}

// Prompt is what a person, or a parent agent, says.
type Prompt struct {
	ID      frames.PromptID
	Content []frames.ContentBlock
	// Context holds earlier `inject` prompts that the agent has not seen yet.
	Context []frames.ContentBlock
}

// Text joins the text blocks of the prompt.
func (p Prompt) Text() string {
	var s string
	for _, b := range p.Content {
		if b.Type == "text" {
			if s != "" {
				s += "\n"
			}
			s += b.Text
		}
	}
	return s
}

// Result is how an agent's turn ended when it did not fail. The zero Reason
// means completed. When ctx was cancelled the host ignores it.
type Result struct {
	Reason  frames.TurnEndReason
	Usage   *frames.Usage
	Message string
}

// Turn is what an agent may do while one turn runs. All methods are safe for
// concurrent use; they fail with [ErrTurnOver] after Prompt returned. Every
// method that takes ctx blocks: durable events for about one disk flush, deltas
// only when the session is behind.
type Turn interface {
	ID() frames.TurnID
	// Emit appends durable events in one step: all are stored, or none. Types
	// outside the contract need a vendor prefix; use [Raw].
	Emit(ctx context.Context, events ...frames.Payload) error
	// NewBlock mints the number of the next text block of this turn.
	NewBlock() int
	// Text and Reasoning stream text of a block from [Turn.NewBlock]. Nothing
	// is stored until an AssistantMessage or ReasoningMessage lists the block;
	// if the turn ends first the host writes what it has as a partial message.
	Text(ctx context.Context, block int, text string) error
	Reasoning(ctx context.Context, block int, text string) error
	// Progress streams output of a running tool call. It is never stored.
	Progress(ctx context.Context, call frames.CallID, text string) error
	// Ask asks whether a tool call may run and blocks until that is settled. The
	// error is nil whenever there is a decision; a decision that allows never
	// comes with an error.
	Ask(ctx context.Context, a Approval) (Decision, error)
	// Question asks a person and blocks until answered or cancelled.
	Question(ctx context.Context, q ...frames.Question) (Answers, error)
	// Spawn starts a child session and its first turn. It returns when the
	// child exists; [Child.Wait] waits for its turn.
	Spawn(ctx context.Context, s Spawn) (Child, error)
	// Blob stores a whole of which an event shows only a preview.
	Blob(ctx context.Context, r io.Reader) (id frames.BlobID, bytes int64, err error)
	// Task begins background work, which may outlive the turn.
	Task(ctx context.Context, kind, label string) (Task, error)
}

// Approval describes one tool call that wants permission.
type Approval struct {
	Call frames.CallID
	// Tool is what would run. Names that begin with [OwnTools] are the host's own
	// tools: a driver hands on no such name that an agent gave.
	Tool frames.Tool
	// KindOnly says that Tool.Name is but the agent's word for a kind of call: rules
	// that allow a tool by its name then do not count, those that ask or deny do.
	KindOnly bool
	// Input is the exact input of the call, a JSON value. It is frozen here:
	// what a person allows is this, byte for byte.
	Input json.RawMessage
	// Reason is the agent's own explanation; it is shown apart from the input.
	Reason string
	// NoAlways withholds the "always" option.
	NoAlways bool
}

// OwnTools begins the names by which policies know the host's own tools.
const OwnTools = "muxhost."

// Decision is the settled outcome of an [Approval].
type Decision struct {
	Outcome  frames.Outcome
	Cause    frames.Cause
	By       *frames.By
	Feedback string
	// Input is the frozen input; what runs must come from here. Nil unless the
	// outcome allows.
	Input json.RawMessage
}

// Allowed reports whether the call may run.
func (d Decision) Allowed() bool { return d.Outcome.Allows() && d.Input != nil }

// Answers is the settled outcome of a question.
type Answers struct {
	// Outcome is answered or cancelled.
	Outcome frames.Outcome
	Cause   frames.Cause
	Answers []frames.Answer
}

// Spawn describes a child session. Empty fields are inherited from the parent.
type Spawn struct {
	Agent, Cwd, Title string
	Call              frames.CallID
	Config            json.RawMessage
	Prompt            []frames.ContentBlock
}

// Child is a child session that this turn started.
type Child struct {
	ID frames.SessionID
	// Wait blocks until the child's turn has ended, its `agent/completed` is in
	// the parent's log, and returns how it ended.
	Wait func(ctx context.Context) (ChildResult, error)
}

// ChildResult is how a child's turn ended.
type ChildResult struct {
	Reason frames.TurnEndReason
	// Message is that of its turn/end, such as "exit 4".
	Message string
	// Result is the child's last assistant message, if any.
	Result []frames.ContentBlock
}

// Task is background work that began in a turn.
type Task interface {
	ID() frames.TaskID
	// Output adds text to what the task printed. The host keeps the last 64 KiB
	// in memory, cut at a character boundary, for those who ask. It does not
	// block, and may be called after the end.
	Output(ctx context.Context, text string) error
	// Done ends it; later calls do nothing. Status is completed, failed or
	// cancelled; detail is a few words, such as "exit 4". On an error the end is
	// not stored yet, and the host tries again by itself.
	Done(ctx context.Context, status, detail string) error
	// Context is cancelled when the task is cancelled or done, and when its
	// session closes. Whoever works on the task then stops and calls Done with
	// "cancelled".
	Context() context.Context
}

// ErrBudget is what methods of a [Turn] that begin a model or tool step fail with
// (match it with errors.Is) once the budget of the session, or of one above it, is
// used up, and the cause with which ctx is cancelled then: the turn ends with
// reason "budget-exceeded". Those are Emit of a StepStart or ModelStart, Spawn and
// Task; [Turn.Ask] answers with a rejection instead.
var ErrBudget = errors.New("agent: the budget is used up")

// ErrTurnOver is returned by methods of a [Turn] that has ended.
var ErrTurnOver = errors.New("agent: the turn is over")

// Raw is a payload of a type outside the contract, such as "vendor.name/type".
// Data is a JSON object; it travels byte for byte.
type Raw struct {
	Type frames.EventType
	Data json.RawMessage
}

// EventType returns the vendor type.
func (r Raw) EventType() frames.EventType { return r.Type }

// MarshalJSON returns Data.
func (r Raw) MarshalJSON() ([]byte, error) { return r.Data, nil }

// CloseTimeout is how long the host waits for Close and for a cancelled Prompt.
const CloseTimeout = 10 * time.Second
