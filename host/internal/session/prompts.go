package session

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// maxPrompt bounds the text of a prompt, in bytes.
const maxPrompt = 192 << 10

// Prompt accepts a prompt; placed is called once its acceptance is durable. A
// prompt id that was used before returns the first answer and runs nothing.
func (m *Manager) Prompt(ctx context.Context, p PromptArgs, placed func(PromptAnswer)) error {
	if placed == nil {
		placed = func(PromptAnswer) {}
	}
	if p.Mode == "" {
		p.Mode = frames.ModeQueue
	}
	hash, err := checkPrompt(&p)
	if err != nil {
		return err
	}
	if _, ok := m.Get(p.Session); !ok {
		return ErrNoSession
	}
	if p.ID == "" {
		p.ID = frames.PromptID(m.cfg.NewID())
	} else if again, err := m.repeated(ctx, &p, hash); err != nil || again != nil {
		return answered(again, err, placed)
	}
	if m.isDraining() {
		return ErrDraining
	}
	return m.in(ctx, p.Session, func(a *actor) error { return a.prompt(&p, hash, nil, placed) })
}

func answered(again *PromptAnswer, err error, placed func(PromptAnswer)) error {
	if err == nil {
		placed(*again)
	}
	return err
}

// checkPrompt checks what a prompt says and returns its hash.
func checkPrompt(p *PromptArgs) (string, error) {
	switch p.Mode {
	case frames.ModeQueue, frames.ModeSteer, frames.ModeInject:
	default:
		return "", &ParamError{"mode", fmt.Sprintf("want queue, steer or inject, got %q", p.Mode)}
	}
	if len(p.Content) == 0 {
		return "", &ParamError{"content", "want at least one block"}
	}
	if len(p.ID) > maxName {
		return "", &ParamError{"promptId", fmt.Sprintf("want at most %d bytes, got %d", maxName, len(p.ID))}
	}
	text := 0
	for _, b := range p.Content {
		text += len(b.Text)
	}
	if text > maxPrompt {
		return "", fmt.Errorf("%w: the prompt has %d bytes of text, want at most %d: store it with blob.write and link the blob", ErrTooLarge, text, maxPrompt)
	}
	e, err := frames.NewEvent(frames.PromptQueued{PromptID: p.ID, Mode: p.Mode, Content: p.Content})
	if err != nil {
		return "", &ParamError{"content", err.Error()}
	}
	if len(e.Data) > maxData {
		return "", fmt.Errorf("%w: the prompt has %d bytes as an event, want at most %d: store it with blob.write and link the blob", ErrTooLarge, len(e.Data), maxData)
	}
	return promptHash(p.Mode, p.Content)
}

// prompted returns the row of a prompt, nil if the id was never used.
func (m *Manager) prompted(ctx context.Context, sid frames.SessionID, id frames.PromptID) (*promptRow, error) {
	v, err := m.cfg.Store.Get(ctx, store.TablePrompt, promptKey(sid, id))
	if err != nil {
		return nil, &StorageError{err}
	}
	if v == nil {
		return nil, nil
	}
	r := new(promptRow)
	if err := json.Unmarshal(v, r); err != nil {
		return nil, &StorageError{fmt.Errorf("%w: prompt %s: %v", store.ErrCorrupt, id, err)}
	}
	return r, nil
}

// repeated returns the first answer to a prompt id that was used before.
func (m *Manager) repeated(ctx context.Context, p *PromptArgs, hash string) (*PromptAnswer, error) {
	r, err := m.prompted(ctx, p.Session, p.ID)
	if err != nil || r == nil {
		return nil, err
	}
	if r.Hash != hash || r.Mode != p.Mode {
		return nil, ErrPromptConflict
	}
	return &PromptAnswer{ID: p.ID, Turn: r.Turn, Queued: r.Queued}, nil
}

// prompt is the step that accepts a prompt.
func (a *actor) prompt(p *PromptArgs, hash string, link *child, placed func(PromptAnswer)) error {
	if again, err := a.m.repeated(a.m.io, p, hash); err != nil || again != nil {
		return answered(again, err, placed)
	}
	if err := a.admit(p); err != nil {
		return err
	}
	switch {
	case p.Mode == frames.ModeInject:
		return a.inject(p, hash, placed)
	case a.turn == nil && len(a.rec.Queue) == 0:
		q := queued{ID: p.ID, Mode: p.Mode, Turn: frames.TurnID(a.m.cfg.NewID()), By: p.By}
		a.contents[p.ID] = p.Content
		err := a.begin(q, &start{hash: hash, link: link, placed: placed})
		if err != nil {
			delete(a.contents, p.ID)
		}
		return err
	default:
		return a.enqueue(p, hash, placed)
	}
}

// admit refuses prompts that may not be accepted now.
func (a *actor) admit(p *PromptArgs) error {
	switch {
	case a.m.isDraining():
		return ErrDraining
	case a.m.isClosing(a.e):
		return ErrClosing
	case p.Mode != frames.ModeInject && len(a.rec.Queue) >= a.m.cfg.MaxQueue,
		p.Mode == frames.ModeInject && len(a.rec.Contexts) >= a.m.cfg.MaxQueue:
		return ErrQueueFull
	case p.Mode == frames.ModeInject:
		return nil
	}
	return a.m.covers(a.e, p.Mode != frames.ModeSteer || !a.steerable())
}

// inject stores context for the next turn.
func (a *actor) inject(p *PromptArgs, hash string, placed func(PromptAnswer)) error {
	c := &commit{by: p.By, next: a.rec.clone()}
	c.add(frames.ContextMessage{PromptID: p.ID, Content: p.Content})
	c.next.Contexts = append(c.next.Contexts, p.ID)
	c.row(promptRow{Hash: hash, Mode: p.Mode, Content: p.Content}.row(a.id, p.ID))
	c.then = func() { a.contents[p.ID] = p.Content }
	c.placed = func() { placed(PromptAnswer{ID: p.ID}) }
	return a.commit(c)
}

// enqueue accepts a prompt that waits: for its turn, or for the running turn to
// take it.
func (a *actor) enqueue(p *PromptArgs, hash string, placed func(PromptAnswer)) error {
	q := queued{ID: p.ID, Mode: p.Mode, By: p.By}
	answer := PromptAnswer{ID: p.ID, Queued: true}
	if p.Mode == frames.ModeSteer && a.steerable() {
		q.Steer, answer.Turn = true, a.turn.id
	} else {
		q.Turn = frames.TurnID(a.m.cfg.NewID())
		answer.Turn = q.Turn
	}
	c := &commit{turn: answer.Turn, by: p.By, next: a.rec.clone()}
	c.add(frames.PromptQueued{PromptID: p.ID, Mode: p.Mode, Content: p.Content})
	c.next.enqueue(q)
	c.row(promptRow{Hash: hash, Mode: p.Mode, Turn: answer.Turn, Queued: true, Content: p.Content}.row(a.id, p.ID))
	c.then = func() { a.contents[p.ID] = p.Content }
	c.placed = func() { placed(answer) }
	if err := a.commit(c); err != nil {
		return err
	}
	a.offer()
	a.startNext()
	return nil
}
