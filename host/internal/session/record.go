package session

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// record is the row of a session in [store.TableSession]: what it takes to list
// and to wake the session without reading its log. A record is replaced, never
// changed.
type record struct {
	Agent     string            `json:"agent"`
	Cwd       string            `json:"cwd"`
	Title     string            `json:"title,omitempty"`
	Titled    bool              `json:"titled,omitempty"` // the title is the agent's
	Named     bool              `json:"named,omitempty"`  // a person named it: the agent does not any more
	Parent    frames.SessionID  `json:"parent,omitempty"`
	Root      frames.SessionID  `json:"root"`
	Depth     int               `json:"depth"`
	Origin    frames.Origin     `json:"origin"`
	CreatedAt frames.Time       `json:"createdAt"`
	UpdatedAt frames.Time       `json:"updatedAt"`
	Labels    map[string]string `json:"labels,omitempty"`
	Config    json.RawMessage   `json:"config,omitempty"`
	Options   json.RawMessage   `json:"options,omitempty"`
	Policy    *frames.Policy    `json:"policy,omitempty"`
	Own       *frames.Policy    `json:"own,omitempty"` // the client's policy, where that is not the whole
	Budget    *frames.Budget    `json:"budget,omitempty"`

	// Queue holds the prompts that wait, in order; their content is in the
	// rows of [store.TablePrompt].
	Queue []queued `json:"queue,omitempty"`
	// Contexts are the inject prompts that no turn has handed over yet.
	Contexts []frames.PromptID `json:"contexts,omitempty"`

	// Turn is the open turn; Spawned, Tasks and Asks are the children, the tasks
	// and the requests outside of turns whose end is not in the log. While any is
	// set the session is dirty: its log needs repair if the host stops now.
	Turn    *openTurn `json:"turn,omitempty"`
	Spawned []spawned `json:"spawned,omitempty"`
	Tasks   []task    `json:"tasks,omitempty"`
	Asks    []openAsk `json:"asks,omitempty"`

	Closed bool   `json:"closed,omitempty"`
	Turns  int64  `json:"turns,omitempty"`
	Tokens int64  `json:"tokens,omitempty"`
	Cost   string `json:"cost,omitempty"`
	// Said is the session's account as the agent said it last, Account by how
	// much it rose in all; Warned are the limits of the budget that were warned
	// of.
	Said    used     `json:"said,omitzero"`
	Account used     `json:"account,omitzero"`
	Warned  []string `json:"warned,omitempty"`
	Left    left     `json:"left,omitzero"`
}

// left is what descendants used that were deleted; it counts for budgets still.
type left struct {
	used
	Turns int64            `json:"turns,omitempty"`
	Last  frames.SessionID `json:"last"` // the child whose use was added last
}

// queued is a prompt that was accepted and has no turn yet.
type queued struct {
	ID   frames.PromptID   `json:"id"`
	Mode frames.PromptMode `json:"mode"`
	Turn frames.TurnID     `json:"turn"`
	By   *frames.By        `json:"by,omitempty"`
	// Steer says that it is still to be offered to the running turn.
	Steer bool `json:"steer,omitempty"`
}

// openTurn says where in the log the open turn begins.
type openTurn struct {
	ID    frames.TurnID `json:"id"`
	After frames.Seq    `json:"after"` // its first event is later
}

type spawned struct {
	Child frames.SessionID `json:"child"`
	Call  frames.CallID    `json:"call,omitempty"`
	Turn  frames.TurnID    `json:"turn"`
}

type task struct {
	ID   frames.TaskID `json:"id"`
	Turn frames.TurnID `json:"turn"`
}

// openAsk is a request outside of turns that is not decided.
type openAsk struct {
	ID       frames.RequestID `json:"id"`
	Question bool             `json:"question,omitempty"`
	Hash     string           `json:"hash,omitempty"` // of an approval's input
}

func (r *record) dirty() bool {
	return r.Turn != nil || len(r.Spawned)+len(r.Tasks)+len(r.Asks) > 0
}

