package acp

import (
	"cmp"
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
	slot chan struct{} // holds one while somebody sets options

	mu      sync.Mutex    // guards what follows; taken alone
	want    string        // "": none
	settled bool          // the agent has acknowledged want
	said    string        // the mode that it named last, while that is waited for
	busy    bool          // it is to be put back
	changed chan struct{} // closed when settled or busy has changed
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

// hold waits until nobody else sets options. The caller calls done.
func (g *guard) hold(ctx context.Context) (done func(), err error) {
	select {
	case g.slot <- struct{}{}:
		return func() { <-g.slot }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// calm waits until the agent has acknowledged the mode that it must be in.
func (g *guard) calm(ctx context.Context, gone <-chan struct{}) error {
	for {
		g.mu.Lock()
		fine, changed := g.want == "" || g.settled && !g.busy, g.changed
		g.mu.Unlock()
		if fine {
			return nil
		}
		select {
		case <-changed:
		case <-gone:
			return acprpc.ErrGone
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tell notes that settled or busy has changed. mu is held.
func (g *guard) tell() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// request notes that the agent is asked to be in a mode.
func (g *guard) request(mode string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.want, g.settled, g.said = mode, false, ""
	g.tell()
}

// acknowledge takes the agent's answer to that, and reports whether it is in the mode:
// it may have left it at once.
func (g *guard) acknowledge(mode string, answer json.RawMessage) (fine bool, err error) {
	var now struct {
		Options []configOption `json:"configOptions"`
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if json.Unmarshal(answer, &now) == nil && now.Options != nil {
		g.options = now.Options
	}
	for _, o := range now.Options {
		if is := acprpc.Plain(o.Current); o.is("mode") && !acprpc.IsNull(o.Current) && is != mode && slices.Contains(o.values(), mode) {
			return false, fmt.Errorf("the agent answers that it is in %q", is)
		}
	}
	if g.said != "" && g.said != mode {
		return false, nil
	}
	g.settled, g.busy = true, false
	g.tell()
	return true, nil
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

// setMode puts the agent into a mode and waits for its acknowledgement. One that leaves
// the mode meanwhile is put back.
func (l *link) setMode(ctx context.Context, mode string) error {
	for range maxDrifts {
		method, params, err := l.mode.modeCall(l.sessionID(), mode) // what was said before has its effect now
		if err != nil {
			return err
		}
		l.mode.request(mode)
		var answer json.RawMessage
		if err = l.conn.Call(ctx, method, params, &answer); err != nil {
			return fmt.Errorf("the mode %q could not be set: %w", mode, err)
		}
		fine, err := l.mode.acknowledge(mode, answer)
		if err != nil {
			return fmt.Errorf("the mode %q could not be set: %w", mode, err)
		}
		if fine {
			return nil
		}
	}
	return fmt.Errorf("the mode %q could not be set: the agent leaves it again and again", mode)
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
	switch {
	case now == "" || g.want == "":
		return false
	case !g.settled:
		g.said = now
		return false
	case now == g.want || g.busy:
		return false
	}
	g.busy = true
	g.tell()
	g.drifts++
	return true
}

var errMode = errors.New("acp: the agent left the mode in which it asks, and could not be put back; it was ended")

// reassert puts the agent back into its mode. Where that fails the agent is ended:
// in another mode it would act without asking.
func (l *link) reassert() {
	ctx, cancel := context.WithTimeout(l.ctx, modeTimeout)
	defer cancel()
	done, err := l.mode.hold(ctx)
	if err == nil {
		l.mode.mu.Lock()
		want, drifts := l.mode.want, l.mode.drifts
		l.mode.mu.Unlock()
		if err = l.setMode(ctx, want); drifts > maxDrifts {
			err = errMode
		}
		done()
	}
	if err != nil && l.alive() {
		l.modeless(err)
	}
}

// modeless ends an agent that is not in the mode in which it asks.
func (l *link) modeless(err error) {
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

// allowed are the modes that a session may be in; the first is the approval mode, or "".
func (o Options) allowed() []string { return append([]string{o.ApprovalMode}, o.Modes...) }

// modeOf is the mode that a session's config asks for: the approval mode where it asks
// for none.
func (o Options) modeOf(conf map[string]json.RawMessage) (string, error) {
	mode := acprpc.Plain(conf["mode"])
	if acprpc.IsNull(conf["mode"]) || mode == "" {
		return o.ApprovalMode, nil
	}
	if !slices.Contains(o.allowed(), mode) {
		return "", fmt.Errorf("the mode %q is not allowed here; allowed are: %s", mode, list(o.allowed()))
	}
	return mode, nil
}

// apply sets options of the agent's session. The approval mode is set last, so that
// nothing else can change it, also where one of the others fails.
func (l *link) apply(ctx context.Context, conf map[string]json.RawMessage) error {
	mode, err := l.opt.modeOf(conf)
	if err != nil {
		return err
	}
	done, err := l.mode.hold(ctx)
	if err != nil {
		return err
	}
	defer done()
	touched := false
	for _, key := range slices.Sorted(maps.Keys(conf)) {
		if key == "mode" {
			continue
		}
		var method string
		var params map[string]any
		if method, params, err = l.optionCall(key, conf[key]); err == nil {
			touched, err = true, l.setOption(ctx, method, params)
		}
		if err != nil {
			mode = cmp.Or(l.mode.current(), mode)
			break
		}
	}
	if mode == "" || err != nil && !touched {
		return err
	}
	return errors.Join(err, l.setMode(ctx, mode))
}

// reconfigure applies options to an agent that works. Where it does not take them it
// stays in the mode in which it was, or is ended.
func (l *link) reconfigure(ctx context.Context, conf map[string]json.RawMessage) error {
	before := l.mode.current()
	now := maps.Clone(conf)
	if _, ok := now["mode"]; !ok && before != "" {
		now["mode"] = acprpc.Marshal(before)
	}
	err := l.apply(ctx, now)
	if err != nil && l.mode.restore(before) {
		l.reassert()
	}
	return err
}

// restore makes mode the one in which the agent must be again, and reports whether it
// must be put there.
func (g *guard) restore(mode string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.settled && g.want == mode {
		return false
	}
	g.want, g.settled = mode, false
	g.tell()
	return mode != ""
}

// optionCall is the call that sets one option, by its id, or the model.
func (l *link) optionCall(key string, value json.RawMessage) (method string, params map[string]any, err error) {
	o, ok := l.mode.option(func(o configOption) bool { return o.ID == key })
	if !ok {
		o, ok = l.mode.option(func(o configOption) bool { return o.Category == key })
	}
	if ok && o.is("mode") {
		return "", nil, fmt.Errorf("the option %q is the mode; configure it as \"mode\"", key)
	}
	params = map[string]any{"sessionId": l.sessionID()}
	method = "session/set_config_option"
	switch {
	case ok:
		params["configId"], params["value"] = o.ID, value
		if o.Type == "boolean" {
			params["type"] = "boolean"
		} else if v := o.values(); len(v) > 0 && !slices.Contains(v, acprpc.Plain(value)) {
			return "", nil, fmt.Errorf("the agent's option %q cannot be %s; it offers: %s", key, value, list(v))
		}
	case key == "model" && l.mode.legacyModels():
		method = "session/set_model"
		params["modelId"] = value
	default:
		return "", nil, fmt.Errorf("the agent has no option %q; it offers: %s", key, list(l.mode.names()))
	}
	return method, params, nil
}

// setOption makes a call that sets an option.
func (l *link) setOption(ctx context.Context, method string, params map[string]any) error {
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
