package main

import (
	"reflect"
	"slices"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
)

// kindRow describes one kind of error. In methods stands who may return it: "*"
// for every method, "sessionId" for those that name a session, else names; an
// empty one is reserved.
type kindRow struct {
	kind    rpc.Kind
	doc     string
	details string
	methods string
}

// kinds has a row for each [rpc.Kind]; a test compares it with the sources.
var kinds = []kindRow{
	{rpc.KindSessionNotFound, "No such session, or none that this client may see.", "", "sessionId mux.subscribe session.create pending.list tokens.create"},
	{rpc.KindSessionClosed, "The session is being closed; try again when it is.", "", "session.create session.fork session.prompt session.cancel session.configure session.close session.delete approval.respond question.respond"},
	{rpc.KindAgentUnavailable, "No such agent, or it cannot start; host.describe names those there are.", "", "session.create session.prompt"},
	{rpc.KindAgentUnsupported, "The agent cannot do what was asked.", "", "session.create session.prompt session.configure"},
	{rpc.KindAgentFailed, "The agent failed.", "", ""},
	{rpc.KindApprovalNotPending, "Somebody or something was first, or there is no such approval.", "outcome, origin, by?, at", "approval.respond"},
	{rpc.KindQuestionNotPending, "Somebody or something was first, or there is no such question.", "outcome, origin, by?, at", "question.respond"},
	{rpc.KindInputHashMismatch, "The answer was for another input; the approval stays pending.", "", "approval.respond"},
	{rpc.KindCursorExpired, "The log no longer holds these events, or has another epoch.", "first, head, epoch", "mux.subscribe session.history session.fork"},
	{rpc.KindCursorAhead, "The cursor is past the last event.", "head", "mux.subscribe"},
	{rpc.KindForkNotAtTurnEnd, "A fork begins at the end of a turn; these are the nearest.", "before?, after?", "session.fork"},
	{rpc.KindPromptBlocked, "A hook or a policy refused the prompt.", "", ""},
	{rpc.KindBudgetExceeded, "The session, or its tree, used up its budget.", "", "session.create session.fork session.prompt"},
	{rpc.KindQueueFull, "Too many prompts or requests wait.", "", "session.prompt"},
	{rpc.KindTooLarge, "The content is too large for one event; send less.", "", "session.create session.prompt session.configure blob.write"},
	{rpc.KindRateLimited, "Too many connections, failed attempts, uploads or new sessions; come back later.", "retryAfterMs?", "session.create session.fork blob.write tokens.create"},
	{rpc.KindUnauthenticated, "No valid credentials. Said over HTTP, before a call.", "", ""},
	{rpc.KindForbidden, "The token's scope or its limit to session trees does not allow it.", "", "*"},
	{rpc.KindBlobNotFound, "No such blob, or no such upload.", "", "blob.read blob.write session.prompt"},
	{rpc.KindTaskNotFound, "No such task.", "", "tasks.get tasks.wait tasks.cancel"},
	{rpc.KindGrantNotFound, "No such grant, or none that this client may see.", "", "grants.revoke"},
	{rpc.KindStorageFailed, "It could not be stored or read; the message says what stands.", "", "*"},
	{rpc.KindDraining, "The host is going down; come back when it is up.", "", "*"},
	{rpc.KindRequestIDConflict, "This id was used for something else; take a new one.", "", "session.create session.fork session.prompt"},
}

// faultRow is a JSON-RPC code of its own.
type faultRow struct {
	code int
	name string
	doc  string
}

var faults = []faultRow{
	{rpc.CodeParse, "parse error", "The message is not JSON; id is null."},
	{rpc.CodeInvalidRequest, "invalid request", "The envelope is wrong; id is null."},
	{rpc.CodeMethodNotFound, "method not found", "No such method; host.describe names the features."},
	{rpc.CodeInvalidParams, "invalid params", "A parameter is missing, unknown or wrong; the message names it."},
	{rpc.CodeInternal, "internal error", "A failure that the host's log explains, under the id in the message."},
	{rpc.CodeKind, "a kind of error", "data.kind says which, see below; data.details says more."},
}

// returns reports whether m may return the kind.
func (k kindRow) returns(m rpc.MethodInfo) bool {
	list := strings.Fields(k.methods)
	switch {
	case slices.Contains(list, "*"), slices.Contains(list, m.Name):
		return true
	case !slices.Contains(list, "sessionId"):
		return false
	}
	f, ok := m.Params.FieldByName("SessionID")
	return ok && f.Type == reflect.TypeFor[frames.SessionID]()
}
