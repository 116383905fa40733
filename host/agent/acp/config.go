package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

// subagentKey is the key of a session's config that names a subagent.
const subagentKey = "acpSubagent"

const (
	// modeTimeout bounds putting an agent back into its approval mode.
	modeTimeout = 30 * time.Second
	// maxDrifts is how often an agent may leave its mode before it is ended.
	maxDrifts = 8
)

// decodeConfig reads a session's config and its later options: "model", "mode", and
// any option of the agent by its id. token names a subagent.
func decodeConfig(config, options json.RawMessage) (token string, conf map[string]json.RawMessage, err error) {
	conf = map[string]json.RawMessage{}
	for _, raw := range []json.RawMessage{config, options} {
		if acprpc.IsNull(raw) {
			continue
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal(raw, &m); err != nil {
			return "", nil, fmt.Errorf("acp: the session's config is no JSON object: %w", err)
		}
		maps.Copy(conf, m)
	}
	token = acprpc.Plain(conf[subagentKey])
	delete(conf, subagentKey)
	return token, conf, nil
}

// guard is what is known of the agent's modes and options, and which mode it must
// be in.
type guard struct {
	modes []string // those that are allowed; the first is the approval mode, or ""

	mu      sync.Mutex // guards what follows; taken alone
	want    string     // "": none
	settled bool       // the agent has acknowledged want
	busy    bool       // it is being put back
	drifts  int
	known   *modeState
	models  *modelState
	options []configOption
}

// learn takes what the answer to a new or loaded session says.
func (g *guard) learn(o opened) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settled, g.known, g.models = false, o.Modes, o.Models
	if o.Options != nil {
		g.options = o.Options
	}
}

// option finds an option by its id or category.
func (g *guard) option(match func(configOption) bool) (configOption, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.IndexFunc(g.options, match); i >= 0 {
		return g.options[i], true
	}
	return configOption{}, false
}

// modeCall is the call that sets a mode in the agent's session.
func (g *guard) modeCall(session, mode string) (method string, params map[string]any, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var offered []string
	if g.known != nil {
		for _, m := range g.known.Available {
			if m.ID == mode {
				return "session/set_mode", map[string]any{"sessionId": session, "modeId": mode}, nil
			}
			offered = append(offered, m.ID)
		}
	}
	for _, o := range g.options {
		if !o.is("mode") {
			continue
		}
		if slices.Contains(o.values(), mode) {
			return "session/set_config_option", map[string]any{"sessionId": session, "configId": o.ID, "value": mode}, nil
		}
		offered = append(offered, o.values()...)
	}
	return "", nil, fmt.Errorf("the agent has no mode %q; it offers: %s", mode, list(offered))
}

func list(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	slices.Sort(words)
	return strings.Join(slices.Compact(words), ", ")
}

// setMode puts the agent into a mode and waits for its acknowledgement.
func (l *link) setMode(ctx context.Context, mode string) error {
	method, params, err := l.mode.modeCall(l.sessionID(), mode)
	if err != nil {
		return err
	}
	l.mode.mu.Lock()
	l.mode.want, l.mode.settled = mode, false
	l.mode.mu.Unlock()
	if err := l.conn.Call(ctx, method, params, nil); err != nil {
		return fmt.Errorf("the mode %q could not be set: %w", mode, err)
	}
	l.mode.mu.Lock()
	defer l.mode.mu.Unlock()
	l.mode.settled = true
	return nil
}

// sessionID is the id of the main session.
func (l *link) sessionID() (id string) {
	_ = l.lane.do(l.ctx, func() {
		if l.main != nil {
			id = l.main.id
		}
	})
	return id
}

// modeUpdate takes what the agent says of its mode and options. A mode that was not
// asked for is put right.
func (l *link) modeUpdate(th *thread, u update) {
	if th != l.main {
		return
	}
	if l.mode.drifted(u) {
		l.wg.Go(l.reassert)
	}
}

