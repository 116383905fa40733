package frames

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
)

// ErrGap reports a durable event whose predecessor was never applied to a
// [View]. The event was applied; the view lacks what came between.
var ErrGap = errors.New("frames: a durable event was missed")

// View is the fold: the state of one session as a pure function of its events
// and, for a client, of the frames that it was pushed. It is used by one
// goroutine. It marshals to JSON, always the same bytes for the same state, and
// unmarshals to a view that goes on from there.
//
// Durable events make everything but [View.Live], Gaps, Lagging, Epoch and the
// cards of [View.Pending]; [View.Durable] leaves those out.
type View struct {
	// Seq is the last durable event applied.
	Seq    Seq          `json:"seq"`
	Status SessionState `json:"status"`
	Epoch  Epoch        `json:"epoch,omitempty"`

	Title           string     `json:"title,omitempty"`
	Agent           string     `json:"agent,omitempty"`
	Cwd             string     `json:"cwd,omitempty"`
	Origin          Origin     `json:"origin,omitempty"`
	ParentSessionID SessionID  `json:"parentSessionId,omitempty"`
	RootSessionID   SessionID  `json:"rootSessionId,omitempty"`
	Depth           int        `json:"depth"`
	CallID          CallID     `json:"callId,omitempty"`
	ForkedFrom      *ForkPoint `json:"forkedFrom,omitempty"`
	CreatedAt       Time       `json:"createdAt,omitzero"`
	// Closed says that a client closed the session and nothing woke it since.
	Closed bool `json:"closed,omitempty"`

	Labels  map[string]string          `json:"labels,omitempty"`
	Config  json.RawMessage            `json:"config,omitempty"`
	Options map[string]json.RawMessage `json:"options,omitempty"`
	Policy  *Policy                    `json:"policy,omitempty"`
	Budget  *Budget                    `json:"budget,omitempty"`
	Model   string                     `json:"model,omitempty"`

	// TurnID is the open turn, "" when none is.
	TurnID   TurnID    `json:"turnId,omitempty"`
	Turns    []Turn    `json:"turns"`
	Items    []*Item   `json:"items"`
	Todos    []Todo    `json:"todos"`
	Usage    *Usage    `json:"usage,omitempty"`
	Commands []Command `json:"commands"`

	// Gaps says that a live delta was missed, so that what [View.Live] shows is
	// short; the next `session/live` mends it.
	Gaps bool `json:"gaps,omitempty"`
	// Lagging says that the host withholds live events from this client.
	Lagging bool `json:"lagging,omitempty"`

	pending    list[RequestID, Pending]
	children   list[SessionID, Child]
	tasks      list[TaskID, Task]
	queue      list[PromptID, QueuedPrompt]
	compacted  Surface // its Seqs are computed
	subscribed bool    // frames say what is pending
	more       bool    // the last session/live was a part
	partial    *partialBase
	cards      int // pending with Card
	asked      int // pending with Seq

	// live is nil while no turn is open. A tool in it that has a card is running
	// on the card too.
	live *OpenTurn
	viewIndex
}

// viewIndex finds things in the view; it is rebuilt from the rest.
type viewIndex struct {
	turns   map[TurnID]struct{}
	blocks  map[int]*Item    // messages of the open turn by block
	closed  map[int]struct{} // blocks of the open turn that have a message or were retracted
	calls   map[CallID]*Item
	running map[CallID]*Item
	agents  map[SessionID]*Item
	open    map[RequestID]*Decision // asked and not decided
}

// Turn is the summary of one turn.
type Turn struct {
	TurnID    TurnID        `json:"turnId"`
	Trigger   string        `json:"trigger,omitempty"`
	PromptID  PromptID      `json:"promptId,omitempty"`
	Reason    TurnEndReason `json:"reason,omitempty"`
	Message   string        `json:"message,omitempty"`
	StartedAt Time          `json:"startedAt,omitzero"`
	EndedAt   Time          `json:"endedAt,omitzero"`
	StartSeq  Seq           `json:"startSeq,omitempty"`
	EndSeq    Seq           `json:"endSeq,omitempty"`
	Usage     *Usage        `json:"usage,omitempty"`
}

// Pending is an approval or a question without an outcome. Seq is its audit
// event, 0 where none was seen yet; Card says that the host told this client by
// a frame that it waits. A client shows those with Card.
type Pending struct {
	ID        RequestID       `json:"id"`
	Kind      ItemKind        `json:"kind"` // ItemApproval or ItemQuestion
	Seq       Seq             `json:"seq,omitempty"`
	Card      bool            `json:"card,omitempty"`
	TurnID    TurnID          `json:"turnId,omitempty"`
	CallID    CallID          `json:"callId,omitempty"`
	Tool      *Tool           `json:"tool,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	InputHash string          `json:"inputHash,omitempty"`
	Truncated *Truncated      `json:"truncated,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	Options   []Outcome       `json:"options,omitempty"`
	Questions []Question      `json:"questions,omitempty"`
	AskedAt   Time            `json:"askedAt,omitzero"`
	ExpiresAt Time            `json:"expiresAt,omitzero"`
}

