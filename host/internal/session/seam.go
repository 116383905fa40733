package session

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/pending"
	"github.com/muxhost/muxhost/store"
)

// Publisher is where sessions tell clients; the host provides it over mux. Its
// methods never block and do no I/O. The calls for one session come in order.
type Publisher interface {
	// Add makes a session known, live or cold. A live one is announced.
	Add(s frames.Session, first frames.Seq, live bool)
	// SetLive tells that a session woke or went cold.
	SetLive(sid frames.SessionID, live bool)
	// Remove tells that a session was deleted.
	Remove(sid frames.SessionID, reason string)
	// Trimmed tells that a log now begins at first. It may come beside the
	// other calls for the session.
	Trimmed(sid frames.SessionID, first frames.Seq)
	// Publish makes an update visible at one cut.
	Publish(sid frames.SessionID, u Update)
}

// Update is what a session makes visible in one step; see mux.Update, its twin.
type Update struct {
	Events  []frames.Encoded
	Turn    *frames.TurnSnapshot
	Notices []Notice
	Status  *frames.SessionStatus
	Summary *frames.Session
}

// Notice is an approval or question frame (kept under Key until settled) or a
// frame that is passed on once.
type Notice struct {
	Key    string // "" passes the frame on once
	Settle bool
	Frame  frames.Frame
}

// Blobs keeps wholes of which events show previews; the host provides it.
type Blobs interface {
	Put(ctx context.Context, r io.Reader) (id frames.BlobID, bytes int64, err error)
}

// Config is what a [Manager] needs. Zero durations and counts mean the default
// in the comment.
type Config struct {
	Store     store.Store
	Publisher Publisher
	Blobs     Blobs
	// OpenBlob opens a blob for an agent; nil keeps blobs from agents.
	OpenBlob func(ctx context.Context, id frames.BlobID) (io.ReadCloser, error)
	Drivers  map[string]agent.Driver
	// DefaultAgent is used when session.create names none.
	DefaultAgent string
	// NewID mints ids: UUIDv7 strings.
	NewID  func() string
	Logger *slog.Logger
	// Env is what children of agents may see.
	Env []string

	// Rules are what the operator adds to the policy of each session of an agent in a
	// canonical directory; nil adds nothing. An error refuses the session.
	Rules func(agent, cwd string) (frames.Policy, error)

	IdleAfter  time.Duration // 5 min: an idle session goes cold
	AskTimeout time.Duration // 300 s: an approval nobody answers is rejected
	MaxQueue   int           // 64 queued prompts per session
	MaxDepth   int           // 16 levels of subagents
	MaxTree    int           // 1000 sessions in one tree
	Retention  Retention     // keep everything
	SpawnRate  int           // 60 children a minute in one tree
}

// CreateArgs are those of session.create and of a spawn.
type CreateArgs struct {
	By        *frames.By
	Agent     string
	Cwd       string
	Title     string
	Parent    frames.SessionID
	Config    json.RawMessage
	Policy    *frames.Policy
	Budget    *frames.Budget
	Labels    map[string]string
	RequestID string
}

// PromptArgs are those of session.prompt.
type PromptArgs struct {
	By      *frames.By
	Session frames.SessionID
	Content []frames.ContentBlock
	Mode    frames.PromptMode
	ID      frames.PromptID
}

// PromptAnswer says where a prompt went.
type PromptAnswer struct {
	ID     frames.PromptID
	Turn   frames.TurnID
	Queued bool
}

// CancelArgs are those of session.cancel.
type CancelArgs struct {
	By      *frames.By
	Session frames.SessionID
	Turn    frames.TurnID // "" is every running turn
	Tree    bool
}

// ConfigureArgs are those of session.configure; nil fields stay.
type ConfigureArgs struct {
	By      *frames.By
	Session frames.SessionID
	Title   *string
	Policy  *frames.Policy
	Budget  *frames.Budget
	Labels  map[string]string
	Options json.RawMessage
}

// Filter selects sessions for a list; zero fields match all.
type Filter struct {
	Roots  bool
	Parent frames.SessionID
	Tree   frames.SessionID
	State  frames.SessionState
	Cwd    string
	Text   string
	Limit  int
	Cursor string
	// Within limits the list to these trees; nil does not.
	Within []frames.SessionID
}

// Page is one page of a session's history; Events are as encoded.
type Page struct {
	Events      []frames.Encoded
	First, Head frames.Seq
	More        bool
}

// api is what the host calls. Every mutation takes placed, which it calls once:
// after the change is durable and before anything that it caused is published. A
// nil placed is allowed. Errors are the typed errors of this package, those of
// pending, or wrap store's.
type api interface {
	Create(ctx context.Context, a CreateArgs, placed func(frames.Session)) error
	// Fork calls started once it is known what is copied.
	Fork(ctx context.Context, f ForkArgs, started func(), placed func(frames.Session)) error
	Prompt(ctx context.Context, a PromptArgs, placed func(PromptAnswer)) error
	Cancel(ctx context.Context, a CancelArgs, placed func(cancelled bool)) error
	Configure(ctx context.Context, a ConfigureArgs, placed func(frames.Session)) error
	// Close and Delete call started once they are in order behind earlier
	// calls, and may then take until the agent is really closed.
	Close(ctx context.Context, by *frames.By, sid frames.SessionID, started, placed func()) error
	Delete(ctx context.Context, by *frames.By, sid frames.SessionID, tree bool, started, placed func()) error

	Get(sid frames.SessionID) (frames.Session, bool)
	// Ancestors returns the session's parents, nearest first.
	Ancestors(sid frames.SessionID) []frames.SessionID
	List(f Filter) (sessions []frames.Session, next string, err error)
	View(ctx context.Context, sid frames.SessionID) (view json.RawMessage, seq frames.Seq, err error)
	History(ctx context.Context, sid frames.SessionID, after, before *frames.Seq, limit, maxBytes int) (Page, error)

	// Export writes the log into a blob, as "jsonl" or "markdown".
	Export(ctx context.Context, sid frames.SessionID, format string) (Export, error)

	Answer(ctx context.Context, a pending.Answer, placed func()) error
	// Pending returns what waits for a person in the tree of sid ("" is all),
	// oldest first, as frames: *ApprovalRequested or *QuestionRequested.
	Pending(sid frames.SessionID) []frames.Frame
	// Tasks, Task, AwaitTask and CancelTask are about background work.
	Tasks(ctx context.Context, f TaskFilter) ([]Task, error)
	Task(ctx context.Context, sid frames.SessionID, id frames.TaskID) (Task, error)
	AwaitTask(ctx context.Context, sid frames.SessionID, id frames.TaskID, wait time.Duration) (t Task, ended bool, err error)
	CancelTask(ctx context.Context, by *frames.By, sid frames.SessionID, id frames.TaskID, placed func(cancelled bool)) error
	Grants() []pending.Grant
	RevokeGrant(ctx context.Context, id frames.GrantID) error

	// Drain refuses new work; open requests stay answerable.
	Drain()
	// Shutdown drains, waits until ctx is done or nothing runs, then settles
	// what is open, ends turns as interrupted, appends all of it, and waits.
	Shutdown(ctx context.Context) error
}
