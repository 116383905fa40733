package pending_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/pending"
)

// How much the model check does.
const (
	modelIDs     = 2000
	modelClients = 8
)

// ended is how a request ended, as an agent or a late client is told it.
type ended struct {
	outcome frames.Outcome
	cause   frames.Cause
	by      frames.ClientID
}

// op is one operation of a history. try is what it settles the request as, if
// it is the first; none for an operation that only learns how it ended.
type op struct {
	id  int
	try ended
	// learns says that the caller is told the outcome.
	learns bool
}

// model is one id of the table, done one operation after the other: who comes
// first settles it, and whoever learns an outcome learns that one.
func model() porcupine.Model {
	return porcupine.Model{
		Partition: func(h []porcupine.Operation) [][]porcupine.Operation {
			parts := make([][]porcupine.Operation, modelIDs)
			for _, o := range h {
				i := o.Input.(op).id
				parts[i] = append(parts[i], o)
			}
			return parts
		},
		Init: func() any { return ended{} },
		Step: func(state, input, output any) (bool, any) {
			st, in, told := state.(ended), input.(op), output.(ended)
			if st == (ended{}) {
				st = in.try
				if st == (ended{}) {
					return false, st
				}
			}
			return !in.learns || told == st, st
		},
		Equal: func(a, b any) bool { return a == b },
	}
}

// history is what happened, by one clock.
type history struct {
	clock atomic.Int64
	mu    sync.Mutex
	ops   []porcupine.Operation
}

// add runs do as one operation of a client.
func (h *history) add(client int, in op, do func() (op, ended)) {
	call := h.clock.Add(1)
	in2, out := do()
	ret := h.clock.Add(1)
	in2.id = in.id
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in2, Call: call, Output: out, Return: ret})
}

// run plays one random history against a table and returns it.
func run(ctx context.Context, seed uint64, prepare func(*pending.Table)) []porcupine.Operation {
	tab := pending.New(pending.Config{MaxOpenEach: modelIDs})
	prepare(tab)
	var h history
	var wg, agents sync.WaitGroup
	withdraw := make([]context.CancelFunc, modelIDs)
	open := make([]chan struct{}, modelIDs)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for i := range modelIDs {
		actx, cancel := context.WithCancel(ctx)
		withdraw[i], open[i] = cancel, make(chan struct{})
		r := modelRequest(i, rnd)
		agents.Go(func() { agent(actx, &h, tab, i, r, open[i]) })
	}
	for c := range modelClients {
		mine := rand.New(rand.NewPCG(seed, uint64(c+1)))
		wg.Go(func() {
			for i := range modelIDs {
				<-open[i]
				client(ctx, &h, tab, c, i, mine.IntN(10), withdraw[i])
			}
		})
	}
	wg.Wait()
	_ = tab.Shutdown(ctx)
	agents.Wait()
	for _, cancel := range withdraw {
		cancel()
	}
	return h.ops
}

// modelRequest is request i; some have a deadline that comes while clients answer.
func modelRequest(i int, rnd *rand.Rand) pending.Request {
	r := approval(frames.RequestID(fmt.Sprint(i)))
	r.Turn = frames.TurnID(r.ID)
	if rnd.IntN(4) == 0 {
		r.ExpiresAt = time.Now().Add(time.Duration(rnd.IntN(200)) * time.Millisecond)
	}
	return r
}

// agent asks. Its own withdrawal, its deadline and the shutdown may settle the
// request at any moment while it waits: the operation is then the one that
// settled it.
func agent(ctx context.Context, h *history, tab *pending.Table, i int, r pending.Request, open chan struct{}) {
	h.add(modelClients+i, op{id: i}, func() (op, ended) {
		s, _ := tab.Ask(ctx, r, &recorder{}, func(context.Context) error { close(open); return nil })
		got := told(s)
		switch s.Cause {
		case frames.CauseTimeout, frames.CauseAbort, frames.CauseShutdown:
			return op{try: got, learns: true}, got
		}
		return op{learns: true}, got
	})
}

// client does one thing to request i: mostly it answers.
func client(ctx context.Context, h *history, tab *pending.Table, c, i, dice int, withdraw context.CancelFunc) {
	id := frames.RequestID(fmt.Sprint(i))
	switch dice {
	case 0:
		withdraw()
	case 1:
		h.add(c, op{id: i}, func() (op, ended) {
			tab.CancelTurn(ctx, "s1", frames.TurnID(id), frames.CauseCascade)
			return op{try: ended{frames.Cancelled, frames.CauseCascade, ""}}, ended{}
		})
	default:
		h.add(c, op{id: i}, func() (op, ended) { return answer(ctx, tab, id, c, dice) })
	}
}

// answer answers, and says what it was told.
func answer(ctx context.Context, tab *pending.Table, id frames.RequestID, c, dice int) (op, ended) {
	o := []frames.Outcome{frames.AllowedOnce, frames.Rejected}[dice%2]
	by := frames.ClientID(fmt.Sprint("client ", c))
	mine := ended{o, frames.CauseReply, by}
	err := tab.Answer(ctx, reply(id, o, by), nil)
	if err == nil {
		return op{try: mine, learns: true}, mine
	}
	e, ok := errors.AsType[*pending.NotPendingError](err)
	if !ok || e.Settled == nil {
		return op{learns: true}, ended{outcome: "lost"}
	}
	got := told(*e.Settled)
	if e.Settled.Cause == frames.CauseTimeout {
		return op{try: got, learns: true}, got // the answer itself may find the deadline passed
	}
	return op{learns: true}, got
}

func told(s pending.Settlement) ended {
	e := ended{outcome: s.Outcome, cause: s.Cause}
	if s.By != nil {
		e.by = s.By.ClientID
	}
	return e
}

// Random histories of answers, withdrawals, cancels and deadlines look as if
// each operation had happened alone: one judge.
func TestTableIsLinearizable(t *testing.T) {
	for seed := range uint64(3) {
		ops := run(t.Context(), seed, func(tab *pending.Table) { tab.SetYield(runtime.Gosched) })
		if !porcupine.CheckOperations(model(), ops) {
			t.Errorf("seed %d: the history of %d operations is not linearizable", seed, len(ops))
		}
		census(t, ops)
	}
}

// census fails if a history does not hold every way to settle.
func census(t *testing.T, ops []porcupine.Operation) {
	t.Helper()
	n := make(map[frames.Cause]int)
	late := 0
	for _, o := range ops {
		if o.ClientId >= modelClients {
			n[o.Output.(ended).cause]++
		} else if in := o.Input.(op); in.learns && in.try == (ended{}) {
			late++
		}
	}
	t.Logf("%d operations, %d late answers, settled by %v", len(ops), late, n)
	for _, c := range []frames.Cause{frames.CauseReply, frames.CauseTimeout, frames.CauseAbort, frames.CauseCascade} {
		if n[c] == 0 {
			t.Errorf("no request was settled by %s", c)
		}
	}
	if late == 0 {
		t.Error("no answer was late")
	}
}

// A table that checks first and claims afterwards is caught by the same check,
// in at least nine of ten runs.
func TestModelCheckCatchesCheckThenAct(t *testing.T) {
	caught := 0
	for seed := range uint64(10) {
		ops := run(t.Context(), seed, func(tab *pending.Table) { tab.SetGap(runtime.Gosched) })
		if !porcupine.CheckOperations(model(), ops) {
			caught++
		}
	}
	t.Logf("caught %d of 10", caught)
	if caught < 9 {
		t.Errorf("caught %d of 10 runs, want at least 9", caught)
	}
}
