package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Sizes of secrets, in bytes and in characters.
const (
	secretBytes = 32  // of randomness in a minted secret
	minSecret   = 32  // characters of one that is accepted
	maxSecret   = 512 // characters of one that is looked at
)

// NewSecret mints a token: 256 random bits as base64url.
func NewSecret() string {
	b := make([]byte, secretBytes)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the process instead
	return base64.RawURLEncoding.EncodeToString(b)
}

// ErrWeakSecret is wrapped by the errors of [CheckSecret].
var ErrWeakSecret = errors.New("auth: the token is not acceptable")

// CheckSecret refuses a token that is too short to be a secret or that could not
// travel in a header. Its error never contains the token.
func CheckSecret(s string) error {
	if len(s) < minSecret || len(s) > maxSecret {
		return fmt.Errorf("%w: it has %d characters, want %d to %d; make one with: head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '='", ErrWeakSecret, len(s), minSecret, maxSecret)
	}
	for i := range len(s) {
		if !secretByte(s[i]) {
			return fmt.Errorf("%w: character %d is not a letter, a digit or one of -._~+/=; use base64url", ErrWeakSecret, i+1)
		}
	}
	if distinct(s) < 8 {
		return fmt.Errorf("%w: it repeats fewer than 8 different characters; use random ones", ErrWeakSecret)
	}
	return nil
}

// secretByte reports whether c may stand in a bearer token (RFC 6750, 2.1).
func secretByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return slices.Contains([]byte("-._~+/="), c)
}

func distinct(s string) int {
	var seen [256]bool
	n := 0
	for i := range len(s) {
		if !seen[s[i]] {
			seen[s[i]] = true
			n++
		}
	}
	return n
}

// Token is one secret and what it stands for, as it is configured.
type Token struct {
	Secret string
	Principal
}

// Principal is who a request speaks for.
type Principal struct {
	// TokenID names the token, not its secret.
	TokenID string
	// Label is what a person calls it.
	Label string
	// Scopes granted, in the words of the wire.
	Scopes []string
	// Trees limits what is visible to these session trees; nil does not limit.
	Trees []string
	// Expires is when the token ends; zero is never.
	Expires time.Time
}

// over reports whether the token has ended.
func (p *Principal) over(now time.Time) bool { return !p.Expires.IsZero() && !now.Before(p.Expires) }

// digest is what is kept of a secret.
type digest [sha256.Size]byte

func digestOf(secret string) digest { return sha256.Sum256([]byte(secret)) }
