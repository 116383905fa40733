package session

import (
	"errors"
	"fmt"
	"slices"

	"github.com/muxhost/muxhost/frames"
)

// expense is what a session used in all.
type expense struct {
	used
	turns int64
}

// checkBudget checks a budget that a client names.
func checkBudget(b *frames.Budget) error {
	switch {
	case b == nil:
		return nil
	case b.Tokens < 0 || b.Turns < 0:
		return &ParamError{"budget", "want no negative numbers; 0 does not limit"}
	case b.Cost != "" && !isMoney(b.Cost):
		return &ParamError{"budget.cost", fmt.Sprintf(`want a decimal number of at most %d digits in a string, such as "2.50"`, maxMoney)}
	case b.Action != "" && b.Action != "block" && b.Action != warns:
		return &ParamError{"budget.action", fmt.Sprintf("want block or warn, got %q", b.Action)}
	}
	return nil
}

// warns is the action of a budget that stops nothing.
const warns = "warn"

// reached returns which limit of b is reached, "" for none. That of turns is
// reached where a further one is to begin.
func reached(b *frames.Budget, x expense, begins bool) string {
	switch {
	case b == nil:
		return ""
	case begins && b.Turns > 0 && x.turns >= b.Turns:
		return "turns"
	case b.Tokens > 0 && x.Tokens >= b.Tokens:
		return "tokens"
	case b.Cost != "" && compareMoney(x.Cost, b.Cost) >= 0:
		return "cost"
	}
	return ""
}

// covers refuses work that the budgets of the session or of an ancestor do not
// cover: what children use counts towards all above them. begins says that a turn
// is to begin.
func (m *Manager) covers(e *entry, begins bool) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return e.covered(begins)
}

// covered is covers where mu is held.
func (e *entry) covered(begins bool) error {
	for p := e; p != nil; p = p.parent {
		if p.budget == nil || p.budget.Action == warns {
			continue
		}
		if what := reached(p.budget, p.total(), begins); what != "" {
			return &BudgetError{p.id, what}
		}
	}
	return nil
}

// total is what the session and all below it used. mu is held.
func (e *entry) total() expense {
	return expense{e.spent.plus(e.spentBelow.used), e.spent.turns + e.spentBelow.turns}
}

// charge makes known what the session used by now, to itself and all above. It
// returns the budgets that only warn and have to, and why the running turn has to
// end: it used more of what was used up already. mu is held.
func (a *actor) charge(c *commit, events []frames.Event) (warn []*BudgetError, stop error) {
	if c.next == nil && !slices.ContainsFunc(events, func(e frames.Event) bool { return measured(e.Type) }) {
		return nil, nil
	}
	e := a.e
	var t *tally
	if a.turn != nil {
		t = &a.turn.tally
	}
	own := expense{a.rec.spending(t), a.rec.Turns}
	more := expense{own.used.minus(e.spent.used), max(own.turns-e.spent.turns, 0)}
	e.budget, e.warned = a.rec.Budget, a.rec.Warned
	if more == (expense{}) {
		return nil, nil
	}
	for p := e; p != nil; p = p.parent {
		if what := p.overspent(more.used); what != "" && stop == nil {
			stop = &BudgetError{p.id, what}
		}
		if p == e {
			p.spent = own
		} else {
			p.spentBelow = expense{p.spentBelow.plus(more.used), p.spentBelow.turns + more.turns}
		}
		if what := p.due(); what != "" {
			p.warned = append(slices.Clone(p.warned), what)
			warn = append(warn, &BudgetError{p.id, what})
		}
	}
	return warn, stop
}

// overspent returns the limit that was reached before more of it was used, ""
// for none. mu is held.
func (e *entry) overspent(more used) string {
	if e.budget == nil || e.budget.Action == warns {
		return ""
	}
	b := frames.Budget{}
	if more.Tokens > 0 {
		b.Tokens = e.budget.Tokens
	}
	if more.Cost != "" {
		b.Cost = e.budget.Cost
	}
	return reached(&b, e.total(), false)
}

