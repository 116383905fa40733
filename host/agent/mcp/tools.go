package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// spawnTool starts subagents. spawnName is the name by which policies know it, which no
// agent can give to a call of its own; it is the only tool that a policy is asked about.
const (
	spawnTool = "spawn_subagent"
	spawnName = agent.OwnTools + spawnTool
)

// askTool asks people, and askAlias is its name for callers that take away every tool
// with the first one, whoever's it is (gemini-cli, while it is driven by a host).
const (
	askTool  = "ask_user"
	askAlias = "ask_people"
)

// oneName lists each tool under one name only.
func oneName(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		res, err := next(ctx, method, req)
		if l, ok := res.(*sdk.ListToolsResult); ok && err == nil {
			hide := askAlias
			if strings.HasPrefix(caller(req), "gemini-cli") {
				hide = askTool
			}
			l.Tools = slices.DeleteFunc(slices.Clone(l.Tools), func(t *sdk.Tool) bool { return t.Name == hide })
		}
		return res, err
	}
}

// caller is what the client of a request calls itself, "" if it did not say.
func caller(req sdk.Request) string {
	ss, ok := req.GetSession().(*sdk.ServerSession)
	if !ok {
		return ""
	}
	if p := ss.InitializeParams(); p != nil && p.ClientInfo != nil {
		return p.ClientInfo.Name
	}
	return ""
}

// DefaultRules let spawn_subagent run unasked. They are for whoever configures a
// host: without them every spawn is asked for. What restricts a parent restricts its
// children; beyond that a child of another agent may do unasked what the host's
// configuration allows that one. A deny or ask rule beats them.
func DefaultRules() []frames.Rule {
	return []frames.Rule{{Tool: spawnName, Decision: "allow"}}
}

const instructions = "Tools of muxhost, the program that runs this session: start subagents, ask the people who watch it, show them your plan."

// tool is what callers are told of a tool.
type tool struct {
	name, title, text string
	// doing is what progress says while a call runs.
	doing string
	// props are the properties of its arguments, and must are those that it needs.
	props string
	must  []string
	quiet bool // it changes nothing but what people see
}

// declare makes the protocol's form of t. Arguments that are not listed are refused.
func (t tool) declare() *sdk.Tool {
	must, _ := json.Marshal(t.must) // strings
	d := &sdk.Tool{
		Name: t.name, Title: t.title, Description: t.text,
		InputSchema: json.RawMessage(fmt.Sprintf(
			`{"type":"object","properties":%s,"required":%s,"additionalProperties":false}`, t.props, must)),
	}
	if t.quiet {
		d.Annotations = &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: new(false)}
	}
	return d
}

func (d *door) addTools() {
	add(d, tool{
		name: spawnTool, title: "Start a subagent", text: d.spawnText(), doing: "the subagent has worked",
		must: []string{"prompt"},
		props: `{"prompt":{"type":"string","description":"all that the subagent must know: it sees nothing of this conversation"},` +
			`"agent":{"type":"string","description":"which agent it is; yours if left out"},` +
			`"cwd":{"type":"string","description":"the directory it works in, your own or one below it; a relative path starts at yours"},` +
			`"title":{"type":"string","description":"a few words for people"}}`,
	}, (*call).spawn)
	asks := tool{
		name: askTool, title: "Ask people", doing: "the question has waited", must: []string{"questions"}, quiet: true,
		text: "Asks the people who watch this session and waits for their answer. Use it when a decision is theirs and you cannot go on " +
			"without it. It approves nothing: what needs approval is asked for by itself. Nobody may be there; then you are told so.",
		props: `{"questions":{"type":"array","minItems":1,"maxItems":10,"items":{"type":"object","additionalProperties":false,"required":["question"],"properties":{` +
			`"question":{"type":"string"},"header":{"type":"string","description":"one or two words above it"},` +
			`"options":{"type":"array","maxItems":20,"description":"answers to choose from; without any, people write",` +
			`"items":{"type":"object","additionalProperties":false,"required":["label"],"properties":{"label":{"type":"string"},"description":{"type":"string"}}}},` +
			`"multiSelect":{"type":"boolean","description":"more than one option may be chosen"},` +
			`"allowText":{"type":"boolean","description":"people may write something else"}}}}}`,
	}
	add(d, asks, (*call).ask)
	asks.name = askAlias
	add(d, asks, (*call).ask)
	add(d, tool{
		name: "report_todo", title: "Show the plan", doing: "the plan has waited", must: []string{"todos"}, quiet: true,
		text: "Shows people your plan. Send the whole list every time; it replaces the one before.",
		props: `{"todos":{"type":"array","maxItems":200,"items":{"type":"object","additionalProperties":false,"required":["content","status"],"properties":{` +
			`"id":{"type":"string"},"content":{"type":"string"},"status":{"type":"string","enum":["pending","in_progress","completed"]},` +
			`"priority":{"type":"string","enum":["high","medium","low"]}}}}}`,
	}, (*call).todo)
}

// spawnText tells which agents there are.
func (d *door) spawnText() string {
	var b strings.Builder
	b.WriteString("Starts another agent as a subagent on a task of its own, waits until it is done, and returns its last message. " +
		"It works under the same policy as you. Several may run in parallel: call the tool several times at once. " +
		"If a call ends before the subagent did (a time limit of yours), make the same call again, with the same arguments: it waits for the same subagent.")
	infos := d.s.agents()
	if len(infos) > 0 {
		b.WriteString("\nAgents:")
	}
	for _, a := range infos {
		fmt.Fprintf(&b, "\n- %s: %s", a.Name, a.Kind)
		if a.Model != "" {
			fmt.Fprintf(&b, ", %s", a.Model)
		}
		if len(a.Capabilities) > 0 {
			fmt.Fprintf(&b, " (%s)", strings.Join(a.Capabilities, ", "))
		}
	}
	return b.String()
}

// todoArgs are those of report_todo.
type todoArgs struct {
	Todos []frames.Todo `json:"todos"`
}

// todo shows the plan.
func (c *call) todo(in todoArgs) (string, error) {
	if in.Todos == nil {
		in.Todos = []frames.Todo{}
	}
	if err := c.turn().Emit(c.ctx, frames.TodoWrite{Todos: in.Todos}); err != nil {
		return "", c.failed("the plan was not shown", err)
	}
	return fmt.Sprintf("The plan is shown: %d entries.", len(in.Todos)), nil
}
