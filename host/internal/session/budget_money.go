package session

import (
	"cmp"
	"math/big"
	"strings"
)

// maxMoney bounds an amount that an agent names, in characters.
const maxMoney = 32

// isMoney reports whether s is an amount: digits with at most one point. No sign,
// no exponent, no more digits than money has.
func isMoney(s string) bool {
	whole, part, _ := strings.Cut(s, ".")
	digits := whole + part
	return digits != "" && len(s) <= maxMoney && strings.Trim(digits, "0123456789") == ""
}

// scaled returns an amount as a whole number of 10^-digits; what is no amount is
// nothing.
func scaled(s string, digits int) *big.Int {
	whole, part, _ := strings.Cut(s, ".")
	n, ok := new(big.Int).SetString(whole+part+strings.Repeat("0", digits-len(part)), 10)
	if !ok {
		return new(big.Int)
	}
	return n
}

// decimals returns how many digits stand behind the point.
func decimals(s string) int {
	_, part, _ := strings.Cut(s, ".")
	return len(part)
}

// addMoney returns a+b, exactly.
func addMoney(a, b string) string {
	d := max(decimals(a), decimals(b))
	n := scaled(a, d)
	return money(n.Add(n, scaled(b, d)), d)
}

// lessMoney returns a-b, exactly, or nothing where b is more.
func lessMoney(a, b string) string {
	d := max(decimals(a), decimals(b))
	n := scaled(a, d)
	if n.Sub(n, scaled(b, d)).Sign() < 0 {
		return ""
	}
	return money(n, d)
}

// compareMoney compares two amounts; "" is nothing.
func compareMoney(a, b string) int {
	d := max(decimals(a), decimals(b))
	return scaled(a, d).Cmp(scaled(b, d))
}

// money writes n times 10^-d; nothing is "".
func money(n *big.Int, d int) string {
	if n.Sign() == 0 {
		return ""
	}
	s := n.String()
	if len(s) <= d {
		s = strings.Repeat("0", d-len(s)+1) + s
	}
	whole, part := s[:len(s)-d], strings.TrimRight(s[len(s)-d:], "0")
	if part == "" {
		return whole
	}
	return cmp.Or(whole, "0") + "." + part
}