// drifted learns from an update, and reports whether the mode must be put right.
func (g *guard) drifted(u update) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := u.text("currentModeId")
	var options []configOption
	if u.kind == "config_option_update" && json.Unmarshal(u.fields["configOptions"], &options) == nil {
		g.options = options
		for _, o := range options {
			if o.is("mode") {
				now = acprpc.Plain(o.Current)
			}
		}
	}
	if now == "" || g.want == "" || now == g.want || !g.settled || g.busy {
		return false
	}
	g.busy = true
	g.drifts++
	return true
}

var errMode = errors.New("acp: the agent left the mode in which it asks, and could not be put back; it was ended")

// reassert puts the agent back into its mode. Where that fails the agent is ended:
// in another mode it would act without asking.
func (l *link) reassert() {
	l.mode.mu.Lock()
	want, drifts := l.mode.want, l.mode.drifts
	l.mode.mu.Unlock()
	ctx, cancel := context.WithTimeout(l.ctx, modeTimeout)
	defer cancel()
	err := l.setMode(ctx, want)
	if drifts > maxDrifts {
		err = errMode
	}
	l.mode.mu.Lock()
	l.mode.busy = false
	l.mode.mu.Unlock()
	if err == nil || !l.alive() {
		return
	}
	_ = l.lane.do(l.ctx, func() {
		for _, th := range l.threads {
			if th.turn != nil {
				th.turn.cancel(errMode)
			}
		}
	})
	l.s.Background.Failed(fmt.Sprintf("%v (%v)", errMode, err))
	l.d.failed(l.e, errMode.Error())
	l.e.condemn(errMode.Error())
}

// apply sets options of the agent's session. The approval mode is set last, so that
// nothing else can change it.
func (l *link) apply(ctx context.Context, conf map[string]json.RawMessage) error {
	mode := l.mode.modes[0]
	for _, key := range slices.Sorted(maps.Keys(conf)) {
		if key == "mode" {
			mode = acprpc.Plain(conf[key])
			continue
		}
		if err := l.setOption(ctx, key, conf[key]); err != nil {
			return err
		}
	}
	if mode == "" {
		return nil
	}
	if !slices.Contains(l.mode.modes, mode) {
		return fmt.Errorf("the mode %q is not allowed here; allowed are: %s", mode, list(slices.Clone(l.mode.modes)))
	}
	return l.setMode(ctx, mode)
}

// setOption sets one option, by its id, or the model.
func (l *link) setOption(ctx context.Context, key string, value json.RawMessage) error {
	o, ok := l.mode.option(func(o configOption) bool { return o.ID == key })
	if !ok {
		o, ok = l.mode.option(func(o configOption) bool { return o.Category == key })
	}
	if ok && o.is("mode") {
		return fmt.Errorf("the option %q is the mode; configure it as \"mode\"", key)
	}
	params := map[string]any{"sessionId": l.sessionID()}
	method := "session/set_config_option"
	switch {
	case ok:
		params["configId"], params["value"] = o.ID, value
		if o.Type == "boolean" {
			params["type"] = "boolean"
		} else if v := o.values(); len(v) > 0 && !slices.Contains(v, acprpc.Plain(value)) {
			return fmt.Errorf("the agent's option %q cannot be %s; it offers: %s", key, value, list(v))
		}
	case key == "model" && l.mode.legacyModels():
		method = "session/set_model"
		params["modelId"] = value
	default:
		return fmt.Errorf("the agent has no option %q; it offers: %s", key, list(l.mode.names()))
	}
	var now struct {
		Options []configOption `json:"configOptions"`
	}
	if err := l.conn.Call(ctx, method, params, &now); err != nil {
		return err
	}
	if now.Options != nil {
		l.mode.mu.Lock()
		defer l.mode.mu.Unlock()
		l.mode.options = now.Options
	}
	return nil
}

// legacyModels reports whether the agent lists its models in the old way, in which
// they are set by a call of their own.
func (g *guard) legacyModels() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.models != nil
}

// current is the mode that the agent must be in, "" for any.
func (g *guard) current() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.want
}

// names are what can be configured.
func (g *guard) names() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	names := []string{"mode"}
	for _, o := range g.options {
		if !o.is("mode") {
			names = append(names, o.ID)
		}
	}
	return names
}
