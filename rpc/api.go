// Package rpc is the unary half of the wire: the typed method map, strict params,
// the error table, and JSON-RPC 2.0 over a [Stream].
//
// rpc knows method names, params and wire codes. It does not know how a method is
// done ([API]) nor what a socket is ([Stream]).
package rpc

import (
	"context"
	"encoding/json"
)

// Scope is what a client may do. Each includes those before it.
type Scope string

// The scopes, weakest first.
const (
	ScopeObserve Scope = "observe"
	ScopeAnswer  Scope = "answer"
	ScopeOperate Scope = "operate"
	ScopeAdmin   Scope = "admin"
)

// Stream is one message connection; a socket of mux is one.
type Stream interface {
	// Read returns the next whole message.
	Read(ctx context.Context) ([]byte, error)
	// Send places a message in the outgoing order. It never blocks and keeps
	// msg.
	Send(msg []byte) error
	// Room blocks until there is room for a large message.
	Room(ctx context.Context) error
	// Close ends the connection with a WebSocket close code; it does not wait.
	Close(code int, reason string)
}

// Reply places the response in the connection's outgoing order. A method that
// changes something calls it exactly once, after the change is durable and before
// anything that the change caused is published; so a response precedes every
// frame that its method caused. After Reply the method must return nil.
type Reply[R any] func(R)

// API does the methods, for one client. Methods that only read return their
// result; methods that change something take a [Reply]. An error returned before
// Reply is the response. Errors: *[Error], *[ParamsError]; any other is internal.
//
// Calls of one session start in the order received: the next one starts when this
// one returned or called [Started].
type API interface {
	HostDescribe(ctx context.Context, p Empty) (DescribeResult, error)
	RPCDiscover(ctx context.Context, p Empty) (DiscoverResult, error)

	// Subscribe and Unsubscribe place their own response: respond encodes the
	// whole response message for a result.
	Subscribe(ctx context.Context, p SubscribeParams, respond func(SubscribeResult) []byte) error
	Unsubscribe(ctx context.Context, p UnsubscribeParams, respond func(Empty) []byte) error

	SessionsList(ctx context.Context, p ListParams) (ListResult, error)
	SessionCreate(ctx context.Context, p CreateParams, r Reply[SessionResult]) error
	SessionGet(ctx context.Context, p GetParams) (GetResult, error)
	SessionHistory(ctx context.Context, p HistoryParams) (HistoryResult, error)
	SessionPrompt(ctx context.Context, p PromptParams, r Reply[PromptResult]) error
	SessionCancel(ctx context.Context, p CancelParams, r Reply[CancelResult]) error
	SessionConfigure(ctx context.Context, p ConfigureParams, r Reply[SessionResult]) error
	SessionExport(ctx context.Context, p ExportParams) (ExportResult, error)
	SessionFork(ctx context.Context, p ForkParams, r Reply[SessionResult]) error
	SessionClose(ctx context.Context, p CloseParams, r Reply[Empty]) error
	SessionDelete(ctx context.Context, p DeleteParams, r Reply[Empty]) error

	ApprovalRespond(ctx context.Context, p ApprovalParams, r Reply[Accepted]) error
	QuestionRespond(ctx context.Context, p QuestionParams, r Reply[Accepted]) error
	PendingList(ctx context.Context, p PendingParams) (PendingResult, error)
	GrantsList(ctx context.Context, p Empty) (GrantsResult, error)
	GrantsRevoke(ctx context.Context, p RevokeParams, r Reply[Empty]) error

	TasksList(ctx context.Context, p TasksListParams) (TasksResult, error)
	TasksGet(ctx context.Context, p TaskParams) (TaskResult, error)
	TasksWait(ctx context.Context, p TaskWaitParams) (TaskWaitResult, error)
	TasksCancel(ctx context.Context, p TaskParams, r Reply[CancelResult]) error

	BlobRead(ctx context.Context, p BlobReadParams) (BlobReadResult, error)
	BlobWrite(ctx context.Context, p BlobWriteParams, r Reply[BlobWriteResult]) error

	ClientsList(ctx context.Context, p Empty) (ClientsResult, error)
	TokensList(ctx context.Context, p Empty) (TokensResult, error)
	TokensCreate(ctx context.Context, p TokenCreateParams, r Reply[TokenCreateResult]) error
	TokensRevoke(ctx context.Context, p TokenRevokeParams, r Reply[Empty]) error
}

// Raw is a result that is already JSON; it is sent as it is.
type Raw = json.RawMessage
