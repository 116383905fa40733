package host

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/auth"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/mux"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/store"
)

// Config says what a [Host] is made of. Store, one driver and one token are
// required; every other zero field means the default in its comment.
type Config struct {
	// Store keeps logs and rows. The host does not close it.
	Store store.Store
	// Drivers are the agents that sessions can run; their names must differ.
	Drivers []agent.Driver
	// DefaultAgent is used when session.create names none: the first driver's.
	DefaultAgent string

	// Token is a secret of at least 32 characters that grants everything, see
	// [NewToken]. Tokens are further ones, with less.
	Token  string
	Tokens []Token
	// AllowHosts are values of the Host header that are accepted beside loopback
	// names with the listener's port and the address a connection arrived on.
	// AllowOrigins are values of the Origin header that are accepted beside the
	// origins of these hosts. Both are compared exactly.
	AllowHosts, AllowOrigins []string
	// TLS, when set, is what [Host.Listen] speaks; without it, only loopback
	// addresses are listened on.
	TLS *tls.Config

	// BlobDir keeps blobs; "" keeps them in memory. BlobQuota bounds their sum
	// in bytes: 4 GiB.
	BlobDir   string
	BlobQuota int64

	// HostID names this host; "" mints one and stores it.
	HostID string
	// Name is what people call this host: "muxhost". Version is the program's:
	// "devel".
	Name, Version string
	// Env is what child processes of agents may see, as "name=value"; see
	// [AllowedEnv]. Nil gives them a PATH of the system's directories only.
	Env []string

	// Rules are what the operator adds to the policy of every session of an agent in
	// a directory, which is absolute and without symbolic links; nil adds nothing. The
	// mode "deny" wins, the smaller askTimeoutMs wins, and rules come behind those of
	// the client: a deny or ask rule holds whatever the client allows, and an allow
	// rule is the weakest, yet it also counts in a session whose mode is "deny". It is
	// called, from several goroutines, when a session is created, spawned, or
	// configured with a policy: an error refuses that, and its text is shown to the
	// client. For one that is spawned in another directory it is called with its parent's
	// directory first, whose refusals and restrictions hold for it, too. When a session wakes it is called again; it can only make what restricts
	// the session stricter then, and an error leaves the session as it is.
	Rules func(agent, cwd string) (frames.Policy, error)

	AskTimeout   time.Duration // 300 s: an approval that nobody answers is rejected
	IdleAfter    time.Duration // 5 min: a session that does nothing goes cold
	DrainTimeout time.Duration // 5 s: what is open stays answerable while the host goes down

	// Retention bounds what is kept of logs; zero keeps everything.
	Retention Retention

	MaxQueue  int // 64 prompts wait in one session
	MaxTree   int // 1000 sessions in one tree
	MaxDepth  int // 16 levels below a root
	SpawnRate int // 60 children a minute in one tree

	MaxConns         int // 256 client connections
	MaxConnsPerToken int // 64 of them with one token
	// MaxInFlight calls of one connection may be under way: 32.
	MaxInFlight int
	// Mux are the limits of client connections; its Logger is this one's.
	Mux mux.Config

	// Logger gets what people who run the host should know; nil discards. It
	// never gets prompts, tool input or tokens.
	Logger *slog.Logger
}

// Retention bounds what is kept of sessions' logs; zero fields bound nothing. A log
// over a bound by more than a tenth loses its oldest turns, until it is within the
// bound as far as the ends of turns allow: never what is running or waits, or the
// last event. What is dropped is folded into a base, so that who reads the session
// from its start sees the same as before. Bases count for no bound.
type Retention struct {
	// MaxAge is how long ago a turn that is kept may have ended.
	MaxAge time.Duration
	// MaxEvents and MaxBytes bound the events of one session.
	MaxEvents, MaxBytes int64
	// MaxTotalBytes bounds the events of all sessions in bytes; those that were
	// used least recently lose theirs first.
	MaxTotalBytes int64
}

// Token is a secret and what it grants.
type Token struct {
	// Secret has at least 32 characters of A-Z a-z 0-9 - . _ ~ + / =.
	Secret string
	// ID names the token in lists and limits; "" numbers it.
	ID string
	// Label is what its clients are called when they do not say.
	Label string
	// Scopes granted; at least one.
	Scopes []rpc.Scope
	// Trees limits what is visible to these sessions and their descendants; nil
	// does not limit.
	Trees []frames.SessionID
}

// NewToken mints a secret of 256 random bits.
func NewToken() string { return auth.NewSecret() }

// ErrConfig is wrapped by errors of [New] that a change of [Config] mends.
var ErrConfig = errors.New("host: the configuration does not do")

var agentName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

