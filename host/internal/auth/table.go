package auth

import (
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// MaxMinted bounds the tokens that were made while hosts ran and still hold.
const MaxMinted = 1000

// What callers of [Table] branch on.
var (
	// ErrUnknownToken means that no token has this id, or none that holds.
	ErrUnknownToken = errors.New("auth: there is no such token")
	// ErrConfigured means that the token is of the host's own configuration.
	ErrConfigured = errors.New("auth: the token is configured")
	// ErrTooManyTokens means that there are [MaxMinted] tokens already.
	ErrTooManyTokens = errors.New("auth: too many tokens")
)

// Minted is a token that was made while a host ran, as it is stored: of its secret
// there is only the digest.
type Minted struct {
	ID     string `json:"id"`
	Digest string `json:"digest"` // SHA-256 of the secret, in hex
	Label  string `json:"label"`
	// Scopes granted, in the words of the wire.
	Scopes []string `json:"scopes"`
	// Trees limits what is visible; null does not limit.
	Trees []string `json:"trees"`
	// MadeBy is the id of the token that made it, MakerDigest that one's digest: a
	// token of the configuration keeps its id when its secret is replaced, and is
	// another then.
	MadeBy      string    `json:"madeBy"`
	MakerDigest string    `json:"makerDigest"`
	CreatedAt   time.Time `json:"createdAt"`
	ExpiresAt   time.Time `json:"expiresAt,omitzero"`
}

// Digest returns what a [Minted] keeps of a secret.
func Digest(secret string) string { d := digestOf(secret); return hex.EncodeToString(d[:]) }

// Info describes a token in a list. MadeBy is "" for those of the configuration.
type Info struct {
	Principal
	MadeBy    string
	CreatedAt time.Time
}

// standing is what a token is good for.
type standing uint8

const (
	configured standing = iota // holds as long as the host runs
	reserved                   // is being stored, and does not hold yet
	minted                     // holds
	revoked                    // holds no more, and is being removed
)

type entry struct {
	digest   digest
	who      Principal
	standing standing
	madeBy   string
	created  time.Time
}

func (e *entry) holds(now time.Time) bool {
	return (e.standing == configured || e.standing == minted) && !e.who.over(now)
}

// Table knows the tokens by their digests: those of the configuration, and those
// that were made since, each by one that held. It is safe for concurrent use and
// does no I/O; storing is the caller's business, between Reserve and Activate, and
// between Revoke and Forget.
type Table struct {
	mu      sync.RWMutex
	entries []*entry // guarded by mu, oldest first
}

// NewTable checks tokens and keeps their digests. It refuses an empty list: a host
// without a token would answer nobody, or worse, everybody.
func NewTable(tokens []Token) (*Table, error) {
	if len(tokens) == 0 {
		return nil, errors.New("auth: no token is configured; give at least one")
	}
	t := &Table{}
	for i, tok := range tokens {
		if err := CheckSecret(tok.Secret); err != nil {
			return nil, fmt.Errorf("token %d: %w", i+1, err)
		}
		d := digestOf(tok.Secret)
		if t.find(d) != nil {
			return nil, fmt.Errorf("auth: token %d is the same as an earlier one; every token needs its own secret", i+1)
		}
		p := tok.Principal
		p.Scopes, p.Trees = slices.Clone(p.Scopes), slices.Clone(p.Trees)
		t.entries = append(t.entries, &entry{digest: d, who: p})
	}
	return t, nil
}

// Lookup returns whom secret stands for. Its time does not depend on how much of
// the secret is right, nor on which entry it is.
func (t *Table) Lookup(secret string) (Principal, bool) {
	if len(secret) < minSecret || len(secret) > maxSecret {
		return Principal{}, false
	}
	d := digestOf(secret)
	t.mu.RLock()
	defer t.mu.RUnlock()
	e := t.find(d)
	if e == nil || !e.holds(time.Now()) {
		return Principal{}, false
	}
	return e.who, true
}

// find compares d with every entry, always with all of them.
func (t *Table) find(d digest) *entry {
	at := -1
	for i, e := range t.entries {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(e.digest[:], d[:]), i, at)
	}
	if at < 0 {
		return nil
	}
	return t.entries[at]
}

func (t *Table) byID(id string) *entry {
	i := slices.IndexFunc(t.entries, func(e *entry) bool { return e.who.TokenID == id })
	if i < 0 {
		return nil
	}
	return t.entries[i]
}

