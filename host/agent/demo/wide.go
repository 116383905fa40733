package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// maxWide bounds what role wide makes at once, in bytes.
const maxWide = 8 << 20

// note is the data of the vendor's event of role wide.
const note = `{"text":"é \"x\"","n":1.50,"deep":{"a":[1,null,true,"\u2028"]},"seq":7,"type":"turn/end"}`

// wide plays role wide: an event of a vendor's type; then Count times Size bytes,
// which no frame holds where that is much, as the input of a call that asks for
// approval, and as a message.
func (p *player) wide(ctx context.Context) error {
	c := p.demo.config
	if c.Count*c.Size > maxWide {
		return fmt.Errorf("demo: config: count times size is %d; want at most %d", c.Count*c.Size, maxWide)
	}
	var whole strings.Builder
	for i := range c.Count {
		whole.WriteString(chunk(i, c.Size))
	}
	input, err := json.Marshal(map[string]string{"text": whole.String()})
	if err != nil {
		return fmt.Errorf("demo: encoding a large input: %w", err)
	}
	if err := p.t.Emit(ctx, agent.Raw{Type: "conform.example/note", Data: json.RawMessage(note)}); err != nil {
		return err
	}
	if _, err := p.ask(ctx, frames.Tool{Name: "wide", Kind: "other", Title: "Something large"}, input, ""); err != nil {
		return err
	}
	return p.message(ctx, p.t.NewBlock(), whole.String())
}