// answered drops a request outside of turns; it is false if that was done before.
func (r *record) answered(id frames.RequestID) bool {
	n := len(r.Asks)
	r.Asks = slices.DeleteFunc(r.Asks, func(o openAsk) bool { return o.ID == id })
	return len(r.Asks) < n
}

// clone returns a copy whose lists may be changed.
func (r *record) clone() *record {
	c := *r
	c.Queue, c.Contexts = slices.Clone(r.Queue), slices.Clone(r.Contexts)
	c.Spawned, c.Tasks, c.Asks = slices.Clone(r.Spawned), slices.Clone(r.Tasks), slices.Clone(r.Asks)
	c.Labels = maps.Clone(r.Labels)
	return &c
}

// dequeue takes the prompt out of the queue.
func (r *record) dequeue(id frames.PromptID) {
	r.Queue = slices.DeleteFunc(r.Queue, func(q queued) bool { return q.ID == id })
}

// enqueue adds a prompt: a steer behind earlier steers and before the rest, so
// that neither overtakes another; anything else at the end.
func (r *record) enqueue(q queued) {
	at := len(r.Queue)
	if q.Mode == frames.ModeSteer {
		for at = 0; at < len(r.Queue) && r.Queue[at].Mode == frames.ModeSteer; at++ {
		}
	}
	r.Queue = slices.Insert(r.Queue, at, q)
}

// waiting returns the prompts whose content is still to be handed over.
func (r *record) waiting() []frames.PromptID {
	out := slices.Clone(r.Contexts)
	for _, q := range r.Queue {
		out = append(out, q.ID)
	}
	return out
}

// waits reports whether the content of a prompt is still to be handed over.
func (r *record) waits(id frames.PromptID) bool { return slices.Contains(r.waiting(), id) }

// row returns the record as a row.
func (r *record) row(sid frames.SessionID) (store.Row, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return store.Row{}, fmt.Errorf("session %s: its record: %w", sid, err)
	}
	return store.Row{Table: store.TableSession, Key: string(sid), Value: b}, nil
}

// readRecord decodes a row's value.
func readRecord(sid frames.SessionID, b []byte) (*record, error) {
	if b == nil {
		return nil, fmt.Errorf("session %s: %w: it has no record", sid, store.ErrCorrupt)
	}
	r := new(record)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("session %s: %w: its record: %v", sid, store.ErrCorrupt, err)
	}
	return r, nil
}

// summary returns what clients see of an idle session.
func (r *record) summary(sid frames.SessionID, head store.Head) frames.Session {
	return frames.Session{
		SessionID: sid, ParentSessionID: r.Parent, RootSessionID: r.Root, Depth: r.Depth,
		Origin: r.Origin, Agent: r.Agent, Cwd: r.Cwd, Title: r.Title, State: frames.StateIdle,
		Head: head.Seq, Epoch: head.Epoch, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, Labels: r.Labels,
	}
}

// promptRow is the row of a prompt in [store.TablePrompt]; it lives as long as
// the session.
type promptRow struct {
	Hash   string            `json:"hash"`
	Mode   frames.PromptMode `json:"mode"`
	Turn   frames.TurnID     `json:"turn,omitempty"`
	Queued bool              `json:"queued,omitempty"`
	// Content is there until the agent was handed it.
	Content []frames.ContentBlock `json:"content,omitempty"`
}

func promptKey(sid frames.SessionID, id frames.PromptID) string {
	return string(sid) + "/" + string(id)
}

func (p promptRow) row(sid frames.SessionID, id frames.PromptID) (store.Row, error) {
	b, err := json.Marshal(p)
	if err != nil {
		return store.Row{}, fmt.Errorf("session %s: prompt %s: %w", sid, id, err)
	}
	return store.Row{Table: store.TablePrompt, Key: promptKey(sid, id), Value: b}, nil
}

// promptHash tells whether two prompts say the same.
func promptHash(mode frames.PromptMode, content []frames.ContentBlock) (string, error) {
	b, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("prompt: %w", err)
	}
	sum := sha256.Sum256(append([]byte(mode+"\x00"), b...))
	return hex.EncodeToString(sum[:]), nil
}
