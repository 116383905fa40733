package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// Codes of results that are errors.
const (
	codeInvalid   = "invalid-input"
	codeUnknown   = "unknown-tool"
	codeRejected  = "rejected"
	codeCancelled = "cancelled"
	codeFailed    = "failed"
)

// input is the checked input of one call of one tool.
type input interface {
	// check says what is wrong with the input, and puts it into the one form that
	// people see and that runs.
	check(cwd string) error
	title() string
	// do runs the call.
	do(ctx context.Context, c *toolRun) (frames.ToolResult, error)
}

// tool is one thing that the model may call.
type tool struct {
	kind, doc string
	gated     bool // somebody is asked before it runs
	params    string
	keys      []string
	input     func() input
}

func toolNames() []string { return slices.Sorted(maps.Keys(toolTable())) }

// offered reports whether the model has the tool.
func offered(names []string, name string) bool {
	_, ok := toolTable()[name]
	return ok && (names == nil || slices.Contains(names, name))
}

// defs describes the tools to the model, in an order that does not change.
func defs(names []string) []toolDef {
	var all []toolDef
	table := toolTable()
	for _, name := range toolNames() {
		if !offered(names, name) {
			continue
		}
		t := table[name]
		properties, required, _ := strings.Cut(t.params, "|")
		schema := `{"type":"object","properties":` + properties
		if required != "" {
			schema += `,"required":["` + strings.ReplaceAll(required, ",", `","`) + `"]`
		}
		all = append(all, toolDef{"function", functionDef{name, t.doc, json.RawMessage(schema + "}")}})
	}
	return all
}

// toolRun is one call of the model.
type toolRun struct {
	*run
	id     frames.CallID
	name   string
	tool   tool
	title  string
	frozen json.RawMessage // what people see, and what runs once it is allowed
	// locations are the file that the call is about, if it is.
	locations []frames.Location
	problem   string // why it cannot run
	code      string
}

// maxName bounds the name of a tool that does not exist.
const maxName = 100

// parse checks a call. What is wrong with it becomes its result.
func (r *run) parse(id frames.CallID, name, args string, cfg Config) *toolRun {
	c := &toolRun{run: r, id: id, name: name, tool: toolTable()[name]}
	if !offered(cfg.Tools, name) {
		c.name, _ = frames.Preview(frames.ValidText(name), maxName)
		c.tool, c.code = tool{kind: "other"}, codeUnknown
		c.problem = fmt.Sprintf("there is no tool %q; call one of %s", c.name, strings.Join(namesOf(cfg.Tools), ", "))
		return c.asSaid(args)
	}
	if strings.TrimSpace(args) == "" {
		args = "{}" // the way to call without arguments
	}
	in, err := c.tool.decode(json.RawMessage(args), r.session.Cwd)
	if err == nil {
		c.frozen, err = marshal(in)
	}
	if err != nil {
		c.code, c.problem = codeInvalid, err.Error()
		return c.asSaid(args)
	}
	c.title = oneLine(in.title())
	if f, ok := in.(interface{ file() string }); ok {
		c.locations = []frames.Location{{Path: filepath.Join(r.session.Cwd, filepath.FromSlash(f.file()))}}
	}
	return c
}

func namesOf(names []string) []string {
	if names == nil {
		return toolNames()
	}
	return names
}

// asSaid keeps what the model said where that cannot run.
func (c *toolRun) asSaid(args string) *toolRun {
	c.title = c.name
	if frames.CheckJSON([]byte(args), jsonLimits) == nil && strings.HasPrefix(strings.TrimSpace(args), "{") {
		c.frozen = json.RawMessage(args)
		return c
	}
	b, err := marshal(map[string]string{"invalid": frames.ValidText(args)})
	if err != nil {
		b = []byte("{}") // cannot happen: a string
	}
	c.frozen = b
	return c
}

// jsonLimits are those of an input that may be asked for.
var jsonLimits = frames.JSONLimits{IJSON: true}

// decode reads and checks an input.
func (t tool) decode(raw json.RawMessage, cwd string) (input, error) {
	in := t.input()
	if err := strict(raw, in, t.keys...); err != nil {
		return nil, err
	}
	return in, in.check(cwd)
}

