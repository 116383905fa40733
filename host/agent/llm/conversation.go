package llm

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// historyPage is how many events are read at once.
const historyPage = 256

// conversation is what the model sees: the surface of the session's log. Only the
// turn that runs uses it.
type conversation struct {
	history func(ctx context.Context, after frames.Seq, limit int) ([]frames.Event, error)
	base    func(ctx context.Context) (*frames.View, frames.Seq, error)
	view    *frames.View
	wholes  wholes
	// local is what was said and is not in the log (yet).
	local []localMessage
	model string // of the last request
	// contexts are those that the log told since the last turn.
	contexts []frames.ContentBlock

	// What the last answer said of the size of its request.
	tokens int64 // 0: nothing
	bytes  int
}

type localMessage struct {
	after   frames.Seq
	id      frames.PromptID
	content []frames.ContentBlock
}

func newConversation(s agent.Session) *conversation {
	return &conversation{history: s.History, base: s.Base, view: frames.NewView(), wholes: wholes{open: s.ReadBlob}}
}

// sync reads what was added to the log. Where that begins later than what is known
// ends, the log was trimmed: then the fold of what was dropped takes its place.
func (c *conversation) sync(ctx context.Context) error {
	upTo := c.view.Surface().UpTo
	for c.history != nil {
		page, err := c.history(ctx, c.view.Seq, historyPage)
		if err != nil {
			return fmt.Errorf("llm: reading the session's history: %w", err)
		}
		if len(page) == 0 {
			break
		}
		if page[0].Seq > c.view.Seq+1 {
			moved, err := c.rebase(ctx)
			if err != nil {
				return err
			}
			if moved {
				upTo = 0
				continue
			}
		}
		for _, e := range page {
			// What does not decode is nothing that the model could see.
			_ = c.view.ApplyEvent(e)
			c.heard(e)
		}
	}
	if s := c.view.Surface(); s.UpTo > upTo {
		c.tokens = 0
		c.forget(s)
	}
	return nil
}

// rebase puts the fold of what was dropped from the log in place of what is known;
// false if that is not more.
func (c *conversation) rebase(ctx context.Context) (bool, error) {
	if c.base == nil {
		return false, nil
	}
	v, seq, err := c.base(ctx)
	if err != nil {
		return false, fmt.Errorf("llm: reading what was dropped from the session's log: %w", err)
	}
	if v == nil || max(v.Seq, seq) <= c.view.Seq {
		return false, nil
	}
	v.Seq = max(v.Seq, seq)
	c.view, c.tokens = v, 0
	if v.Model != "" {
		c.model = v.Model
	}
	for _, it := range v.Items {
		c.known(it.PromptID)
		if it.Kind == frames.ItemContext {
			c.contexts = append(c.contexts, it.Content...)
		}
	}
	return true, nil
}

// heard keeps what local messages are compared with.
func (c *conversation) heard(e frames.Event) {
	switch e.Type {
	case frames.SteeringMessageEvent, frames.ContextMessageEvent, frames.ModelStartEvent:
	default:
		return
	}
	p, err := e.Payload()
	if err != nil {
		return
	}
	switch p := p.(type) {
	case *frames.SteeringMessage:
		c.known(p.PromptID)
	case *frames.ContextMessage:
		c.contexts = append(c.contexts, p.Content...)
	case *frames.ModelStart:
		c.model = p.Model
	}
}

// known drops the local message that the log now has.
func (c *conversation) known(id frames.PromptID) {
	if id != "" {
		c.local = slices.DeleteFunc(c.local, func(m localMessage) bool { return m.id == id })
	}
}

// forget drops from memory what the summary stands for.
func (c *conversation) forget(s frames.Surface) {
	c.view.Items = slices.DeleteFunc(c.view.Items, func(it *frames.Item) bool {
		if it.Seq > s.UpTo || after(it, s.UpTo) {
			return false
		}
		if it.Tool != nil { // the view finds it by its id still
			*it.Tool = frames.ToolCard{CallID: it.Tool.CallID, ResultSeq: it.Tool.ResultSeq}
		}
		return true
	})
	c.local = slices.DeleteFunc(c.local, func(m localMessage) bool { return m.after < s.UpTo })
}