// Holds reports whether the token of this id holds now.
func (t *Table) Holds(id string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e := t.byID(id)
	return e != nil && e.holds(time.Now())
}

// Of returns whom the token of this id stands for, and its digest, if it holds.
func (t *Table) Of(id string) (who Principal, digest string, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if e := t.byID(id); e != nil && e.holds(time.Now()) {
		return e.who, hex.EncodeToString(e.digest[:]), true
	}
	return Principal{}, "", false
}

// Reserve takes in a new token, which holds once it is activated. Its maker must
// hold ([ErrUnknownToken]); there is room for [MaxMinted] ([ErrTooManyTokens]).
func (t *Table) Reserve(m Minted) error {
	d, err := hex.DecodeString(m.Digest)
	if err != nil || len(d) != len(digest{}) {
		return fmt.Errorf("auth: the digest of token %s is %q, want a SHA-256 in hex", m.ID, m.Digest)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	maker := t.byID(m.MadeBy)
	switch {
	case maker == nil || !maker.holds(time.Now()):
		return ErrUnknownToken
	case t.byID(m.ID) != nil:
		return fmt.Errorf("auth: two tokens have the id %s; ids must differ", m.ID)
	case t.minted() >= MaxMinted:
		return ErrTooManyTokens
	}
	t.entries = append(t.entries, &entry{
		digest: digest(d), standing: reserved, madeBy: m.MadeBy, created: m.CreatedAt,
		who: Principal{TokenID: m.ID, Label: m.Label, Scopes: m.Scopes, Trees: m.Trees, Expires: m.ExpiresAt},
	})
	return nil
}

func (t *Table) minted() (n int) {
	for _, e := range t.entries {
		if e.standing != configured {
			n++
		}
	}
	return n
}

// Activate lets a reserved token hold, and reports whether it does: not when it, or
// a token that made it, was revoked meanwhile.
func (t *Table) Activate(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byID(id)
	if e == nil || e.standing != reserved {
		return false
	}
	e.standing = minted
	return true
}

// Revoke ends a token and those it made, at once and all together, and returns
// their ids: nothing that looks one up later finds it. They stay in lists until
// [Table.Forget], and can be revoked again. Errors: [ErrUnknownToken],
// [ErrConfigured].
func (t *Table) Revoke(id string) ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byID(id)
	switch {
	case e == nil:
		return nil, ErrUnknownToken
	case e.standing == configured:
		return nil, ErrConfigured
	}
	var ids []string
	for _, e := range t.entries {
		if e.standing != configured && t.made(id, e) {
			e.standing = revoked
			ids = append(ids, e.who.TokenID)
		}
	}
	return ids, nil
}

// made reports whether e is the token of this id, or was made by it or by one that
// it made.
func (t *Table) made(id string, e *entry) bool {
	for e != nil && e.who.TokenID != id {
		e = t.byID(e.madeBy) // "" of a configured one is nobody's
	}
	return e != nil
}

// Reaches reports whether the token id is maker, or was made by it or by one that it
// made.
func (t *Table) Reaches(maker, id string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.made(maker, t.byID(id))
}

// Forget removes tokens that are revoked or reserved, once they are stored no more.
func (t *Table) Forget(ids ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries = slices.DeleteFunc(t.entries, func(e *entry) bool {
		return (e.standing == revoked || e.standing == reserved) && slices.Contains(ids, e.who.TokenID)
	})
}

// Expire removes the tokens that have ended by now, and returns their ids.
func (t *Table) Expire(now time.Time) (ids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries = slices.DeleteFunc(t.entries, func(e *entry) bool {
		over := e.standing == minted && e.who.over(now)
		if over {
			ids = append(ids, e.who.TokenID)
		}
		return over
	})
	return ids
}

// List returns the tokens that hold or could not be removed yet, oldest first;
// those of the configuration come first.
func (t *Table) List() []Info {
	now := time.Now()
	t.mu.RLock()
	var out []Info
	for _, e := range t.entries {
		if e.holds(now) || e.standing == revoked {
			out = append(out, Info{Principal: e.who, MadeBy: e.madeBy, CreatedAt: e.created})
		}
	}
	t.mu.RUnlock()
	slices.SortStableFunc(out, func(a, b Info) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return out
}
