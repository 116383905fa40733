package llm

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/muxhost/muxhost/frames"
)

// Price is what a model costs: decimal strings, per million tokens.
type Price struct {
	Input, Output string
	// CacheRead is the price of prompt tokens that came from a cache, default
	// Input.
	CacheRead string
	// Currency is default "USD".
	Currency string
}

// rates is a price that was checked.
type rates struct {
	input, output, cached *big.Rat
	currency              string
}

func (p Price) rates() (*rates, error) {
	r := &rates{currency: p.Currency}
	if r.currency == "" {
		r.currency = "USD"
	}
	if p.CacheRead == "" {
		p.CacheRead = p.Input
	}
	for _, f := range []struct {
		to   **big.Rat
		from string
	}{{&r.input, p.Input}, {&r.output, p.Output}, {&r.cached, p.CacheRead}} {
		x, ok := decimal(f.from)
		if !ok {
			return nil, fmt.Errorf("the price %q is no decimal number of at least 0", f.from)
		}
		*f.to = x
	}
	return r, nil
}

// decimal parses digits with at most one point; "" is 0.
func decimal(s string) (*big.Rat, bool) {
	if s == "" {
		return new(big.Rat), true
	}
	if len(s) > 40 || strings.Trim(s, "0123456789.") != "" {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// cost returns what u costs, exactly.
func (r *rates) cost(u *wireUsage) string {
	cached := min(max(u.PromptTokensDetails.CachedTokens, 0), u.PromptTokens)
	sum := new(big.Rat)
	for _, x := range []struct {
		tokens int64
		rate   *big.Rat
	}{{u.PromptTokens - cached, r.input}, {cached, r.cached}, {u.CompletionTokens, r.output}} {
		sum.Add(sum, new(big.Rat).Mul(new(big.Rat).SetInt64(x.tokens), x.rate))
	}
	return money(sum.Quo(sum, big.NewRat(1_000_000, 1)))
}

// money writes a number whose denominator divides a power of ten.
func money(x *big.Rat) string {
	digits, _ := x.FloatPrec()
	s := x.FloatString(digits)
	return s
}

// add adds what a model used to a sum.
func add(sum, u frames.Usage) frames.Usage {
	sum.InputTokens += u.InputTokens
	sum.OutputTokens += u.OutputTokens
	sum.CacheReadTokens += u.CacheReadTokens
	sum.ContextTokens, sum.ContextWindow = u.ContextTokens, u.ContextWindow
	if u.Cost == "" {
		return sum
	}
	a, ok := decimal(sum.Cost)
	b, ok2 := decimal(u.Cost)
	if ok && ok2 {
		sum.Cost = money(a.Add(a, b))
		sum.Currency = u.Currency
	}
	return sum
}