// after reports whether the item is on the surface behind upTo, or may get there.
func after(it *frames.Item, upTo frames.Seq) bool {
	return it.Kind == frames.ItemTool && (it.Tool.ResultSeq == 0 || it.Tool.ResultSeq > upTo)
}

// begin takes the prompt of a turn.
func (c *conversation) begin(ctx context.Context, p agent.Prompt) error {
	if err := c.sync(ctx); err != nil {
		return err
	}
	for _, b := range p.Context {
		i := slices.IndexFunc(c.contexts, func(o frames.ContentBlock) bool { return reflect.DeepEqual(o, b) })
		if i < 0 {
			c.say(agent.Prompt{Content: []frames.ContentBlock{b}})
		} else {
			c.contexts = slices.Delete(c.contexts, i, i+1)
		}
	}
	c.contexts = nil
	c.say(p)
	return nil
}

// say adds what a person said, unless the log has it.
func (c *conversation) say(p agent.Prompt) {
	if p.ID != "" && slices.ContainsFunc(c.view.Items, func(it *frames.Item) bool { return it.PromptID == p.ID }) {
		return
	}
	c.local = append(c.local, localMessage{c.view.Seq, p.ID, p.Content})
}

// entry is one message and the last event that it comes from.
type entry struct {
	message
	seq frames.Seq
}

// builder makes messages of items.
type builder struct {
	out    []entry
	images bool
	max    int // of a tool result's text, in bytes
	// assistant is the message that calls are added to, -1 for none; once one of
	// its calls has a result at a seq, later calls begin a new one.
	assistant int
	result    frames.Seq
}

// messages returns the conversation without the system prompt. It reads the blobs that
// people's words name; images are how many bytes of pictures the model takes.
func (c *conversation) messages(ctx context.Context, images, maxTool int) []entry {
	b := &builder{images: images > 0, max: maxTool, assistant: -1}
	s := c.view.Surface()
	if len(s.Summary) > 0 {
		b.user(s.UpTo, append([]frames.ContentBlock{frames.Text(summaryIntro)}, s.Summary...))
	}
	local := c.local
	for _, it := range c.view.Items {
		for len(local) > 0 && local[0].after < it.Seq {
			b.user(local[0].after, local[0].content)
			local = local[1:]
		}
		if len(s.Seqs) == 0 || s.Seqs[0] != it.Seq {
			continue
		}
		s.Seqs = s.Seqs[1:]
		b.item(it)
	}
	for _, m := range local {
		b.user(m.after, m.content)
	}
	c.wholes.fill(ctx, b.out, images)
	return b.out
}

func (b *builder) item(it *frames.Item) {
	switch it.Kind {
	case frames.ItemUser, frames.ItemSteering, frames.ItemContext:
		b.user(it.Seq, it.Content)
	case frames.ItemAssistant:
		b.said(it)
	case frames.ItemTool:
		b.call(it)
	}
}

// user adds to the message of the user; some models take no two in a row.
func (b *builder) user(seq frames.Seq, blocks []frames.ContentBlock) {
	var c content
	for _, block := range blocks {
		c = append(c, b.part(block))
	}
	b.assistant = -1
	if n := len(b.out); n > 0 && b.out[n-1].Role == "user" {
		b.out[n-1].Content = append(b.out[n-1].Content, c...)
		b.out[n-1].seq = max(b.out[n-1].seq, seq)
		return
	}
	b.out = append(b.out, entry{message{Role: "user", Content: c}, seq})
}

