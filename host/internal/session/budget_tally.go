package session

import "github.com/muxhost/muxhost/frames"

// used is an amount of tokens (input and output) and money.
type used struct {
	Tokens int64  `json:"tokens,omitempty"`
	Cost   string `json:"cost,omitempty"` // a decimal number, exact
}

// usedOf returns what an agent says that it used. What is no amount counts
// nothing: it neither wears out nor refills a budget.
func usedOf(u *frames.Usage) used {
	if u == nil {
		return used{}
	}
	n := used{Tokens: min(max(u.InputTokens, 0), frames.MaxInteger) + min(max(u.OutputTokens, 0), frames.MaxInteger)}
	if isMoney(u.Cost) {
		n.Cost = u.Cost
	}
	return n
}

func (u used) plus(o used) used {
	return used{min(u.Tokens+o.Tokens, frames.MaxInteger-1), addMoney(u.Cost, o.Cost)}
}

// minus returns by how much u is more than o.
func (u used) minus(o used) used {
	return used{max(u.Tokens-o.Tokens, 0), lessMoney(u.Cost, o.Cost)}
}

// most returns the larger of each.
func (u used) most(o used) used {
	if compareMoney(o.Cost, u.Cost) > 0 {
		u.Cost = o.Cost
	}
	u.Tokens = max(u.Tokens, o.Tokens)
	return u
}

// tally adds up what is said of the use of one turn. Agents may tell of the same
// use in several ways, so the largest account of them counts.
type tally struct {
	steps, models, messages used // sums over the events of one kind
	result                  used // of the turn's end
	rise                    used // by which the session's account rose
	said                    used // the session's account, as it was last said
}

// take counts what an event says. Payloads are pointers to those of frames.
func (t *tally) take(p any) {
	switch p := p.(type) {
	case *frames.StepEnd:
		t.steps = t.steps.plus(usedOf(p.Usage))
	case *frames.ModelEnd:
		u := usedOf(p.Usage)
		if isMoney(p.Cost) {
			u = u.most(used{Cost: p.Cost})
		}
		t.models = t.models.plus(u)
	case *frames.AssistantMessage:
		t.messages = t.messages.plus(usedOf(p.Usage))
	case *frames.UsageUpdated:
		u := usedOf(&p.Usage)
		t.rise = t.rise.plus(rise(t.said, u))
		t.said = u
	}
}

// rise returns how much an account rose. One that fell began anew.
func rise(was, is used) used {
	r := is.minus(was)
	if is.Tokens < was.Tokens {
		r.Tokens = is.Tokens
	}
	if compareMoney(is.Cost, was.Cost) < 0 {
		r.Cost = is.Cost
	}
	return r
}

// total returns what the turn used.
func (t *tally) total() used {
	return t.steps.most(t.models).most(t.messages).most(t.result).most(t.rise)
}

// measured lists the events that say what was used.
func measured(t frames.EventType) bool {
	switch t {
	case frames.StepEndEvent, frames.ModelEndEvent, frames.AssistantMessageEvent, frames.UsageUpdatedEvent:
		return true
	}
	return false
}

// spending returns what the session used, with a turn that is not over.
func (r *record) spending(t *tally) used {
	u, account := used{r.Tokens, r.Cost}, r.Account
	if t != nil {
		u, account = u.plus(t.total()), account.plus(t.rise)
	}
	return u.most(account)
}

// spend adds to the record what a turn used. An account that is told between
// turns counts as far as it says more than the turns did.
func (r *record) spend(t *tally) {
	u := r.spending(t)
	r.Tokens, r.Cost = u.Tokens, u.Cost
	r.Account, r.Said = r.Account.plus(t.rise), t.said
}