// strict decodes a JSON object whose members are named exactly, each at most once.
func strict(raw []byte, dst any, keys ...string) error {
	if err := frames.CheckJSON(raw, jsonLimits); err != nil {
		return fmt.Errorf("not valid JSON: %w; want one object with %s", err, strings.Join(keys, ", "))
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil || all == nil {
		return fmt.Errorf("want a JSON object with %s", strings.Join(keys, ", "))
	}
	for name := range all {
		if !slices.Contains(keys, name) {
			return fmt.Errorf("there is no argument %q; want %s", name, strings.Join(keys, ", "))
		}
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(dst); err != nil {
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return fmt.Errorf("the argument %q is a %s; want another type", e.Field, e.Value)
		}
		return err
	}
	return nil
}

func (c *toolRun) announcement() frames.Payload {
	return frames.ToolCall{
		CallID: c.id, Name: c.name, Kind: c.tool.kind, Title: c.title, Input: c.frozen, Locations: c.locations,
	}
}

// execute asks for the call where that is needed, runs it, and returns its result. An
// error ends the turn; the result counts in any case.
func (c *toolRun) execute(ctx context.Context) (frames.ToolResult, error) {
	if ctx.Err() != nil {
		return c.failed(codeCancelled, "Not run: the turn was cancelled."), nil
	}
	if c.problem != "" {
		return c.failed(c.code, "Not run: "+c.problem+"."), nil
	}
	allowed := c.frozen
	if c.tool.gated {
		d, err := c.t.Ask(ctx, agent.Approval{
			Call: c.id, Tool: frames.Tool{Name: c.name, Kind: c.tool.kind, Title: c.title}, Input: c.frozen,
		})
		if err != nil {
			return c.failed("unavailable", "Not run: it could not be asked whether this may run."), fmt.Errorf("llm: asking for approval: %w", err)
		}
		if !d.Allowed() {
			return c.refused(d), nil
		}
		allowed = d.Input
	}
	in, err := c.tool.decode(allowed, c.session.Cwd)
	if err != nil {
		return c.failed(codeInvalid, "Not run: what was allowed cannot run: "+err.Error()+"."), nil
	}
	began := time.Now()
	res, err := in.do(ctx, c)
	if err != nil {
		if fatal(ctx, err) {
			return c.failed(codeFailed, "It failed: "+err.Error()), err
		}
		code := codeFailed
		if ctx.Err() != nil {
			code = codeCancelled
		}
		res = c.failed(code, err.Error())
	}
	res.DurationMs = time.Since(began).Milliseconds()
	return res, nil
}

// fatal reports whether an error is the turn's and not the call's.
func fatal(ctx context.Context, err error) bool {
	_, host := errors.AsType[*turnError](err)
	return host || ctx.Err() == nil && (errors.Is(err, agent.ErrBudget) || errors.Is(err, agent.ErrTurnOver))
}

func (c *toolRun) result(blocks ...frames.ContentBlock) frames.ToolResult {
	return frames.ToolResult{CallID: c.id, Content: blocks}
}

func (c *toolRun) failed(code, text string) frames.ToolResult {
	res := c.result(frames.Text(text))
	res.IsError, res.ErrorCode = true, code
	return res
}

// refused is the result of a call that was not allowed. A model is not told by whom.
func (c *toolRun) refused(d agent.Decision) frames.ToolResult {
	d.By = nil
	code, text := d.Refusal()
	return c.failed(code, text)
}

// whole is a text result: all of it, or a preview with the whole in a blob.
func (c *toolRun) whole(ctx context.Context, s string) (frames.ToolResult, error) {
	s = frames.ValidText(s)
	if len(s) <= inlineMax {
		return c.result(frames.Text(s)), nil
	}
	id, n, err := c.t.Blob(ctx, strings.NewReader(s))
	if err != nil {
		return frames.ToolResult{}, fmt.Errorf("the result is too large, and the whole could not be kept: %w", err)
	}
	b := frames.Text(middle(s, inlineMax))
	b.Truncated = &frames.Truncated{Bytes: n, Blob: id}
	return c.result(b), nil
}

// inlineMax is the text, in bytes, that a result holds whole.
const inlineMax = 48 << 10

// oneLine makes a title of the first line of s.
func oneLine(s string) string {
	first, _, more := strings.Cut(s, "\n")
	cut, over := frames.Preview(first, 120)
	if more || over {
		cut += " …"
	}
	return cut
}
