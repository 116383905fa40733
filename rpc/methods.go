package rpc

import (
	"context"
	"reflect"

	"github.com/muxhost/muxhost/frames"
)

// MethodInfo describes a method, for documents that are generated.
type MethodInfo struct {
	Name  string
	Doc   string
	Scope Scope
	// Changes says that the method changes something.
	Changes bool
	// Bulk says that the result may be large.
	Bulk bool
	// Params and Result are the Go types whose JSON travels.
	Params, Result reflect.Type
}

// method is a row of the table.
type method struct {
	MethodInfo
	// inline methods run on the reading goroutine: they only touch memory, and
	// later calls start after their cut.
	inline bool
	// prepare decodes params. Its error tells the client what was wrong.
	prepare func(raw []byte) (invocation, error)
}

// table has one row for each method of [API].
var table = []*method{
	query("host.describe", ScopeObserve, "Who the host is, its agents, limits and features, and who you are.", API.HostDescribe),
	bulk(query("rpc.discover", ScopeObserve, "The OpenRPC document of this host's methods.", API.RPCDiscover)),
	subscribe("mux.subscribe", "Subscribes sessions, trees, or the host inbox.", API.Subscribe),
	subscribe("mux.unsubscribe", "Ends subscriptions.", API.Unsubscribe),
	bulk(query("sessions.list", ScopeObserve, "Summaries, live and cold, newest first.", API.SessionsList)),
	change("session.create", ScopeOperate, "Creates a session.", API.SessionCreate),
	bulk(query("session.get", ScopeObserve, "One summary, on request with the fold as it stands.", API.SessionGet)),
	bulk(query("session.history", ScopeObserve, "A page of durable events.", API.SessionHistory)),
	change("session.prompt", ScopeOperate, "Sends a prompt, steers a turn, or injects context.", API.SessionPrompt),
	change("session.cancel", ScopeOperate, "Marks turns as cancelled.", API.SessionCancel),
	change("session.configure", ScopeOperate, "Changes title, policy, budget, labels or agent options.", API.SessionConfigure),
	query("session.export", ScopeObserve, "Writes the log of a session into a blob.", API.SessionExport),
	change("session.fork", ScopeOperate, "Creates a session that goes on from the end of a turn of another.", API.SessionFork),
	change("session.close", ScopeOperate, "Makes a session cold; its log stays.", API.SessionClose),
	change("session.delete", ScopeOperate, "Removes a session and its log.", API.SessionDelete),
	change("approval.respond", ScopeAnswer, "Answers an approval.", API.ApprovalRespond),
	change("question.respond", ScopeAnswer, "Answers or cancels a question.", API.QuestionRespond),
	bulk(query("pending.list", ScopeObserve, "Everything that waits for a person, oldest first.", API.PendingList)),
	query("grants.list", ScopeObserve, "The stored \"always\" answers.", API.GrantsList),
	change("grants.revoke", ScopeOperate, "Removes a stored \"always\".", API.GrantsRevoke),
	bulk(query("tasks.list", ScopeObserve, "Background work of agents: commands and children.", API.TasksList)),
	bulk(query("tasks.get", ScopeObserve, "One task, with the tail of its output.", API.TasksGet)),
	query("tasks.wait", ScopeObserve, "Waits until a task has ended, or for a time.", API.TasksWait),
	change("tasks.cancel", ScopeOperate, "Cancels a task.", API.TasksCancel),
	bulk(query("blob.read", ScopeObserve, "A page of a blob.", API.BlobRead)),
	change("blob.write", ScopeOperate, "A chunk of a new blob.", API.BlobWrite),
	query("clients.list", ScopeAdmin, "Who is connected.", API.ClientsList),
	query("tokens.list", ScopeAdmin, "Who may connect.", API.TokensList),
	change("tokens.create", ScopeAdmin, "Makes a token, which never exceeds the caller's own.", API.TokensCreate),
	change("tokens.revoke", ScopeAdmin, "Revokes a token and those it made, and closes their connections.", API.TokensRevoke),
}

// methods indexes the table by name.
var methods = func() map[string]*method {
	m := make(map[string]*method, len(table))
	for _, row := range table {
		m[row.Name] = row
	}
	return m
}()

