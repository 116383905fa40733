package editor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

// page is how many sessions session/list gives at once.
const page = 50

// initialize learns who the editor is and connects to the host in its name.
func (b *bridge) initialize(in acprpc.Inbound) {
	if b.dialed {
		b.conn.Reject(in.ID, acprpc.CodeBadID, "initialize: it was called already")
		return
	}
	if err := params(in, &b.editor); err != nil {
		b.conn.Reject(in.ID, acprpc.CodeBadParams, "initialize: "+err.Error())
		return
	}
	b.dialed = true
	label := b.editor.label()
	b.beside(func(ctx context.Context) func() {
		c, err := b.o.Dial(ctx, label, b.state)
		var d rpc.DescribeResult
		if err == nil {
			d, err = c.Describe(ctx)
		}
		return func() {
			b.host = c
			if err != nil {
				b.fail(in, err)
				b.fatal = err
				return
			}
			b.wg.Go(b.pump)
			for _, a := range d.Agents {
				b.agents[a.Name] = a.Kind == "acp"
			}
			b.conn.Reply(in.ID, b.capabilities())
		}
	})
}

func (b *bridge) capabilities() obj {
	return obj{
		"protocolVersion": 1,
		"agentInfo":       obj{"name": "muxhost", "title": "muxhost", "version": first(b.o.Version, "devel")},
		"authMethods":     []obj{},
		"agentCapabilities": obj{
			"loadSession":         true,
			"promptCapabilities":  obj{"image": true, "audio": false, "embeddedContext": true},
			"mcpCapabilities":     obj{"http": false, "sse": false},
			"sessionCapabilities": obj{"list": obj{}, "resume": obj{}, "close": obj{}, "fork": obj{}},
		},
	}
}

// newSession makes a session, or the first time opens that of the options.
func (b *bridge) newSession(in acprpc.Inbound, p sessionParams) error {
	if !filepath.IsAbs(p.Cwd) {
		return fmt.Errorf("cwd is %q, want an absolute directory", p.Cwd)
	}
	if b.o.Session != "" && !b.opened {
		b.openNamed(in, p)
		return nil
	}
	create := rpc.CreateParams{Agent: b.o.Agent, Cwd: p.Cwd, RequestID: rand.Text()}
	b.answer(in, func(ctx context.Context) (func(), error) {
		s, err := again(ctx, func() (frames.Session, error) { return b.host.Create(ctx, create) })
		return func() {
			b.attach(in, s.SessionID, func(th *thread) {
				b.conn.Reply(in.ID, th.answer(p))
				b.ignored(th, p)
				th.present()
			})
		}, err
	})
	return nil
}

// openNamed opens the session of the options.
func (b *bridge) openNamed(in acprpc.Inbound, p sessionParams) {
	b.answer(in, func(ctx context.Context) (func(), error) {
		sid, err := frames.SessionID(b.o.Session), error(nil)
		if b.o.Find != nil {
			sid, err = again(ctx, func() (frames.SessionID, error) { return b.o.Find(ctx, b.host, b.o.Session) })
		}
		return func() {
			b.attach(in, sid, func(th *thread) {
				b.opened = true
				b.conn.Reply(in.ID, th.answer(p))
				b.ignored(th, p)
				th.history()
			})
		}, err
	})
}

// again repeats a call that can be repeated while connections break.
func again[R any](ctx context.Context, call func() (R, error)) (R, error) {
	for {
		r, err := call()
		if _, lost := errors.AsType[*client.LostError](err); !lost || ctx.Err() != nil {
			return r, err
		}
	}
}

// ignored tells of what the editor asked for and does not get.
func (b *bridge) ignored(th *thread, p sessionParams) {
	if len(p.MCP) > 0 {
		b.log.Warn("MCP servers of the editor are not started: the host's configuration says what its agents have",
			slog.Int("servers", len(p.MCP)), slog.String("session", string(th.id)))
	}
}

// loadSession sends a session from its start, then answers.
func (b *bridge) loadSession(in acprpc.Inbound, p sessionParams) error {
	b.attach(in, p.SessionID, func(th *thread) {
		th.history()
		b.conn.Reply(in.ID, th.answer(p))
		b.ignored(th, p)
	})
	return nil
}

// resumeSession goes on with a session without its past.
func (b *bridge) resumeSession(in acprpc.Inbound, p sessionParams) error {
	b.attach(in, p.SessionID, func(th *thread) {
		b.conn.Reply(in.ID, th.answer(p))
		b.ignored(th, p)
		th.present()
	})
	return nil
}

