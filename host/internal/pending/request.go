package pending

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// Kind says what is asked for.
type Kind string

// The kinds of requests.
const (
	KindApproval Kind = "approval"
	KindQuestion Kind = "question"
)

// Request is one approval or question. The table keeps it as given and hands
// out shallow copies: what it points to is read-only.
type Request struct {
	// ID must be unguessable and new to the table.
	ID frames.RequestID
	// Session asks; Parent and Root are its lineage, Depth its distance from
	// Root, Ancestors its ancestors, nearest first.
	Session, Root, Parent frames.SessionID
	Depth                 int
	Ancestors             []frames.SessionID
	// Turn is the turn that asks, Call the tool call; both may be empty.
	Turn frames.TurnID
	Call frames.CallID
	Kind Kind
	// Approval is set for an approval, Questions for a question.
	Approval  *Approval
	Questions []frames.Question
	AskedAt   time.Time
	// ExpiresAt is the deadline; zero means none.
	ExpiresAt time.Time
}

// Approval is a tool call that waits to be allowed.
type Approval struct {
	Tool frames.Tool
	// KindOnly says that Tool.Name is the agent's word for a kind of call.
	KindOnly bool
	// Input is the frozen input, byte for byte as the agent gave it; Canonical
	// its RFC 8785 form and Hash the hex SHA-256 of that.
	Input     json.RawMessage
	Canonical []byte
	Hash      string
	// Truncated says that people see a preview of Input only.
	Truncated bool
	Reason    string
	// Options are the outcomes that a client may choose; Rejected is always
	// among them.
	Options []frames.Outcome
	// Agent and Cwd (canonical) are what a grant is bound to beside the tool
	// and its input.
	Agent string
	Cwd   string
}

// Settlement is how a request ended.
type Settlement struct {
	Outcome frames.Outcome
	Cause   frames.Cause
	// By is the client that answered, nil where none did.
	By       *frames.By
	Feedback string
	// Grant is the grant that was stored with an AllowedAlways.
	Grant   frames.GrantID
	Answers []frames.Answer
	At      time.Time
}

// Recorder puts decisions on disk and tells others of them. The session is one.
type Recorder interface {
	// Decided records that r ended as s: the audit event, then the frames. It
	// is called without any lock held, after the request's opened callback has
	// returned, and must return soon after ctx ends.
	//
	// It calls placed once, after the decision is durable and before anything
	// of it is published, so that the answering client's response precedes the
	// frames; never, if it returns an error.
	//
	// If s allows and cannot be stored, Decided returns an error and publishes
	// nothing; it is then called a second time with the outcome unavailable. If
	// s does not allow it stands in any case: Decided publishes it even if it
	// could not be stored, and logs the error that it returns.
	Decided(ctx context.Context, r Request, s Settlement, placed func()) error
}

// check returns an *InvalidRequestError for a request that cannot be asked.
func (r *Request) check() error {
	bad := func(want string) error { return &InvalidRequestError{ID: r.ID, Want: want} }
	switch {
	case r.ID == "" || r.Session == "":
		return bad("an id and a session")
	case r.Kind == KindApproval && (r.Approval == nil || r.Questions != nil):
		return bad("an approval and no questions")
	case r.Kind == KindApproval && !slices.Contains(r.Approval.Options, frames.Rejected):
		return bad("options that include rejected")
	case r.Kind == KindApproval && (len(r.Approval.Canonical) == 0 || r.Approval.Hash == ""):
		return bad("the canonical input and its hash")
	case r.Kind == KindApproval && r.ExpiresAt.IsZero():
		return bad("a deadline for an approval")
	case r.Kind == KindQuestion && (r.Approval != nil || len(r.Questions) == 0):
		return bad("questions and no approval")
	case r.Kind != KindApproval && r.Kind != KindQuestion:
		return bad(`the kind "approval" or "question"`)
	}
	return nil
}

// allow makes the settlement of a client's allowing answer. It is the only
// producer of settlements that allow.
func allow(a Answer, grant frames.GrantID, at time.Time) Settlement {
	return Settlement{
		Outcome: a.Outcome, Cause: frames.CauseReply, By: a.By,
		Feedback: a.Feedback, Grant: grant, At: at,
	}
}

// refuse makes the settlement of a client's answer that does not allow.
func refuse(a Answer, at time.Time) Settlement {
	s := Settlement{Outcome: frames.Rejected, Cause: frames.CauseReply, By: a.By, Feedback: a.Feedback, At: at}
	switch {
	case a.Kind == KindQuestion && a.Cancel:
		s.Outcome = frames.Cancelled
	case a.Kind == KindQuestion:
		s.Outcome, s.Answers = frames.Answered, a.Answers
	}
	return s
}

// cancelled makes the settlement of a request that nobody may answer any more.
func cancelled(c frames.Cause, at time.Time) Settlement {
	return Settlement{Outcome: frames.Cancelled, Cause: c, At: at}
}

// denied makes the settlement of a request that ends as a no: an approval is
// rejected, a question cancelled, since it has no such outcome.
func denied(k Kind, c frames.Cause, at time.Time) Settlement {
	if k == KindQuestion {
		return cancelled(c, at)
	}
	return Settlement{Outcome: frames.Rejected, Cause: c, At: at}
}

// unavailable makes the settlement of a request that could not be stored; a
// question is cancelled, since it has no such outcome.
func unavailable(k Kind, at time.Time) Settlement {
	if k == KindQuestion {
		return cancelled(frames.CauseAbort, at)
	}
	return Settlement{Outcome: frames.Unavailable, Cause: frames.CauseAbort, At: at}
}