// part makes a part of a block. Where it holds from, the rest is put in later.
func (b *builder) part(block frames.ContentBlock) part {
	id, _ := blobOf(block)
	picture := block.Type == "image" || block.Type == "resource" && strings.HasPrefix(block.MimeType, "image/") && block.Text == ""
	switch {
	case picture && b.images && (block.Data != "" || id != ""):
		return part{Type: "image_url", ImageURL: &imageURL{}, from: &block}
	case picture:
		return part{Type: "text", Text: fmt.Sprintf("[An image (%s) that cannot be shown here.]", block.MimeType)}
	}
	p := part{Type: "text", Text: heading(block) + blockText(block)}
	if id != "" {
		p.from = &block
	}
	return p
}

// heading names a block that is no plain text, on a line of its own.
func heading(block frames.ContentBlock) string {
	if block.Type == "text" {
		return ""
	}
	var s strings.Builder
	s.WriteString("[" + block.Type)
	for _, word := range []string{block.Name, block.URI} {
		if word != "" {
			s.WriteString(" " + word)
		}
	}
	if s.WriteString("]"); block.Type != "resource_link" {
		s.WriteString("\n")
	}
	return s.String()
}

func blockText(block frames.ContentBlock) string {
	if block.Truncated != nil {
		return fmt.Sprintf("%s\n[cut; %d bytes in all]", block.Text, block.Truncated.Bytes)
	}
	return block.Text
}

// said adds text of the assistant.
func (b *builder) said(it *frames.Item) {
	var all strings.Builder
	for _, block := range it.Content {
		all.WriteString(blockText(block))
	}
	if b.assistant >= 0 && len(b.out[b.assistant].ToolCalls) == 0 {
		e := &b.out[b.assistant]
		e.Content[0].Text += all.String()
		e.seq = it.Seq
		return
	}
	b.begin(it.Seq, all.String())
}

func (b *builder) begin(seq frames.Seq, said string) {
	b.assistant, b.result = len(b.out), 0
	b.out = append(b.out, entry{message{Role: "assistant", Content: text(said)}, seq})
}

// call adds a tool call and its result. Calls of one answer were all announced
// before the first of them ran.
func (b *builder) call(it *frames.Item) {
	if b.assistant < 0 || b.result > 0 && it.Seq > b.result {
		b.begin(it.Seq, "")
	}
	t := it.Tool
	if b.result == 0 {
		b.result = t.ResultSeq
	}
	e := &b.out[b.assistant]
	e.ToolCalls = append(e.ToolCalls, toolCall{
		ID: string(t.CallID), Type: "function", Function: functionCall{Name: t.Name, Arguments: callArguments(t)},
	})
	e.seq = max(e.seq, it.Seq)
	b.out = append(b.out, entry{message{Role: "tool", ToolCallID: string(t.CallID), Content: text(b.outcome(t))}, t.ResultSeq})
}

// callArguments are a JSON object in any case: servers parse it.
func callArguments(t *frames.ToolCard) string {
	if t.Truncated == nil && len(t.Input) > 0 && t.Input[0] == '{' {
		return string(t.Input)
	}
	b, err := marshal(map[string]any{"cut": t.Input})
	if err != nil {
		return "{}"
	}
	return string(b)
}

func (b *builder) outcome(t *frames.ToolCard) string {
	var all []string
	for _, block := range t.Content {
		all = append(all, block.Text)
	}
	s := middle(strings.Join(all, "\n"), b.max)
	if t.IsError {
		return "Error: " + s
	}
	return s
}

// middle cuts the middle out of a text that is longer than limit bytes.
func middle(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	head, _ := frames.Preview(s, limit*2/3)
	tail := frames.Tail(s, limit/3)
	return fmt.Sprintf("%s\n[… %d bytes are not shown …]\n%s", head, len(s)-len(head)-len(tail), tail)
}

// size is about how many bytes messages are to a model.
func size(ms []entry) int {
	n := 0
	for _, m := range ms {
		n += m.Content.size() + 16
		for _, c := range m.ToolCalls {
			n += len(c.Function.Name) + len(c.Function.Arguments) + 32
		}
	}
	return n
}
