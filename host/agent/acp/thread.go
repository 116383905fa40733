package acp

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

const (
	// maxBlock is how much text a block holds before the next one begins.
	maxBlock = 96 << 10
	// maxRaw is the largest vendor event that is kept in an event; of a larger
	// one a blob is kept, or outside of turns its size.
	maxRaw = 192 << 10
	// maxBacklog bounds what waits for a subagent's session to open.
	maxBacklog = 8192
)

// thread is one session of the agent: the main one, or a subagent's. All of it
// belongs to the lane.
type thread struct {
	l      *link
	id     string
	parent *thread // nil for the main one
	bg     agent.Background
	child  *child // nil for the main one

	turn  *turnState // nil while no turn runs
	tools map[string]*tool
	order []*tool // in the order in which they were first seen
	// strays are calls that the agent speaks of while no turn runs.
	strays map[string]*tool
	// muted drops what says something: the agent replays its log. What says how
	// things are now is kept in muffled, the newest of each kind.
	muted   bool
	muffled map[string]update
	// loose is text that came while no turn ran.
	loose   strings.Builder
	kept    map[string][sha256.Size]byte // the last of each kind, to tell repetitions
	backlog []func()                     // what waits for the subagent's session

	compactions map[string]*compaction // that have not ended, by id
	// history reads the session's log, nil if it has none; seen is how far it was read.
	history func(context.Context, frames.Seq, int) ([]frames.Event, error)
	seen    frames.Seq
}

// turnState is one running turn of a thread.
type turnState struct {
	agent.Turn
	ctx    context.Context //nolint:containedctx // ends with the turn
	cancel context.CancelCauseFunc
	asks   sync.WaitGroup // added to by the lane, while the thread has the turn

	// rejected says that something was not allowed.
	rejected atomic.Bool

	// What follows belongs to the lane.
	block *block
	kids  []agent.Child
}

// block is the text that is being said.
type block struct {
	n       int
	thought bool
	message string // the agent's id of the message
	text    strings.Builder
}

func newThread(l *link, id string, parent *thread) *thread {
	return &thread{
		l: l, id: id, parent: parent, bg: l.s.Background, tools: map[string]*tool{}, strays: map[string]*tool{},
		kept: map[string][sha256.Size]byte{}, compactions: map[string]*compaction{},
	}
}

// update turns one update into events.
func (th *thread) update(u update) {
	if th.waiting(func() { th.update(u) }) {
		return
	}
	if th.muted {
		th.muffle(u)
		return
	}
	switch u.kind {
	case "agent_message_chunk":
		th.chunk(u, false)
	case "agent_thought_chunk":
		th.chunk(u, true)
	case "tool_call", "tool_call_update":
		th.toolUpdate(u)
	case "plan":
		th.plan(u)
	case "usage_update":
		th.usage(u)
	case "available_commands_update":
		th.commands(u)
	case "current_mode_update", "config_option_update":
		th.l.modeUpdate(th, u)
		th.vendorOnce(u)
	case "session_info_update":
		th.vendorOnce(u)
		th.title(u)
	case "compaction_update", "compaction_summary_chunk":
		th.compact(u)
	case "notice":
		th.notice(u)
	case "subagent_update", "subagent_spawned", "subagent_state_update":
		th.vendorOnce(u)
		th.subagent(u)
	default:
		th.vendorOnce(u)
	}
}

// muffle takes an update of a thread that is muted.
func (th *thread) muffle(u update) {
	switch u.kind {
	case "current_mode_update", "config_option_update":
		th.l.modeUpdate(th, u)
	case "available_commands_update", "usage_update", "session_info_update":
	default:
		return
	}
	if th.muffled == nil {
		th.muffled = map[string]update{}
	}
	th.muffled[u.kind] = u
}

// unmute ends the replay.
func (th *thread) unmute() {
	th.muted = false
	for _, kind := range slices.Sorted(maps.Keys(th.muffled)) {
		th.update(th.muffled[kind])
	}
	th.muffled = nil
}

// opening reports whether the thread is a subagent's whose session does not run yet.
func (th *thread) opening() bool {
	return th.child != nil && !th.child.attached && !th.child.lost
}

// waiting keeps f for later while a subagent's session is being opened.
func (th *thread) waiting(f func()) bool {
	if !th.opening() {
		return false
	}
	if len(th.backlog) == maxBacklog {
		th.child.abandon()
		return false
	}
	th.backlog = append(th.backlog, f)
	return true
}

// emit stores events, in the turn if one runs. A failure ends the turn.
func (th *thread) emit(events ...frames.Payload) {
	if th.muted || len(events) == 0 {
		return
	}
	if ts := th.turn; ts != nil {
		if err := ts.Emit(th.l.storing(), events...); err != nil {
			ts.cancel(err)
		}
		return
	}
	if err := th.bg.Emit(th.l.storing(), events...); err != nil && th.l.ctx.Err() == nil {
		th.bg.Failed("what " + th.l.opt.Name + " said could not be stored: " + err.Error())
	}
}

