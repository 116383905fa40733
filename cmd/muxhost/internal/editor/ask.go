package editor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
	"github.com/muxhost/muxhost/rpc"
)

// maxInput is the largest input of a call, in bytes, that a person is shown whole.
const maxInput = 1 << 20

// card is an approval or a question that waits, as the editor was asked.
type card struct {
	th *thread
	p  frames.Pending
	// call is the request to the editor, 0 while there is none; open says that it has
	// no answer.
	call uint64
	open bool
}

// askAll asks the editor what waits and was not asked yet. A request overtakes what was
// said before it on its way here; unless all has come, it waits for the event that tells
// of it, so that the editor has seen the call that is asked about.
func (th *thread) askAll(all bool) {
	for _, p := range th.view.Pending() {
		if p.Card && th.cards[p.ID] == nil && (all || p.Seq > 0) {
			c := &card{th: th, p: p}
			th.cards[p.ID] = c
			if p.Kind == frames.ItemQuestion {
				c.question()
			} else {
				c.approval()
			}
		}
	}
}

// settled takes a card away: the editor's request is withdrawn, if it is open.
func (th *thread) settled(id frames.RequestID) {
	c := th.cards[id]
	delete(th.cards, id)
	if c == nil || !c.open {
		return
	}
	c.open = false
	th.b.send("$/cancel_request", obj{"requestId": c.call})
}

// withdrawCards takes all cards away; what still waits may be asked again.
func (th *thread) withdrawCards() {
	for id := range th.cards {
		th.settled(id)
	}
}

// waits reports whether the card is still there.
func (c *card) waits() bool { return c.th.cards[c.p.ID] == c }

// request sends the card's request; then takes the editor's answer, in the loop, if
// the card still waits.
func (c *card) request(method string, params obj, then func(acprpc.Response)) {
	b := c.th.b
	b.conn.Room(b.reading)
	id, answered := b.conn.Start(method, params)
	c.call, c.open = id, true
	b.inflight++ // an answer that is the editor's last word counts, too
	b.wg.Go(func() {
		select {
		case r := <-answered:
			b.post(func() {
				b.inflight--
				if c.waits() && c.open {
					c.open = false
					then(r)
				}
			})
		case <-b.ctx.Done():
		}
	})
}

// approval asks for permission. A person must see all of what they allow: an input
// that the frame holds a part of is fetched first.
func (c *card) approval() {
	t := c.p.Truncated
	if t == nil {
		c.permission(c.p.Input, c.p.Options, "")
		return
	}
	b := c.th.b
	b.beside(func(ctx context.Context) func() {
		input, err := b.input(ctx, t, c.p.InputHash)
		return func() {
			switch {
			case !c.waits():
			case err != nil:
				b.log.Warn("the input of a call cannot be shown", slog.Any("error", err))
				c.permission(c.p.Input, []frames.Outcome{frames.Rejected}, fmt.Sprintf(
					"What is shown is only the start of %d bytes, so it cannot be allowed here. To see all of it: muxhost approve %s%s", t.Bytes, c.p.ID, b.o.Hint))
			default:
				c.permission(input, slices.DeleteFunc(slices.Clone(c.p.Options), func(o frames.Outcome) bool { return o == frames.AllowedAlways }), "")
			}
		}
	})
}

// input reads the whole input of a call and checks that it is the one that is asked
// about.
func (b *bridge) input(ctx context.Context, t *frames.Truncated, hash string) (json.RawMessage, error) {
	if t.Blob == "" || t.Bytes > maxInput {
		return nil, fmt.Errorf("it has %d bytes, and at most %d are shown", t.Bytes, maxInput)
	}
	var buf bytes.Buffer
	if _, err := b.host.ReadBlob(ctx, t.Blob, &buf); err != nil {
		return nil, err
	}
	if _, got, err := frames.InputHash(buf.Bytes()); err != nil || got != hash {
		return nil, errors.New("what is stored is not what is asked about")
	}
	return buf.Bytes(), nil
}

