package conform

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// wides is the role that makes events too large for one frame, and one of a
// vendor's.
func wides(size int) obj { return obj{"role": "wide", "count": size / 1000, "size": 1000} }

// wide plays the role; it returns the session while its approval is open.
func (t *T) wide(size int) (session, *peer) {
	p := t.dial()
	s := t.session(p, wides(size))
	p.subscribe(s)
	if r := p.call("session.prompt", obj{"sessionId": s.id, "content": say("go")}); r.err != nil {
		t.skip("the test agent has no role wide: %s", r)
	}
	m := p.wait("an approval, or the end of the turn", func(m message) bool {
		return m.method == "approval/requested" || m.event.str("type") == "turn/end"
	})
	if m.event != nil {
		t.skip("the test agent has no role wide: its turn ended %s", m.event.str("data.reason"))
	}
	return s, p
}

const wideSize = 300_000

func eventTruncated(t *T) {
	s, p := t.wide(wideSize)
	p.allow(p.asked(s), "rejected")
	p.event(s, "turn/end")
	said := only(p.eventsOf(s, 0), "assistant/message")
	t.must(len(said) > 0, "an assistant/message", p.recent())
	block := said[len(said)-1].obj("data.content.0")
	cut := block.obj("truncated")
	t.must(cut.num("bytes") >= wideSize && strings.HasPrefix(cut.str("blob"), "sha256-"), "truncated with bytes and blob", clip(text(block)))
	whole := p.blob(cut.str("blob"))
	t.equal("bytes of the blob", int64(len(whole)), cut.num("bytes"))
	t.must(strings.HasPrefix(string(whole), strings.TrimRight(block.str("text"), "…\ufffd")[:1000]), "a preview of the whole", clip(block.str("text")))
	sum := sha256.Sum256(whole)
	t.equal("the blob's name", "sha256-"+hex.EncodeToString(sum[:]), cut.str("blob"))
}

// blob reads a blob in pages.
func (p *peer) blob(id string) []byte {
	var out []byte
	for {
		r := p.ok("blob.read", obj{"blob": id, "offset": len(out), "limit": 100_000})
		page, err := base64.StdEncoding.DecodeString(r.str("data"))
		p.t.must(err == nil && len(page) <= 100_000, "base64 of at most the limit", clip(text(r)))
		out = append(out, page...)
		if !r.flag("more") {
			p.t.equal("bytes", r.num("bytes"), int64(len(out)))
			return out
		}
		p.t.must(len(page) > 0, "a page that is not empty while there is more", r)
	}
}

func eventTruncatedInput(t *T) {
	s, p := t.wide(wideSize)
	card := p.asked(s)
	t.must(card.num("truncated.bytes") > wideSize && card.str("inputHash") != "", "truncated and inputHash", clip(text(card)))
	t.must(!slices.Contains(card.strs("options"), "allowed-always"), "no allowed-always among the options", card.strs("options"))
	for _, bad := range []obj{{"outcome": "allowed-always"}, {"outcome": "allowed-once"}} {
		r := p.call("approval.respond", obj{"sessionId": s.id, "id": card.str("id")}.with(bad))
		t.must(r.err != nil, fmt.Sprint(bad.str("outcome"), " is refused without inputHash"), r.String())
	}
	p.allow(card, "allowed-once", obj{"inputHash": card.str("inputHash")})
}