// vendor keeps raw, a JSON object, as an event of the protocol's own type.
func (th *thread) vendor(kind string, raw json.RawMessage) {
	switch {
	case len(raw) > maxRaw:
		raw = acprpc.Marshal(map[string]any{"truncated": th.whole(raw)})
	case frames.CheckJSON(raw, frames.JSONLimits{IJSON: true}) != nil || !object(raw):
		raw = acprpc.Marshal(map[string]string{"text": acprpc.Plain(raw)})
	}
	th.emit(agent.Raw{Type: vendorType(kind), Data: raw})
}

// whole describes what is too large for an event, and keeps it where a turn runs.
func (th *thread) whole(raw []byte) frames.Truncated {
	cut := frames.Truncated{Bytes: int64(len(raw))}
	if ts := th.turn; ts != nil && !th.muted {
		id, _, err := ts.Blob(th.l.storing(), strings.NewReader(string(raw)))
		if err != nil {
			ts.cancel(err)
		}
		cut.Blob = id
	}
	return cut
}

// vendorOnce keeps an update as a vendor event. One that says how something is now is
// not kept again while it repeats the last one of its kind.
func (th *thread) vendorOnce(u update) {
	state := strings.HasSuffix(u.kind, "_update") && u.kind != "tool_call_update"
	if state && th.repeats("raw "+u.kind, u.raw) {
		return
	}
	th.vendor(u.kind, u.raw)
}

// rest keeps an update whose fields, or those of what it holds, no event has a place for.
func (th *thread) rest(u update, held json.RawMessage, known ...string) {
	left := u.rest(known...)
	if left == nil && held == nil {
		return
	}
	if !th.repeats("rest "+u.kind, slices.Concat(left, []byte{0}, held)) {
		th.vendor(u.kind, u.raw)
	}
}

// repeats reports whether value is the last one of its kind again. What is muted
// counts as repeated.
func (th *thread) repeats(kind string, value []byte) bool {
	if th.muted {
		return true
	}
	sum := sha256.Sum256(value)
	same := th.kept[kind] == sum
	th.kept[kind] = sum
	return same
}

// chunk takes a piece of a message or of reasoning.
func (th *thread) chunk(u update, thought bool) {
	var c content
	if json.Unmarshal(u.fields["content"], &c) != nil {
		th.vendorOnce(u)
		return
	}
	th.announceAll()
	text := frames.ValidText(c.Text)
	switch {
	case c.Type != "text" && !th.attachment(c), c.Type == "text" && text != "" && th.turn == nil && thought:
		th.vendorOnce(u)
		return
	case c.Type != "text" || text == "":
	case th.turn == nil:
		th.loose.WriteString(text)
		if th.loose.Len() > maxBlock {
			th.settleLoose()
		}
	default:
		th.say(text, thought, u.text("messageId"))
	}
	th.rest(u, contentRest(u.fields["content"]), "content", "messageId")
}

// say streams text into the open block, or a new one.
func (th *thread) say(text string, thought bool, message string) {
	ts := th.turn
	if b := ts.block; b != nil && (b.thought != thought || b.message != message || b.text.Len() > maxBlock) {
		th.closeBlock()
	}
	if ts.block == nil {
		ts.block = &block{n: ts.NewBlock(), thought: thought, message: message}
	}
	ts.block.text.WriteString(text)
	stream := ts.Text
	if thought {
		stream = ts.Reasoning
	}
	if err := stream(th.l.storing(), ts.block.n, text); err != nil {
		ts.cancel(err)
	}
}

// closeBlock stores the text that is being said.
func (th *thread) closeBlock() {
	if th.turn == nil || th.turn.block == nil {
		return
	}
	b := th.turn.block
	th.turn.block = nil
	body, blocks := []frames.ContentBlock{frames.Text(b.text.String())}, []int{b.n}
	if b.thought {
		th.emit(frames.ReasoningMessage{Content: body, Blocks: blocks})
		return
	}
	th.emit(frames.AssistantMessage{Content: body, Blocks: blocks})
}

// settleLoose stores text that came while no turn ran.
func (th *thread) settleLoose() {
	if th.loose.Len() == 0 {
		return
	}
	text := th.loose.String()
	th.loose.Reset()
	th.emit(frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text(text)}, Blocks: []int{}})
}

// attachment takes a piece of a message that is no text. It is false where the contract
// has no such piece.
func (th *thread) attachment(c content) bool {
	b, ok := contentBlock(c)
	if !ok {
		return false
	}
	th.closeBlock()
	blocks := []int{}
	if th.turn != nil {
		blocks = append(blocks, th.turn.NewBlock())
	}
	th.emit(frames.AssistantMessage{Content: []frames.ContentBlock{th.bounded(b)}, Blocks: blocks})
	return true
}