// Methods lists every method in the order of the contract. The slice is the
// caller's.
func Methods() []MethodInfo {
	infos := make([]MethodInfo, len(table))
	for i, m := range table {
		infos[i] = m.MethodInfo
	}
	return infos
}

// query makes the row of a method that only reads.
func query[P, R any](name string, scope Scope, doc string, do func(API, context.Context, P) (R, error)) *method {
	return newMethod[P, R](name, scope, doc, func() (invocation, *P) {
		q := &queryCall[P, R]{run: do}
		return q, &q.params
	})
}

// change makes the row of a method that changes something.
func change[P, R any](name string, scope Scope, doc string, do func(API, context.Context, P, Reply[R]) error) *method {
	m := newMethod[P, R](name, scope, doc, func() (invocation, *P) {
		c := &changeCall[P, R]{run: do}
		return c, &c.params
	})
	m.Changes = true
	return m
}

// subscribe makes the row of a method that places its own response.
func subscribe[P, R any](name, doc string, do func(API, context.Context, P, func(R) []byte) error) *method {
	m := newMethod[P, R](name, ScopeObserve, doc, func() (invocation, *P) {
		s := &subscribeCall[P, R]{run: do}
		return s, &s.params
	})
	m.inline = true
	return m
}

// bulk marks a row whose result may be large.
func bulk(m *method) *method { m.Bulk = true; return m }

func newMethod[P, R any](name string, scope Scope, doc string, make func() (invocation, *P)) *method {
	plan := planOf(reflect.TypeFor[P]())
	return &method{
		MethodInfo: MethodInfo{Name: name, Doc: doc, Scope: scope, Params: reflect.TypeFor[P](), Result: reflect.TypeFor[R]()},
		prepare: func(raw []byte) (invocation, error) {
			inv, params := make()
			return inv, decodeInto(raw, params, plan)
		},
	}
}

type queryCall[P, R any] struct {
	params P
	run    func(API, context.Context, P) (R, error)
}

func (q *queryCall[P, R]) lane(method string) laneKey { return laneOf(method, &q.params) }

func (q *queryCall[P, R]) do(ctx context.Context, api API, cl *call) error {
	r, err := q.run(api, ctx, q.params)
	if err != nil {
		return err
	}
	cl.reply(filled(&r))
	return nil
}

type changeCall[P, R any] struct {
	params P
	run    func(API, context.Context, P, Reply[R]) error
}

func (c *changeCall[P, R]) lane(method string) laneKey { return laneOf(method, &c.params) }

func (c *changeCall[P, R]) do(ctx context.Context, api API, cl *call) error {
	return c.run(api, ctx, c.params, func(r R) { cl.reply(filled(&r)) })
}

type subscribeCall[P, R any] struct {
	params P
	run    func(API, context.Context, P, func(R) []byte) error
}

func (s *subscribeCall[P, R]) lane(string) laneKey { return laneKey{} }

func (s *subscribeCall[P, R]) do(ctx context.Context, api API, cl *call) error {
	return s.run(api, ctx, s.params, func(r R) []byte { return cl.encode(filled(&r)) })
}

// filled returns r ready to be encoded.
func filled[R any](r *R) any {
	if f, ok := any(r).(filler); ok {
		f.fill()
	}
	return r
}

// laneOf returns the lane of a call: its session's, else its method's.
func laneOf(method string, params any) laneKey {
	if p, ok := params.(interface{ session() frames.SessionID }); ok {
		return laneKey{session: string(p.session())}
	}
	return laneKey{method: method}
}

func (p *GetParams) session() frames.SessionID       { return p.SessionID }
func (p *HistoryParams) session() frames.SessionID   { return p.SessionID }
func (p *PromptParams) session() frames.SessionID    { return p.SessionID }
func (p *CancelParams) session() frames.SessionID    { return p.SessionID }
func (p *ConfigureParams) session() frames.SessionID { return p.SessionID }
func (p *CloseParams) session() frames.SessionID     { return p.SessionID }
func (p *DeleteParams) session() frames.SessionID    { return p.SessionID }
func (p *ApprovalParams) session() frames.SessionID  { return p.SessionID }
func (p *QuestionParams) session() frames.SessionID  { return p.SessionID }