// Child is a session that this one's agent started. Status is empty while it
// works, then the reason of its last turn's end.
type Child struct {
	SessionID SessionID `json:"sessionId"`
	Agent     string    `json:"agent,omitempty"`
	Title     string    `json:"title,omitempty"`
	CallID    CallID    `json:"callId,omitempty"`
	Status    string    `json:"status,omitempty"`
}

// Task is background work of the agent. Status is empty while it runs.
type Task struct {
	TaskID     TaskID `json:"taskId"`
	Kind       string `json:"kind,omitempty"`
	Label      string `json:"label,omitempty"`
	Status     string `json:"status,omitempty"`
	Detail     string `json:"detail,omitempty"`
	StartedAt  Time   `json:"startedAt,omitzero"`
	FinishedAt Time   `json:"finishedAt,omitzero"`
}

// QueuedPrompt is a prompt that waits for its turn.
type QueuedPrompt struct {
	PromptID PromptID       `json:"promptId"`
	TurnID   TurnID         `json:"turnId,omitempty"`
	Mode     PromptMode     `json:"mode"`
	Content  []ContentBlock `json:"content,omitempty"`
	By       *By            `json:"by,omitempty"`
	QueuedAt Time           `json:"queuedAt,omitzero"`
}

// Surface is what the model sees: the summary of the last compaction, then the
// items that Seqs names, in their order (an item's Seq).
type Surface struct {
	UpTo    Seq            `json:"upTo,omitempty"`
	Summary []ContentBlock `json:"summary,omitempty"`
	Seqs    []Seq          `json:"seqs"`
}

// NewView returns the view of a session before its first event.
func NewView() *View {
	return &View{
		Status:   StateIdle,
		Turns:    []Turn{},
		Items:    []*Item{},
		Todos:    []Todo{},
		Commands: []Command{},
		viewIndex: viewIndex{
			turns:   make(map[TurnID]struct{}),
			blocks:  make(map[int]*Item),
			closed:  make(map[int]struct{}),
			calls:   make(map[CallID]*Item),
			running: make(map[CallID]*Item),
			agents:  make(map[SessionID]*Item),
			open:    make(map[RequestID]*Decision),
		},
	}
}

// Live returns the open turn so far: blocks without a message, by number, and
// running tools with the kept tail of their progress. nil while no turn is open.
func (v *View) Live() *LiveTurn {
	if v.live == nil {
		return nil
	}
	t := &LiveTurn{TurnID: v.live.id, Blocks: v.live.Blocks()}
	for _, tool := range v.live.sortedTools() {
		t.Tools = append(t.Tools, LiveTool{CallID: tool.id, Text: string(tool.tail()), To: tool.to})
	}
	return t
}

// Pending returns what has no outcome yet, oldest first.
func (v *View) Pending() []Pending {
	all := v.pending.all()
	slices.SortFunc(all, func(a, b Pending) int {
		return cmp.Or(a.AskedAt.Compare(b.AskedAt.Time), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// Children returns the sessions that this one's agent started, oldest first.
func (v *View) Children() []Child { return v.children.all() }

// Tasks returns the background work of the agent, oldest first.
func (v *View) Tasks() []Task { return v.tasks.all() }

// Queue returns the prompts that wait for their turn, oldest first.
func (v *View) Queue() []QueuedPrompt { return v.queue.all() }

// Surface returns what the model sees. It reads all items.
func (v *View) Surface() Surface {
	s := v.compacted
	s.Seqs = []Seq{}
	for _, it := range v.Items {
		if seq := it.modelSeq(); seq > s.UpTo && !it.Void {
			s.Seqs = append(s.Seqs, it.Seq)
		}
	}
	return s
}

// modelSeq is the event by which the item reached the model, 0 if it did not.
func (it *Item) modelSeq() Seq {
	switch it.Kind {
	case ItemUser, ItemSteering, ItemContext, ItemAssistant:
		return it.Seq
	case ItemTool:
		return it.Tool.ResultSeq
	case ItemAgent:
		return it.Agent.EndSeq
	}
	return 0
}

// settle works the status out anew. A turn whose start was not seen runs too.
func (v *View) settle() {
	v.Status = v.status(v.subscribed)
	if v.Status == StateIdle && v.live != nil {
		v.Status = StateRunning
	}
}

func (v *View) status(byCards bool) SessionState {
	switch {
	case byCards && v.cards > 0 || !byCards && v.asked > 0:
		return StateRequiresAction
	case v.TurnID != "":
		return StateRunning
	}
	return StateIdle
}

// putPending adds or replaces a pending request, and keeps the counts.
func (v *View) putPending(p Pending) {
	v.dropPending(p.ID)
	v.pending.put(p.ID, p)
	v.count(p, 1)
}

func (v *View) dropPending(id RequestID) {
	if p := v.pending.get(id); p != nil {
		v.count(*p, -1)
		v.pending.del(id)
	}
}

func (v *View) count(p Pending, by int) {
	if p.Card {
		v.cards += by
	}
	if p.Seq > 0 {
		v.asked += by
	}
}
