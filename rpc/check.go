package rpc

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/muxhost/muxhost/frames"
)

// Bounds of params; the defaults are the host's business.
const (
	MaxListLimit    = 500
	MaxHistoryLimit = 1000
	MaxHistoryBytes = 192 << 10
	MaxBlobLimit    = 128 << 10
)

// word refuses a value outside its set; an absent one is fine.
func word[S ~string](path string, value S, allowed ...S) error {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = fmt.Sprintf("%q", string(a))
	}
	return Paramsf("params.%s: expected one of %s, got %s", path, strings.Join(names, ", "), show(string(value)))
}

// between refuses a number outside [low, high].
func between[N int | int64](path string, n, low, high N) error {
	if n < low || n > high {
		return Paramsf("params.%s: expected %d to %d, got %d", path, low, high, n)
	}
	return nil
}

// first returns the first error there is.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *SubscribeParams) check() error {
	if len(p.Sessions) == 0 && !p.Host {
		return Paramsf(`params: nothing to subscribe; name "sessions" or set "host"`)
	}
	seen := make(map[frames.SessionID]bool, len(p.Sessions))
	for i, s := range p.Sessions {
		if seen[s.SessionID] {
			return Paramsf("params.sessions[%d]: the session is named twice; name it once", i)
		}
		seen[s.SessionID] = true
	}
	if p.Delivery == nil {
		return nil
	}
	return first(
		word("delivery.text", p.Delivery.Text, "stream", "final"),
		word("delivery.reasoning", p.Delivery.Reasoning, "stream", "final", "off"),
		word("delivery.tools", p.Delivery.Tools, "stream", "off"))
}

func (p *UnsubscribeParams) check() error {
	if len(p.Sessions) == 0 && !p.Host {
		return Paramsf(`params: nothing to unsubscribe; name "sessions" or set "host"`)
	}
	return nil
}

func (p *ListParams) check() error {
	return first(
		word("state", p.State, frames.StateIdle, frames.StateRunning, frames.StateRequiresAction),
		between("limit", p.Limit, 0, MaxListLimit))
}

func (p *CreateParams) check() error { return first(checkPolicy(p.Policy), checkBudget(p.Budget)) }

func (p *ConfigureParams) check() error {
	if len(p.Options) > 0 && p.Options[0] != '{' {
		return Paramsf("params.options: expected an object, got %s", kindOf(p.Options))
	}
	return first(checkPolicy(p.Policy), checkBudget(p.Budget))
}

func checkPolicy(p *frames.Policy) error {
	if p == nil {
		return nil
	}
	for i, r := range p.Rules {
		if err := word(fmt.Sprintf("policy.rules[%d].decision", i), r.Decision, "allow", "deny", "ask"); err != nil {
			return err
		}
	}
	return first(
		word("policy.mode", p.Mode, "ask", "deny"),
		between("policy.askTimeoutMs", p.AskTimeoutMs, 0, frames.MaxInteger-1))
}

func checkBudget(b *frames.Budget) error {
	if b == nil {
		return nil
	}
	if !decimal(b.Cost) {
		return Paramsf(`params.budget.cost: expected a decimal number in a string such as "2.50", got %s`, show(b.Cost))
	}
	return first(
		word("budget.action", b.Action, "block", "warn"),
		between("budget.tokens", b.Tokens, 0, frames.MaxInteger-1),
		between("budget.turns", b.Turns, 0, frames.MaxInteger-1))
}

// decimal reports whether s is empty or digits with at most one point between.
func decimal(s string) bool {
	whole, part, point := strings.Cut(s, ".")
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	return s == "" || digits(whole) && (!point || digits(part))
}

func (p *HistoryParams) check() error {
	if p.After != nil && p.Before != nil {
		return Paramsf(`params: "after" and "before" exclude each other; send one`)
	}
	return first(
		between("limit", p.Limit, 0, MaxHistoryLimit),
		between("maxBytes", p.MaxBytes, 0, MaxHistoryBytes))
}

func (p *PromptParams) check() error {
	if len(p.Content) == 0 {
		return Paramsf("params.content: at least one block is needed")
	}
	for i, b := range p.Content {
		if needs := blockNeeds(b); needs != "" {
			return Paramsf("params.content[%d]%s", i, needs)
		}
	}
	return word("mode", p.Mode, frames.ModeQueue, frames.ModeSteer, frames.ModeInject)
}

// blockNeeds says what a block lacks to be one of its type, "" for nothing.
func blockNeeds(b frames.ContentBlock) string {
	switch b.Type {
	case "text", "resource":
		return ""
	case "image":
		if b.Data == "" && b.Blob == "" && b.URI == "" {
			return `: an image needs "data", "blob" or "uri"`
		}
		if _, err := base64.StdEncoding.Strict().DecodeString(b.Data); err != nil {
			return `.data: expected standard base64 with padding: ` + err.Error()
		}
		return ""
	case "resource_link":
		if b.URI == "" {
			return `: a resource_link needs "uri"`
		}
		return ""
	}
	return `.type: expected one of "text", "image", "resource", "resource_link", got ` + show(b.Type)
}

// hashLen is the length of an input hash, maxGrantMs how long a grant may hold.
const (
	hashLen    = 64
	maxGrantMs = 30 * 24 * 60 * 60 * 1000
)

func (p *ApprovalParams) check() error {
	if err := word("outcome", p.Outcome, frames.AllowedOnce, frames.AllowedAlways, frames.Rejected); err != nil {
		return err
	}
	if p.InputHash != nil && len(*p.InputHash) != hashLen {
		return Paramsf("params.inputHash: expected %d hex digits, got %d characters; leave it out to send none", hashLen, len(*p.InputHash))
	}
	if p.Grant == nil {
		return nil
	}
	if p.Outcome != frames.AllowedAlways {
		return Paramsf(`params.grant: only with the outcome "allowed-always", got %q`, p.Outcome)
	}
	if err := word("grant.scope", p.Grant.Scope, "session", "project"); err != nil || p.Grant.ForMs == nil {
		return err
	}
	return between("grant.forMs", *p.Grant.ForMs, 1, maxGrantMs)
}

func (p *QuestionParams) check() error {
	if p.Cancel == (len(p.Answers) > 0) {
		return Paramsf(`params: send either "answers", at least one, or "cancel": true`)
	}
	return nil
}

func (p *BlobReadParams) check() error {
	return first(
		between("offset", p.Offset, 0, frames.MaxInteger-1),
		between("limit", p.Limit, 0, MaxBlobLimit))
}