// withDefaults checks c and fills in what is zero.
func (c Config) withDefaults() (Config, error) {
	if c.Store == nil {
		return c, fmt.Errorf("%w: Store is nil; give one, such as store/mem's", ErrConfig)
	}
	if len(c.Drivers) == 0 {
		return c, fmt.Errorf("%w: Drivers is empty; give at least one agent driver", ErrConfig)
	}
	if c.DrainTimeout < 0 || c.AskTimeout < 0 || c.IdleAfter < 0 {
		return c, fmt.Errorf("%w: a timeout is negative; use 0 for the default", ErrConfig)
	}
	if r := c.Retention; min(int64(r.MaxAge), r.MaxEvents, r.MaxBytes, r.MaxTotalBytes) < 0 {
		return c, fmt.Errorf("%w: a bound of Retention is negative; use 0 to keep everything", ErrConfig)
	}
	if min(c.MaxQueue, c.MaxTree, c.MaxDepth, c.SpawnRate) < 0 {
		return c, fmt.Errorf("%w: MaxQueue, MaxTree, MaxDepth or SpawnRate is negative; use 0 for the default", ErrConfig)
	}
	c.DefaultAgent = cmp.Or(c.DefaultAgent, c.Drivers[0].Info().Name)
	c.Name = cmp.Or(auth.CleanLabel(c.Name), "muxhost")
	c.Version = cmp.Or(c.Version, "devel")
	c.AskTimeout = cmp.Or(c.AskTimeout, 300*time.Second)
	c.IdleAfter = cmp.Or(c.IdleAfter, 5*time.Minute)
	c.MaxQueue, c.MaxTree = cmp.Or(c.MaxQueue, 64), cmp.Or(c.MaxTree, 1000)
	c.MaxDepth, c.SpawnRate = cmp.Or(c.MaxDepth, 16), cmp.Or(c.SpawnRate, 60)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 5*time.Second)
	c.MaxConns = cmp.Or(c.MaxConns, 256)
	c.MaxConnsPerToken = cmp.Or(c.MaxConnsPerToken, 64)
	if c.Env == nil {
		c.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Mux.Logger = c.Logger
	return c, nil
}

// session returns the bounds as sessions know them.
func (r Retention) session() session.Retention {
	return session.Retention{MaxAge: r.MaxAge, MaxEvents: r.MaxEvents, MaxBytes: r.MaxBytes, MaxTotalBytes: r.MaxTotalBytes}
}

// drivers indexes the drivers by name.
func (c Config) drivers() (map[string]agent.Driver, error) {
	m := make(map[string]agent.Driver, len(c.Drivers))
	for _, d := range c.Drivers {
		name := d.Info().Name
		switch {
		case !agentName.MatchString(name):
			return nil, fmt.Errorf("%w: an agent is named %q; want lower case letters, digits and dashes", ErrConfig, name)
		case m[name] != nil:
			return nil, fmt.Errorf("%w: two agents are named %q; names must differ", ErrConfig, name)
		}
		m[name] = d
	}
	if m[c.DefaultAgent] == nil {
		return nil, fmt.Errorf("%w: DefaultAgent %q is none of the drivers", ErrConfig, c.DefaultAgent)
	}
	return m, nil
}

// tokens lists the tokens as auth knows them.
func (c Config) tokens() ([]auth.Token, error) {
	var out []auth.Token
	if c.Token != "" {
		out = append(out, auth.Token{Secret: c.Token, Principal: auth.Principal{TokenID: "main", Scopes: []string{string(rpc.ScopeAdmin)}}})
	}
	for i, t := range c.Tokens {
		p := auth.Principal{TokenID: cmp.Or(t.ID, fmt.Sprintf("token-%d", i+1)), Label: auth.CleanLabel(t.Label)}
		for _, s := range t.Scopes {
			if !slices.Contains(scopes, s) {
				return nil, fmt.Errorf("%w: token %s has the scope %q; want observe, answer, operate or admin", ErrConfig, p.TokenID, s)
			}
			p.Scopes = append(p.Scopes, string(s))
		}
		if len(p.Scopes) == 0 {
			return nil, fmt.Errorf("%w: token %s has no scope; give it one", ErrConfig, p.TokenID)
		}
		if t.Trees != nil {
			p.Trees = []string{}
		}
		for _, sid := range t.Trees {
			p.Trees = append(p.Trees, string(sid))
		}
		if slices.ContainsFunc(out, func(o auth.Token) bool { return o.TokenID == p.TokenID }) {
			return nil, fmt.Errorf("%w: two tokens are named %s; names must differ", ErrConfig, p.TokenID)
		}
		out = append(out, auth.Token{Secret: t.Secret, Principal: p})
	}
	return out, nil
}

// scopes are all scopes, weakest first.
var scopes = []rpc.Scope{rpc.ScopeObserve, rpc.ScopeAnswer, rpc.ScopeOperate, rpc.ScopeAdmin}

// AllowedEnv picks from environ what child processes of agents may see: search
// path, home, user, shell, terminal, temporary directory, time zone and locale.
// Nothing that could carry a secret of the host's is on the list.
func AllowedEnv(environ []string) []string {
	out := []string{}
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case slices.Contains([]string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LANGUAGE"}, name),
			strings.HasPrefix(name, "LC_"):
			out = append(out, kv)
		}
	}
	return out
}