// forkSession copies a session and opens the copy.
func (b *bridge) forkSession(in acprpc.Inbound, p sessionParams) error {
	fork := rpc.ForkParams{SessionID: p.SessionID, RequestID: rand.Text()}
	b.answer(in, func(ctx context.Context) (func(), error) {
		s, err := again(ctx, func() (frames.Session, error) { return b.host.Fork(ctx, fork) })
		return func() {
			b.attach(in, s.SessionID, func(th *thread) {
				b.conn.Reply(in.ID, th.answer(p))
				b.ignored(th, p)
				th.present()
			})
		}, err
	})
	return nil
}

// listSessions lists the host's sessions, newest first; children belong to theirs.
func (b *bridge) listSessions(in acprpc.Inbound, p sessionParams) error {
	list := rpc.ListParams{Roots: true, Cwd: p.Cwd, Cursor: p.Cursor, Limit: page}
	if real, err := filepath.EvalSymlinks(p.Cwd); p.Cwd != "" && err == nil {
		list.Cwd = real
	}
	b.answer(in, func(ctx context.Context) (func(), error) {
		res, err := b.host.List(ctx, list)
		return func() {
			out := []obj{}
			for _, s := range res.Sessions {
				row := obj{
					"sessionId": s.SessionID, "cwd": s.Cwd, "updatedAt": s.UpdatedAt,
					"_meta": obj{"muxhost": obj{"agent": s.Agent, "state": s.State, "pending": s.Pending + s.PendingBelow}},
				}
				set(row, "title", s.Title)
				out = append(out, row)
			}
			answer := obj{"sessions": out}
			set(answer, "nextCursor", res.Next)
			b.conn.Reply(in.ID, answer)
		}, err
	})
	return nil
}

// closeSession detaches: the session goes on for those who use it.
func (b *bridge) closeSession(in acprpc.Inbound, p sessionParams) error {
	th := b.threads[p.SessionID]
	if th == nil || !th.own && th.opening == nil {
		b.conn.Reply(in.ID, obj{})
		return nil
	}
	if th.parent != nil {
		th.end(nil)
		b.conn.Reply(in.ID, obj{})
		return nil
	}
	b.drop(th, nil)
	b.leaving[th.id] = nil
	b.beside(func(ctx context.Context) func() {
		err := b.host.Unsubscribe(ctx, rpc.UnsubscribeParams{Sessions: []frames.SessionID{th.id}})
		return func() { b.left(in, th.id, err) }
	})
	return nil
}

// left answers a session/close, and goes on with what waited for it.
func (b *bridge) left(in acprpc.Inbound, sid frames.SessionID, err error) {
	if err != nil {
		b.fail(in, err)
	} else {
		b.conn.Reply(in.ID, obj{})
	}
	waits := b.leaving[sid]
	delete(b.leaving, sid)
	for _, f := range waits {
		f()
	}
}

// drop forgets a session and those below it. What the editor waits for in them is
// answered: with err, or, where that is nil, as the editor closed them.
func (b *bridge) drop(th *thread, err error) {
	for id, other := range b.threads {
		if other.below(th) {
			other.withdrawCards()
			other.end(err)
			delete(b.dirty, other)
			delete(b.threads, id)
		}
	}
}

// setMode changes the mode of a session's policy, for everybody. The rest of the
// policy is read just before, since it is replaced as a whole.
func (b *bridge) setMode(in acprpc.Inbound, p sessionParams) error {
	if !slices.Contains([]string{modeAsk, modeDeny}, p.Mode) {
		return fmt.Errorf("modeId is %q, want %s or %s", p.Mode, modeAsk, modeDeny)
	}
	b.answer(in, func(ctx context.Context) (func(), error) {
		done := func() { b.conn.Reply(in.ID, obj{}) }
		got, err := b.host.Get(ctx, rpc.GetParams{SessionID: p.SessionID, View: true})
		if err != nil {
			return nil, err
		}
		v := frames.NewView()
		if err := v.UnmarshalJSON(got.View); err != nil {
			return nil, fmt.Errorf("the view of the session: %w", err)
		}
		var policy frames.Policy
		if v.Policy != nil {
			policy = *v.Policy
		}
		policy.Mode = p.Mode
		_, err = again(ctx, func() (frames.Session, error) {
			return b.host.Configure(ctx, rpc.ConfigureParams{SessionID: p.SessionID, Policy: &policy})
		})
		return done, err
	})
	return nil
}