// due returns a limit that was passed and has to be warned of, "" for none. mu is
// held.
func (e *entry) due() string {
	if e.budget == nil || e.budget.Action != warns {
		return ""
	}
	x := e.total()
	x.turns-- // the turn that makes it full is within the budget
	for _, b := range []frames.Budget{{Turns: e.budget.Turns}, {Tokens: e.budget.Tokens}, {Cost: e.budget.Cost}} {
		if what := reached(&b, x, true); what != "" && !slices.Contains(e.warned, what) {
			return what
		}
	}
	return ""
}

// told acts on what charge returned, beside the actor.
func (a *actor) told(warn []*BudgetError, stop error) {
	m := a.m
	for _, w := range warn {
		m.wg.Go(func() { m.warn(w) })
	}
	if t := a.turn; t != nil && stop != nil && t.outcome == nil {
		m.wg.Go(func() { m.overdraw(t, stop) })
	}
}

// warn says in the log of a session, once, that a limit of its budget is reached.
func (m *Manager) warn(w *BudgetError) {
	step := func(a *actor) error {
		if a.rec.Budget == nil || slices.Contains(a.rec.Warned, w.What) {
			return nil
		}
		c := &commit{next: a.rec.clone()}
		if a.turn != nil {
			c.turn = a.turn.id
		}
		c.add(frames.ErrorReported{Code: "budget-exceeded", Message: fmt.Sprintf(
			"the budget of %s is used up; the session goes on, since its budget only warns", w.What)})
		c.next.Warned = append(slices.Clone(c.next.Warned), w.What)
		return a.commit(c)
	}
	err := m.bare(w.Session, func(a *actor) error {
		if err := a.ready(); err != nil {
			return err
		}
		return step(a)
	})
	if err != nil { // it is due at the next use still
		m.log.Warn("a budget's warning could not be stored", "session", string(w.Session), "error", err)
	}
}

// bequeath leaves what a session and all below it used to its parent, which is stored
// before the session is deleted: budgets above count it after a restart too.
func (m *Manager) bequeath(sid frames.SessionID) error {
	m.mu.RLock()
	var x expense
	var p *entry
	if e := m.dir.byID[sid]; e != nil {
		x, p = e.total(), e.parent
	}
	m.mu.RUnlock()
	if p == nil || x == (expense{}) {
		return nil
	}
	err := m.bare(p.id, func(a *actor) error {
		if err := a.ready(); err != nil {
			return err
		}
		return a.inherit(sid, x)
	})
	if errors.Is(err, ErrNoSession) {
		return nil // deleted meanwhile
	}
	return err
}

// inherit adds to the record what a child used that is about to be deleted. In
// memory it is counted already.
func (a *actor) inherit(child frames.SessionID, x expense) error {
	next := a.rec.clone()
	if next.Left.Last == child {
		return nil // an earlier try to delete it failed
	}
	next.Left = left{next.Left.plus(x.used), next.Left.Turns + x.turns, child}
	row, err := next.row(a.id)
	if err != nil {
		return err
	}
	if err := a.m.cfg.Store.Put(a.m.io, row); err != nil {
		return &StorageError{err}
	}
	a.rec = next
	return nil
}

// step refuses a further model or tool step of a turn whose budgets are used up.
// The turn ends with that.
func (t *turn) step() error {
	err := t.a.m.covers(t.a.e, false)
	if err != nil {
		t.a.m.overdraw(t, err)
	}
	return err
}

// steps reports whether a payload begins a step.
func steps(p frames.Payload) bool {
	if p == nil {
		return false
	}
	t := p.EventType()
	return t == frames.StepStartEvent || t == frames.ModelStartEvent
}

// overdraw ends a turn, and what it caused, because a budget is used up.
func (m *Manager) overdraw(t *turn, why error) {
	s := newMark(nil, true)
	s.mk.reason, s.mk.why = frames.TurnBudgetExceeded, why
	m.mu.Lock()
	if t.a.e.turn == t {
		s.mark(t, s.mk)
		s.markBelow(t)
	}
	s.order()
	m.mu.Unlock()
	m.settle(s)
}