// permission sends the request. Its options are the outcomes that the host takes.
func (c *card) permission(input json.RawMessage, outcomes []frames.Outcome, note string) {
	kinds := map[frames.Outcome][2]string{
		frames.AllowedOnce: {"allow_once", "Allow once"}, frames.AllowedAlways: {"allow_always", "Always allow this exact call"},
		frames.Rejected: {"reject_once", "Reject"},
	}
	options := []obj{}
	for _, o := range outcomes {
		if k, ok := kinds[o]; ok {
			options = append(options, obj{"optionId": o, "kind": k[0], "name": k[1]})
		}
	}
	at := c.th.shownIn()
	at.announce()
	c.request("session/request_permission", obj{
		"sessionId": at.id, "toolCall": c.toolCall(at, input, note), "options": options,
		"_meta": obj{"muxhost": c.meta()},
	}, func(r acprpc.Response) { c.permitted(r, outcomes) })
}

// meta names the request, for who wants to know.
func (c *card) meta() obj {
	m := obj{"id": c.p.ID, "sessionId": c.th.id}
	set(m, "inputHash", c.p.InputHash)
	set(m, "reason", c.p.Reason)
	if !c.p.ExpiresAt.IsZero() {
		m["expiresAt"] = c.p.ExpiresAt
	}
	return m
}

// toolCall describes the call. Where an agent of the protocol made it, what it showed
// beside its input is shown as it came.
func (c *card) toolCall(at *thread, input json.RawMessage, note string) obj {
	id := string(c.p.CallID)
	switch {
	case id == "":
		id = "approval:" + string(c.p.ID)
	case at != c.th:
		id = string(c.th.id) + ":" + id
	}
	u := obj{"toolCallId": id, "status": "pending", "title": "tool"}
	if t := c.p.Tool; t != nil {
		u["title"], u["kind"] = first(t.Title, t.Name, "tool"), toolKind(t.Kind)
		set(u, "name", t.Name)
	}
	u["rawInput"] = input
	if c.th.b.agents[c.th.view.Agent] {
		var was struct {
			Content   []json.RawMessage `json:"content"`
			Locations json.RawMessage   `json:"locations"`
		}
		if json.Unmarshal(input, &was) == nil && len(was.Content) > 0 {
			u["content"] = contents(c.th.detailsOf(input).Content, nil)
			if !acprpc.IsNull(was.Locations) {
				u["locations"] = was.Locations
			}
		}
	}
	if text := first(note, c.p.Reason); text != "" && u["content"] == nil {
		u["content"] = []obj{{"type": "content", "content": obj{"type": "text", "text": text}}}
	}
	return u
}

// permitted takes the editor's answer to a permission request. Only one that selects
// an option that was offered says anything; all others leave it to others.
func (c *card) permitted(r acprpc.Response, offered []frames.Outcome) {
	var a struct {
		Outcome struct {
			Outcome string         `json:"outcome"`
			Option  frames.Outcome `json:"optionId"`
		} `json:"outcome"`
	}
	if r.Err != nil || json.Unmarshal(r.Result, &a) != nil || a.Outcome.Outcome != "selected" || !slices.Contains(offered, a.Outcome.Option) {
		c.th.b.log.Info("the editor did not answer a permission request; it stays open for others", slog.String("id", string(c.p.ID)))
		return
	}
	answer := rpc.ApprovalParams{SessionID: c.th.id, ID: c.p.ID, Outcome: a.Outcome.Option, InputHash: &c.p.InputHash}
	c.respond(func(ctx context.Context) error { return c.th.b.host.Respond(ctx, answer) })
}

// respond hands an answer to the host. One that came too late is not told of: the
// outcome is.
func (c *card) respond(call func(context.Context) error) {
	c.th.b.beside(func(ctx context.Context) func() {
		_, err := again(ctx, func() (struct{}, error) { return struct{}{}, call(ctx) })
		return func() {
			e, ok := errors.AsType[*rpc.Error](err)
			if err == nil || ok && (e.Kind == rpc.KindApprovalNotPending || e.Kind == rpc.KindQuestionNotPending) {
				return
			}
			c.th.tell("error", fmt.Sprintf("Your answer was not taken: %v. If it still waits: muxhost inbox%s", err, c.th.b.o.Hint))
		}
	})
}
