package rpc

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"github.com/sourcegraph/jsonrpc2"
)

// call is one call in flight.
type call struct {
	conn   *conn
	method *method
	id     jsonrpc2.ID
	rawID  []byte // as the client wrote it; points into the message
	inv    invocation
	lane   laneKey
	// holds is true while the call holds its lane.
	holds atomic.Bool
	// answered is true once the answer has its place, or none is due.
	answered atomic.Bool
	// returned is true once the method has returned.
	returned atomic.Bool
}

// invocation is a method with its params decoded.
type invocation interface {
	lane(method string) laneKey
	// do runs the method. Unless it returns an error, it has answered.
	do(ctx context.Context, api API, cl *call) error
}

// run runs the call in the outermost frame: a panic of the method ends here.
func (cl *call) run(ctx context.Context) {
	defer cl.finish()
	if err := cl.inv.do(ctx, cl.conn.api, cl); err != nil {
		cl.fail(ctx, err)
		return
	}
	if !cl.answered.Load() {
		cl.fail(ctx, errNoReply)
	}
}

// runChange runs a call that changes something: it is finished even when the
// connection ends.
func (cl *call) runChange(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ChangeTimeout)
	defer cancel()
	cl.run(ctx)
}

// runBulk runs a call with a large result: one at a time, and only while the
// stream has room, so that results do not pile up.
func (cl *call) runBulk(ctx context.Context) {
	select {
	case cl.conn.bulk <- struct{}{}:
	case <-ctx.Done():
		cl.drop()
		return
	}
	defer func() { <-cl.conn.bulk }()
	if err := cl.conn.stream.Room(ctx); err != nil {
		cl.drop()
		return
	}
	cl.run(ctx)
}

// finish recovers a panic of the method and closes the call.
func (cl *call) finish() {
	if v := recover(); v != nil {
		stack := debug.Stack()
		logID := cl.conn.logInternal(cl.method.Name, slog.Any("panic", v), slog.String("stack", string(stack)))
		if f := cl.conn.opt.OnPanic; f != nil {
			f(cl.method.Name, v, stack)
		}
		cl.answerFault(internalFault(logID))
	}
	cl.returned.Store(true)
}

// claim takes the one right to answer. The id is free for the client from here.
func (cl *call) claim() bool {
	if !cl.answered.CompareAndSwap(false, true) {
		return false
	}
	cl.conn.ids.remove(cl.id)
	return true
}

// drop ends a call that gets no answer, because its connection is over.
func (cl *call) drop() { cl.claim(); cl.returned.Store(true) }

// reply answers with result. A method that replies twice panics; a reply that
// comes after the method returned is only logged.
func (cl *call) reply(result any) {
	msg, err := appendResult(nil, cl.rawID, result)
	if err != nil {
		msg = appendError(nil, cl.rawID, internalFault(cl.conn.logInternal(cl.method.Name, slog.Any("error", err))))
	}
	if cl.claim() {
		cl.conn.send(msg)
		return
	}
	cl.extraReply()
}

// encode is reply for a method that places the message itself.
func (cl *call) encode(result any) []byte {
	msg, err := appendResult(nil, cl.rawID, result)
	if err != nil {
		msg = appendError(nil, cl.rawID, internalFault(cl.conn.logInternal(cl.method.Name, slog.Any("error", err))))
	}
	if !cl.claim() {
		cl.extraReply()
	}
	return msg
}

func (cl *call) extraReply() {
	if cl.returned.Load() {
		cl.conn.logInternal(cl.method.Name, slog.String("error", "reply after the method returned"))
		return
	}
	panic(fmt.Sprintf("rpc: %s replied twice; a call has one answer", cl.method.Name))
}

// fail answers with err. After a reply it is only logged; when the connection is
// over, a cancelled call gets no answer.
func (cl *call) fail(ctx context.Context, err error) {
	if cl.answered.Load() {
		cl.conn.logInternal(cl.method.Name, slog.Any("error", err), slog.Bool("replied", true))
		return
	}
	if ctx.Err() != nil && cl.conn.ctx.Err() != nil {
		cl.drop()
		return
	}
	f, known := faultOf(err)
	if !known {
		f = internalFault(cl.conn.logInternal(cl.method.Name, slog.Any("error", err)))
	}
	cl.answerFault(f)
}

func (cl *call) answerFault(f *fault) {
	if cl.claim() {
		cl.conn.send(appendError(nil, cl.rawID, f))
	}
}

// logInternal logs what the client must not see and returns the id that it may.
func (c *conn) logInternal(method string, attrs ...any) string {
	id := rand.Text()[:12]
	c.opt.Logger.With(attrs...).Error("internal error", slog.String("logId", id), slog.String("method", method))
	return id
}