// bounded is b with data that is too large for an event kept as a blob. Outside of
// turns the host does that.
func (th *thread) bounded(b frames.ContentBlock) frames.ContentBlock {
	if len(b.Data) <= maxDetails || th.turn == nil {
		return b
	}
	if raw, err := base64.StdEncoding.DecodeString(b.Data); err == nil {
		b.Data, b.Blob = "", th.whole(raw).Blob
	}
	return b
}

// contentBlock is a content block of the agent in the contract's form.
func contentBlock(c content) (frames.ContentBlock, bool) {
	b := frames.ContentBlock{Type: c.Type}
	switch c.Type {
	case "text":
		b.Text = frames.ValidText(c.Text)
	case "image":
		b.MimeType, b.Data, b.URI = c.MimeType, c.Data, c.URI
	case "resource":
		b.URI, b.Text, b.Data, b.MimeType = c.Resource.URI, frames.ValidText(c.Resource.Text), c.Resource.Blob, c.Resource.MimeType
	case "resource_link":
		b.URI, b.Name, b.MimeType = c.URI, c.Name, c.MimeType
	default:
		return b, false
	}
	return b, true
}

// plan takes the whole plan.
func (th *thread) plan(u update) {
	var entries []frames.Todo
	if json.Unmarshal(u.fields["entries"], &entries) != nil {
		th.vendorOnce(u)
		return
	}
	for i := range entries {
		if entries[i].Status == "" {
			entries[i].Status = "pending"
		}
	}
	if entries == nil {
		entries = []frames.Todo{}
	}
	th.announceAll()
	th.closeBlock()
	th.emit(frames.TodoWrite{Todos: entries})
	th.rest(u, listRest(u.fields["entries"], "id", "content", "status", "priority"), "entries")
}

// usage takes how full the agent's memory is, and what the session has cost.
func (th *thread) usage(u update) {
	use := frames.Usage{ContextTokens: whole(u.fields["used"]), ContextWindow: whole(u.fields["size"])}
	var cost struct {
		Amount   json.RawMessage `json:"amount"`
		Currency string          `json:"currency"`
	}
	if !acprpc.IsNull(u.fields["cost"]) && json.Unmarshal(u.fields["cost"], &cost) == nil {
		use.Cost, use.Currency = decimal(cost.Amount), cost.Currency
	}
	if !th.repeats("usage", acprpc.Marshal(use)) {
		th.emit(frames.UsageUpdated{Usage: use})
	}
	th.rest(u, nil, "used", "size", "cost")
}

// commands takes the commands that the agent offers.
func (th *thread) commands(u update) {
	var list []frames.Command
	if json.Unmarshal(u.fields["availableCommands"], &list) != nil {
		th.vendorOnce(u)
		return
	}
	for i := range list {
		list[i].Name = frames.ValidText(list[i].Name)
		list[i].Description, _ = frames.Preview(frames.ValidText(list[i].Description), 1<<10)
	}
	list = slices.DeleteFunc(list, func(c frames.Command) bool { return c.Name == "" })
	list = slices.Clip(append([]frames.Command{}, list[:min(len(list), 128)]...))
	if !th.repeats("commands", acprpc.Marshal(list)) {
		th.emit(frames.CommandAvailable{Commands: list})
	}
	th.vendorOnce(u)
}

// notice takes what the agent tells people at once. A fault is shown as one.
func (th *thread) notice(u update) {
	th.vendorOnce(u)
	if text := frames.ValidText(u.text("title")); text != "" && u.text("severity") == "error" {
		if more := frames.ValidText(u.text("description")); more != "" {
			text += ": " + more
		}
		th.emit(frames.ErrorReported{Code: "agent-notice", Message: text})
	}
}

// title takes the agent's name for the session.
func (th *thread) title(u update) {
	title := strings.TrimSpace(frames.ValidText(u.text("title")))
	if title == "" || th.child != nil && !th.child.attached {
		return
	}
	if err := th.bg.Title(th.l.storing(), title); err != nil && th.l.ctx.Err() == nil {
		th.bg.Failed("the title that " + th.l.opt.Name + " gave could not be stored: " + err.Error())
	}
}

// begin makes ts the thread's turn.
func (th *thread) begin(ts *turnState) {
	th.settleLoose()
	th.turn = ts
	backlog := th.backlog
	th.backlog = nil
	for _, f := range backlog {
		f()
	}
}

// end ends the thread's turn: what is open is closed.
func (th *thread) end(cancelled bool) {
	th.announceAll()
	th.closeBlock()
	th.closeTools(cancelled)
	th.turn = nil
}
