package auth

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// Bounds of the login cookies: their age, and how many there may be. When there
// are too many, the one that expires first goes.
const (
	loginAge  = 12 * time.Hour
	maxLogins = 256
)

// logins maps the digests of cookie values to whom they stand for.
type logins struct {
	mu   sync.Mutex // guards all below
	live map[digest]login
}

type login struct {
	who     Principal
	expires time.Time
}

// add mints a cookie value for who, good until expires.
func (l *logins) add(who Principal, now, expires time.Time) string {
	value := NewSecret()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live == nil {
		l.live = map[digest]login{}
	}
	maps.DeleteFunc(l.live, func(_ digest, v login) bool { return !now.Before(v.expires) })
	if len(l.live) >= maxLogins {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(l.live)), func(a, b digest) int {
			return cmp.Compare(l.live[a].expires.UnixNano(), l.live[b].expires.UnixNano())
		})
		delete(l.live, oldest)
	}
	l.live[digestOf(value)] = login{who: who, expires: expires}
	return value
}

// drop forgets the logins of tokens.
func (l *logins) drop(tokens []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.live, func(_ digest, v login) bool { return slices.Contains(tokens, v.who.TokenID) })
}

// find returns whom a cookie value stands for. The map is keyed by digests, so its
// timing tells nothing of a value that the caller does not know.
func (l *logins) find(value string, now time.Time) (Principal, bool) {
	if value == "" || len(value) > maxSecret {
		return Principal{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	v, ok := l.live[digestOf(value)]
	if !ok || !now.Before(v.expires) {
		return Principal{}, false
	}
	return v.who, true
}
