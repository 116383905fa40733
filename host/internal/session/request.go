package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// request is a create or a fork that may be repeated: its id, and the digest of
// what was asked. The zero request cannot be.
type request struct{ id, digest string }

// asked is what a repeated create has to ask again.
func (c CreateArgs) asked() any {
	return struct {
		Agent, Cwd, Title string
		Parent            frames.SessionID
		Config            json.RawMessage `json:",omitempty"`
		Policy            *frames.Policy
		Budget            *frames.Budget
		Labels            map[string]string
	}{c.Agent, c.Cwd, c.Title, c.Parent, c.Config, c.Policy, c.Budget, c.Labels}
}

// asked is what a repeated fork has to ask again.
func (f ForkArgs) asked() any {
	return struct {
		Fork  frames.SessionID
		At    *frames.Seq
		Title string
	}{f.Session, f.At, f.Title}
}

// reserve waits until no other call uses the request id, which may be "".
func (m *Manager) reserve(ctx context.Context, id string, asked any) (r request, done func(), err error) {
	if id == "" {
		return request{}, func() {}, nil
	}
	if len(id) > maxName {
		return request{}, nil, &ParamError{"requestId", fmt.Sprintf("want at most %d bytes, got %d", maxName, len(id))}
	}
	b, err := json.Marshal(asked)
	if err != nil {
		return request{}, nil, &ParamError{"config", "want JSON: " + err.Error()}
	}
	sum := sha256.Sum256(b)
	r = request{id: id, digest: hex.EncodeToString(sum[:])}
	for {
		m.mu.Lock()
		other := m.creating[id]
		if other == nil {
			mine := make(chan struct{})
			m.creating[id] = mine
			m.mu.Unlock()
			return r, func() {
				m.mu.Lock()
				delete(m.creating, id)
				m.mu.Unlock()
				close(mine)
			}, nil
		}
		m.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return request{}, nil, context.Cause(ctx)
		}
	}
}

// created returns the session that an earlier call of the request made.
func (m *Manager) created(ctx context.Context, r request) (s frames.Session, ok bool, err error) {
	if r.id == "" {
		return s, false, nil
	}
	v, err := m.cfg.Store.Get(ctx, store.TableHost, r.key())
	if err != nil {
		return s, false, &StorageError{err}
	}
	if v == nil {
		return s, false, nil
	}
	sid, digest, _ := strings.Cut(string(v), "\n")
	if s, ok = m.Get(frames.SessionID(sid)); !ok {
		if s, ok, err = m.find(ctx, frames.SessionID(sid)); err != nil || !ok {
			return s, false, err
		}
	}
	if digest != r.digest {
		return frames.Session{}, false, ErrRequestConflict
	}
	return s, true, nil
}

func (r request) key() string { return "create/" + r.id }

// rows say which session the request made.
func (r request) rows(sid frames.SessionID) []store.Row {
	if r.id == "" {
		return nil
	}
	return []store.Row{{Table: store.TableHost, Key: r.key(), Value: []byte(string(sid) + "\n" + r.digest)}}
}
