package client

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
)

// Question is one thing to ask an agent, for [Query].
type Question struct {
	// Agent is the one to ask; "" is the host's default. Cwd, an absolute
	// directory of the host's machine, is where it works.
	Agent, Cwd string
	// Text is the prompt; Content are further blocks, such as images.
	Text    string
	Content []frames.ContentBlock
	// Create says the rest of the session: policy, budget, labels, config.
	Create rpc.CreateParams
	// Approve decides on a tool call of the agent or its children; nil rejects
	// all. What names the request is filled in afterwards. It is called from the
	// goroutine of Query, one request at a time, as is Answer.
	Approve func(context.Context, *frames.ApprovalRequested) rpc.ApprovalParams
	// Answer answers a question of the agent; nil, and no answers, cancel it.
	Answer func(context.Context, *frames.QuestionRequested) []frames.Answer
	// Watch is told of every frame.
	Watch func(frames.Frame)
}

// Result is what came of a [Question].
type Result struct {
	SessionID frames.SessionID
	TurnID    frames.TurnID
	// Text is the assistant's last message.
	Text string
	// Reason is why the turn ended, Message what was said about it.
	Reason  frames.TurnEndReason
	Message string
	Usage   *frames.Usage
	// View is the session as far as it was seen; nil if it never was.
	View *frames.View
}

// Query asks one question in a session of its own and blocks until its turn has
// ended. It connects, and comes back when the connection breaks. The session stays
// on the host. The error is that of [Dial], of a call, of ctx, or a *[TurnError];
// the result holds what is known. Whatever ends the query before its turn has
// ended cancels that.
func Query(ctx context.Context, o Options, q Question) (Result, error) {
	c, err := Dial(ctx, o)
	if err != nil {
		return Result{}, err
	}
	defer c.Close()
	p := q.Create
	p.Agent, p.Cwd = cmp.Or(q.Agent, p.Agent), cmp.Or(q.Cwd, p.Cwd)
	s, err := c.Open(ctx, p)
	if err != nil {
		return Result{}, err
	}
	turn, err := s.Prompt(ctx, q.Text, q.Content...)
	if err == nil {
		_, err = s.Wait(ctx, turn, func(f frames.Frame) error { return q.see(ctx, c, f) })
	}
	if _, over := errors.AsType[*TurnError](err); err != nil && !over {
		c.abandon(ctx, s.ID)
	}
	return resultOf(s, turn), err
}

// abandonTime bounds the cancelling of a turn that nobody waits for.
const abandonTime = 5 * time.Second

// abandon cancels what runs in a session, also once ctx has ended. A host that is
// away ends it by its own rules.
func (c *Client) abandon(ctx context.Context, sid frames.SessionID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTime)
	defer cancel()
	_, _ = c.Cancel(ctx, rpc.CancelParams{SessionID: sid})
}

func resultOf(s *Session, turn frames.TurnID) Result {
	r := Result{SessionID: s.ID, TurnID: turn, View: s.View()}
	if r.View == nil {
		return r
	}
	for _, t := range r.View.Turns {
		if t.TurnID == turn {
			r.Reason, r.Message, r.Usage = t.Reason, t.Message, t.Usage
		}
	}
	for _, it := range r.View.Items {
		if it.Kind == frames.ItemAssistant && !it.Void && it.TurnID == turn {
			r.Text = plain(it.Content)
		}
	}
	return r
}

// plain joins the text of blocks.
func plain(blocks []frames.ContentBlock) string {
	var s strings.Builder
	for _, b := range blocks {
		if b.Type == "text" {
			s.WriteString(b.Text)
		}
	}
	return s.String()
}

// see answers what f asks.
func (q *Question) see(ctx context.Context, c *Client, f frames.Frame) error {
	if q.Watch != nil {
		q.Watch(f)
	}
	switch f := f.(type) {
	case *frames.ApprovalRequested:
		p := rpc.ApprovalParams{Outcome: frames.Rejected, Feedback: "nobody was asked: this program answers by itself"}
		if q.Approve != nil {
			p = q.Approve(ctx, f)
		}
		p.SessionID, p.ID = f.SessionID, f.ID
		return settled(c.Respond(ctx, p))
	case *frames.QuestionRequested:
		p := rpc.QuestionParams{SessionID: f.SessionID, ID: f.ID}
		if q.Answer != nil {
			p.Answers = q.Answer(ctx, f)
		}
		p.Cancel = len(p.Answers) == 0
		return settled(c.Answer(ctx, p))
	}
	return nil
}

// settled drops errors that say that a request was settled otherwise, or that the
// connection broke: then it comes again with the baseline, if it still waits.
func settled(err error) error {
	if _, ok := errors.AsType[*LostError](err); ok {
		return nil
	}
	if e, ok := errors.AsType[*rpc.Error](err); ok && (e.Kind == rpc.KindApprovalNotPending || e.Kind == rpc.KindQuestionNotPending) {
		return nil
	}
	return err
}
