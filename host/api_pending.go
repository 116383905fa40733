package host

import (
	"context"
	"slices"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/pending"
	"github.com/muxhost/muxhost/rpc"
)

// ApprovalRespond answers an approval. A grant for a whole project needs the scope
// operate and no limit to trees, since it reaches beyond the session.
func (c *caller) ApprovalRespond(ctx context.Context, p rpc.ApprovalParams, r rpc.Reply[rpc.Accepted]) error {
	if err := c.see(p.SessionID); err != nil {
		return err
	}
	a := pending.Answer{
		Session: p.SessionID, ID: p.ID, Kind: pending.KindApproval, Outcome: p.Outcome,
		Feedback: p.Feedback, By: c.by,
	}
	if p.InputHash != nil {
		a.InputHash = *p.InputHash
	}
	if g := p.Grant; g != nil {
		if pending.Scope(g.Scope) == pending.ScopeProject && (c.trees != nil || !c.may(rpc.ScopeOperate)) {
			return rpc.Errorf(rpc.KindForbidden, `a grant for the project needs the scope operate and a client that is not limited to trees; use the scope "session"`)
		}
		a.Grant = &pending.GrantRequest{Scope: pending.Scope(g.Scope)}
		if g.ForMs != nil {
			a.Grant.For = time.Duration(*g.ForMs) * time.Millisecond
		}
	}
	if c.trees != nil && p.Outcome == frames.AllowedAlways {
		if a.Grant == nil {
			a.Grant = new(pending.GrantRequest)
		}
		a.Grant.Below = c.top(p.SessionID)
	}
	return c.sessionError(p.SessionID, c.host.sessions.Answer(ctx, a, func() { r(rpc.Accepted{Accepted: true}) }))
}

// top returns the topmost session above sid, or itself, that this client sees: what
// a client that is limited to trees allows for always holds there and no higher.
func (c *caller) top(sid frames.SessionID) frames.SessionID {
	for _, up := range slices.Backward(c.host.sessions.Ancestors(sid)) {
		if slices.Contains(c.trees, up) {
			return up
		}
	}
	return sid
}

// may reports whether the client has a scope.
func (c *caller) may(s rpc.Scope) bool {
	return len(c.scopes) > 0 && c.scopes[len(c.scopes)-1].Includes(s)
}

// QuestionRespond answers or cancels a question.
func (c *caller) QuestionRespond(ctx context.Context, p rpc.QuestionParams, r rpc.Reply[rpc.Accepted]) error {
	if err := c.see(p.SessionID); err != nil {
		return err
	}
	a := pending.Answer{Session: p.SessionID, ID: p.ID, Kind: pending.KindQuestion, Answers: p.Answers, Cancel: p.Cancel, By: c.by}
	return c.sessionError(p.SessionID, c.host.sessions.Answer(ctx, a, func() { r(rpc.Accepted{Accepted: true}) }))
}

// PendingList lists what waits for a person, of what the client may see.
func (c *caller) PendingList(_ context.Context, p rpc.PendingParams) (rpc.PendingResult, error) {
	if p.Tree != "" {
		if err := c.see(p.Tree); err != nil {
			return rpc.PendingResult{}, err
		}
	}
	out := rpc.PendingResult{Pending: []rpc.Pending{}}
	for _, f := range c.host.sessions.Pending(p.Tree) {
		switch f := f.(type) {
		case *frames.ApprovalRequested:
			if c.within(f.SessionID) {
				out.Pending = append(out.Pending, rpc.Pending{Type: string(pending.KindApproval), Approval: f})
			}
		case *frames.QuestionRequested:
			if c.within(f.SessionID) {
				out.Pending = append(out.Pending, rpc.Pending{Type: string(pending.KindQuestion), Question: f})
			}
		}
	}
	return out, nil
}

// GrantsList lists the grants that were given in what the client may see.
func (c *caller) GrantsList(context.Context, rpc.Empty) (rpc.GrantsResult, error) {
	out := rpc.GrantsResult{Grants: []rpc.Grant{}}
	for _, g := range c.host.sessions.Grants() {
		if c.within(g.Root) {
			out.Grants = append(out.Grants, rpc.Grant{
				ID: g.ID, Agent: g.Agent, Tool: g.Tool, Cwd: g.Cwd, Input: g.Input, Scope: string(g.Scope), RootSessionID: g.Root,
				CreatedAt: frames.At(g.CreatedAt), ExpiresAt: frames.At(g.ExpiresAt), Used: g.Used, By: g.By,
			})
		}
	}
	return out, nil
}

// GrantsRevoke ends a grant.
func (c *caller) GrantsRevoke(ctx context.Context, p rpc.RevokeParams, r rpc.Reply[rpc.Empty]) error {
	if c.trees != nil && !c.sees(p.ID) {
		return noGrant(p.ID)
	}
	if err := c.host.sessions.RevokeGrant(ctx, p.ID); err != nil {
		return c.wireError(err)
	}
	r(rpc.Empty{})
	return nil
}

// sees reports whether a grant was given in what the client may see.
func (c *caller) sees(id frames.GrantID) bool {
	for _, g := range c.host.sessions.Grants() {
		if g.ID == id {
			return c.within(g.Root)
		}
	}
	return false
}

func noGrant(id frames.GrantID) *rpc.Error {
	return rpc.Errorf(rpc.KindGrantNotFound, "there is no grant %.64q that this client may see; grants.list names those there are", string(id))
}
