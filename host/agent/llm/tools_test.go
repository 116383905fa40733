package llm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/llm"
)

// env is the environment that commands of tests have.
var env = []string{"PATH=" + os.Getenv("PATH")}

// use opens a session in cwd whose model calls the tools, each in a step of its
// own, runs the turn, and returns the results.
func use(t *testing.T, sc agenttest.Script, o llm.Options, calls ...stubTool) (*agenttest.Host, *agenttest.Session, []frames.ToolResult) {
	t.Helper()
	var steps []step
	for _, c := range calls {
		steps = append(steps, step{Tools: []stubTool{c}})
	}
	h, s := open(t, o, sc)
	prompt(t, s, script(append(steps, step{Text: "Done."})...))
	return h, s, all[frames.ToolResult](s)
}

func one(t *testing.T, sc agenttest.Script, name, args string) frames.ToolResult {
	t.Helper()
	_, _, res := use(t, sc, options(t, &stub{}), stubTool{name, args})
	if len(res) != 1 {
		t.Fatalf("%s %s has the results %+v; want one", name, args, res)
	}
	return res[0]
}

func put(t *testing.T, dir, name, data string) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Files are written, edited, read, listed and searched below the directory.
func TestFileTools(t *testing.T) {
	d := dir(t)
	put(t, d, "old.txt", "one\ntwo\n")
	put(t, d, "sub/bin", "a\x00b two")
	put(t, d, ".git/x", "two")
	_, s, res := use(t, agenttest.Script{Cwd: d}, options(t, &stub{}),
		stubTool{"write", `{"path":"new/dir/a.go","content":"package two\n"}`},
		stubTool{"edit", `{"path":"old.txt","old":"two","new":"three"}`},
		stubTool{"read", `{"path":"` + filepath.Join(d, "old.txt") + `"}`},
		stubTool{"read", `{"path":"old.txt","from":2,"lines":1}`},
		stubTool{"list", `{}`},
		stubTool{"list", `{"path":"new","depth":2}`},
		stubTool{"search", `{"pattern":"TWO|three","ignoreCase":true}`},
		stubTool{"search", `{"pattern":"package","glob":"*.txt"}`},
	)
	want := []string{
		"Wrote 12 bytes to new/dir/a.go.", "Replaced 1 times in old.txt.", "one\nthree\n", "three\n",
		".git/\nnew/\nold.txt\nsub/\n", "new/dir/\nnew/dir/a.go\n", "new/dir/a.go:1:package two\nold.txt:2:three\n", "[Nothing matches.]",
	}
	if len(res) != len(want) {
		t.Fatalf("%d results; want %d", len(res), len(want))
	}
	for i, w := range want {
		if got := words(res[i].Content); got != w || res[i].IsError {
			t.Errorf("result %d = %q (error %v); want %q", i, got, res[i].IsError, w)
		}
	}
	if l := agenttest.Last[frames.ToolCall](s).Locations; l != nil {
		t.Errorf("a search is at %v", l)
	}
	if l := all[frames.ToolCall](s)[0].Locations; len(l) != 1 || l[0].Path != filepath.Join(d, "new/dir/a.go") {
		t.Errorf("writing is at %v", l)
	}
	if got := get(t, d, "new/dir/a.go"); got != "package two\n" {
		t.Errorf("wrote %q", got)
	}
}

// No path leads out of the directory: not upwards, not by its absolute name, not
// through links to files or directories, not to write either.
func TestNoPathLeadsOut(t *testing.T) {
	outside := dir(t)
	put(t, outside, "secret", "SECRET")
	for _, path := range []string{
		"../" + filepath.Base(outside) + "/secret", "a/../../" + filepath.Base(outside) + "/secret", filepath.Join(outside, "secret"),
		"link/secret", "file", "loop", "up/" + filepath.Base(outside) + "/secret", "/etc/passwd", "a\\u0000b",
	} {
		for name, args := range map[string]string{
			"read": `{"path":"%"}`, "write": `{"path":"%","content":"X"}`, "edit": `{"path":"%","old":"SECRET","new":"X"}`,
			"list": `{"path":"%"}`, "search": `{"path":"%","pattern":"SECRET"}`, "shell": `{"cwd":"%","command":"pwd"}`,
		} {
			t.Run(name+" "+path, func(t *testing.T) {
				d := dir(t)
				for link, to := range map[string]string{
					"link": outside, "file": filepath.Join(outside, "secret"), "loop": "loop", "up": "..",
				} {
					if err := os.Symlink(to, filepath.Join(d, link)); err != nil {
						t.Fatal(err)
					}
				}
				res := one(t, agenttest.Script{Cwd: d, Env: env}, name, strings.ReplaceAll(args, "%", path))
				if !res.IsError || strings.Contains(words(res.Content), "SECRET") {
					t.Errorf("result = %+v; want an error that tells nothing", res)
				}
				if got := get(t, outside, "secret"); got != "SECRET" {
					t.Errorf("the file outside is %q now", got)
				}
			})
		}
	}
}

// A directory of the session that was replaced by a link meanwhile is not used.
func TestReplacedDirectoryIsNotUsed(t *testing.T) {
	base, outside := dir(t), dir(t)
	d := filepath.Join(base, "work")
	put(t, d, "a", "x")
	put(t, outside, "a", "SECRET")
	sc := agenttest.Script{Cwd: d, Approve: func(context.Context, *agenttest.Session, agent.Approval) agent.Decision {
		if err := os.RemoveAll(d); err != nil {
			t.Error(err)
		}
		if err := os.Symlink(outside, d); err != nil {
			t.Error(err)
		}
		return agent.Decision{Outcome: frames.AllowedOnce}
	}}
	if res := one(t, sc, "read", `{"path":"a"}`); !res.IsError {
		t.Errorf("result = %+v; want an error", res)
	}
}

// What runs is the input of the decision, not what the model said; what was
// allowed and cannot run does not run at all.
func TestTheDecisionsInputRuns(t *testing.T) {
	for input, want := range map[string]string{
		`{"path":"b","content":"B"}`:                  "b",
		`{"path":"../b","content":"B"}`:               "",
		`{"path":"b","PATH":"c","content":"B"}`:       "",
		`{"path":"b","content":"B","path":"c"}`:       "",
		`{"command":"touch b","cwd":"` + "/" + `"}`:   "",
		`{"path":"b","content":"B","extra":"thing"} `: "",
	} {
		d := dir(t)
		sc := agenttest.Script{Cwd: d, Approve: func(context.Context, *agenttest.Session, agent.Approval) agent.Decision {
			return agent.Decision{Outcome: frames.AllowedOnce, Input: json.RawMessage(input)}
		}}
		res := one(t, sc, "write", `{"path":"a","content":"A"}`)
		files, err := filepath.Glob(d + "/*")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimPrefix(strings.Join(files, " "), d+"/"); got != want || res.IsError != (want == "") {
			t.Errorf("%s: files %q, result %+v; want %q", input, got, res, want)
		}
	}
}

// Every tool that touches files or runs something is asked for, also those that
// read, and so is spawning; a rejection goes to the model with its reason, and the turn goes on.
func TestToolsAreAskedFor(t *testing.T) {
	for name, args := range map[string]string{
		"read": `{"path":"a"}`, "write": `{"path":"b","content":""}`, "edit": `{"path":"a","old":"x","new":"y"}`,
		"list": `{}`, "search": `{"pattern":"x"}`, "shell": `{"command":"touch c"}`, "spawn": `{"prompt":"do it"}`,
	} {
		d := dir(t)
		put(t, d, "a", "x")
		var asked []agent.Approval
		sc := agenttest.Script{Cwd: d, Env: env, Approve: func(_ context.Context, _ *agenttest.Session, a agent.Approval) agent.Decision {
			asked = append(asked, a)
			return agent.Decision{Outcome: frames.Rejected, Cause: frames.CauseReply, Feedback: "not today"}
		}}
		res := one(t, sc, name, args)
		if len(asked) != 1 || asked[0].Tool.Name != name || res.ErrorCode != "rejected" || !strings.Contains(words(res.Content), "not today") {
			t.Errorf("%s: asked %+v, result %+v; want one rejection with its feedback", name, asked, res)
		}
		if exists(filepath.Join(d, "b")) || exists(filepath.Join(d, "c")) || get(t, d, "a") != "x" {
			t.Errorf("%s ran after a rejection", name)
		}
	}
}

// A call that the model got wrong is not asked for and not guessed: it goes back
// to the model as an error, and the turn goes on.
func TestWrongCallsGoBack(t *testing.T) {
	for _, c := range []struct{ name, args, code, word string }{
		{"read", `{"path":`, "invalid-input", "JSON"},
		{"read", `["a"]`, "invalid-input", "object"},
		{"read", `null`, "invalid-input", "object"},
		{"read", ``, "invalid-input", "path"},
		{"read", `{"path":"a","path":"b"}`, "invalid-input", "duplicate"},
		{"read", `{"Path":"a"}`, "invalid-input", "Path"},
		{"read", `{"path":7}`, "invalid-input", "path"},
		{"read", `{"path":"\ud800"}`, "invalid-input", "surrogate"},
		{"write", `{"path":"a"}`, "invalid-input", "content"},
		{"edit", `{"path":"a","old":"","new":"b"}`, "invalid-input", "old"},
		{"shell", `{"command":"ls","timeoutMs":99999999999999999999}`, "invalid-input", "JSON"},
		{"search", `{"pattern":"("}`, "invalid-input", "regular expression"},
		{"todo", `{"todos":[{"content":"x","status":"later"}]}`, "invalid-input", "later"},
		{"ask", `{"question":"?","options":["a","a"]}`, "invalid-input", "twice"},
		{"browse", `{"url":"x"}`, "unknown-tool", "browse"},
		{"", `{}`, "unknown-tool", "no tool"},
	} {
		srv := &stub{}
		asked := false
		sc := agenttest.Script{Approve: func(context.Context, *agenttest.Session, agent.Approval) agent.Decision {
			asked = true
			return agent.Decision{Outcome: frames.AllowedOnce}
		}}
		_, s, res := use(t, sc, options(t, srv), stubTool{c.name, c.args})
		if asked || len(res) != 1 || res[0].ErrorCode != c.code || !strings.Contains(words(res[0].Content), c.word) {
			t.Errorf("%s %s: asked %v, results %+v; want %s with %q", c.name, c.args, asked, res, c.code, c.word)
			continue
		}
		ms := srv.requests()[1].Messages
		last := ms[len(ms)-1]
		if last.Role != "tool" || !strings.Contains(last.text(), c.word) || !json.Valid([]byte(ms[len(ms)-2].ToolCalls[0].Function.Arguments)) {
			t.Errorf("%s %s: the model sees %+v; want valid arguments and the error", c.name, c.args, ms[len(ms)-2:])
		}
		if got := said(s); got != "Done." {
			t.Errorf("%s %s: the turn ended with %q", c.name, c.args, got)
		}
	}
}

// Calls of one message are asked for and run in order, and the model sees each
// result under its own call.
func TestCallsOfOneMessageRunInOrder(t *testing.T) {
	d, srv := dir(t), &stub{}
	var asked []string
	sc := agenttest.Script{Cwd: d, Env: env, Approve: func(_ context.Context, s *agenttest.Session, a agent.Approval) agent.Decision {
		asked = append(asked, a.Tool.Title)
		if len(all[frames.ToolCall](s)) != 2 || len(all[frames.ToolResult](s)) != len(asked)-1 {
			t.Errorf("asking for call %d: want both announced and earlier ones done", len(asked))
		}
		return agent.Decision{Outcome: frames.AllowedOnce}
	}}
	_, s := open(t, options(t, srv), sc)
	prompt(t, s, script(step{Tools: []stubTool{{"shell", `{"command":"echo 1 > f"}`}, {"shell", `{"command":"cat f"}`}}}, step{Text: "Done."}))
	if strings.Join(asked, "|") != "echo 1 > f|cat f" {
		t.Errorf("asked for %q", asked)
	}
	ms := srv.requests()[1].Messages
	calls := ms[2].ToolCalls
	if len(ms) != 5 || len(calls) != 2 || ms[3].ToolCallID != calls[0].ID || ms[4].ToolCallID != calls[1].ID || ms[4].text() != "1\n" {
		t.Errorf("the model sees %+v; want two calls and their results", ms[2:])
	}
	if calls[0].ID == calls[1].ID || len(calls[0].ID) != 9 {
		t.Errorf("ids = %q, %q; want two of nine characters", calls[0].ID, calls[1].ID)
	}
}

// A command's exit is an error of the call with its output; its whole output is in
// a blob where it is long, and the model sees a part that says so.
func TestShellResults(t *testing.T) {
	srv := &stub{}
	h, s, res := use(t, agenttest.Script{Env: env}, options(t, srv),
		stubTool{"shell", `{"command":"echo oh; exit 3"}`},
		stubTool{"shell", `{"command":"head -c 300000 /dev/zero | tr '\\0' a"}`},
		stubTool{"shell", `{"command":"sleep 1000","timeoutMs":50}`},
		stubTool{"shell", `{"command":"cat; pwd","cwd":"."}`})
	if res[0].ErrorCode != "exit" || words(res[0].Content) != "oh\n\n[exit 3]" {
		t.Errorf("result = %+v; want exit 3 with the output", res[0])
	}
	tr := res[1].Content[0].Truncated
	if tr == nil || !bytes.Equal(h.Blob(tr.Blob), bytes.Repeat([]byte("a"), 300_000)) {
		t.Errorf("truncated = %+v; want the whole in a blob", tr)
	}
	if res[2].ErrorCode != "timeout" || res[2].DurationMs > 20_000 {
		t.Errorf("result = %+v; want a timeout", res[2])
	}
	if got := words(res[3].Content); got != s.Info.Cwd+"\n" {
		t.Errorf("result = %q; want the directory, and no input to wait for", got)
	}
	ms := srv.requests()[4].Messages
	if got := ms[5].text(); len(got) > 26<<10 || !strings.Contains(got, "not shown") {
		t.Errorf("the model sees %d bytes of the long output; want a part", len(got))
	}
}

// A cancelled turn kills the command with what it started, and every announced
// call gets a result.
func TestCancelKillsTheCommand(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	sc := agenttest.Script{Env: env, Progress: func(_ *agenttest.Session, _ frames.CallID, text string) {
		if strings.Contains(text, "up") {
			cancel()
		}
	}}
	_, s := open(t, options(t, &stub{}), sc)
	began := time.Now()
	res, err := s.Prompt(ctx, script(step{Tools: []stubTool{
		{"shell", `{"command":"(sleep 1000; touch late) & echo up; wait"}`}, {"shell", `{"command":"touch second"}`},
	}}))
	if err != nil || res.Reason != frames.TurnCancelled || time.Since(began) > 20*time.Second {
		t.Errorf("Prompt = %+v, %v after %v; want a cancelled turn soon", res, err, time.Since(began))
	}
	results := all[frames.ToolResult](s)
	if len(results) != 2 || results[0].ErrorCode != "cancelled" || results[1].ErrorCode != "cancelled" {
		t.Errorf("results = %+v; want two that are cancelled", results)
	}
	if exists(filepath.Join(s.Info.Cwd, "second")) {
		t.Error("the second call ran")
	}
}

// A child session gets the prompt, and its last message is the result.
func TestSpawnAskTodo(t *testing.T) {
	h, s, res := use(t, agenttest.Script{}, options(t, &stub{}),
		stubTool{"spawn", `{"prompt":"do it","title":"Helper"}`},
		stubTool{"ask", `{"question":"Which?","options":["left","right"]}`},
		stubTool{"ask", `{"question":"Why?"}`},
		stubTool{"todo", `{"todos":[{"content":"x","status":"in_progress"}]}`})
	if len(h.Sessions()) != 2 || h.Sessions()[1].Title != "Helper" || words(res[0].Content) != "Stub answer" {
		t.Errorf("spawn: %d sessions, result %+v; want a child's answer", len(h.Sessions()), res[0])
	}
	if got := agenttest.Last[frames.AgentSpawned](s).CallID; got != res[0].CallID {
		t.Errorf("agent/spawned names the call %q; want %q", got, res[0].CallID)
	}
	if words(res[1].Content) != "left" || words(res[2].Content) != "yes" {
		t.Errorf("ask = %+v, %+v; want left, and yes", res[1], res[2])
	}
	if w := agenttest.Last[frames.TodoWrite](s); len(w.Todos) != 1 || w.Todos[0].Status != "in_progress" {
		t.Errorf("todo/write = %+v", w)
	}
}

// A child may be an agent of another kind, which is not configured as this one; one
// that does not exist is an error that goes to the model.
func TestSpawnOfAnotherKind(t *testing.T) {
	srv := &stub{}
	o := options(t, srv)
	other := o
	other.Name, other.Model = "other", "second"
	h := agenttest.New(agenttest.Script{Cwd: dir(t)}, llm.New(o), llm.New(other))
	defer h.Close()
	s, err := h.Open(t.Context(), json.RawMessage(`{"system":"Be kind."}`))
	if err != nil {
		t.Fatal(err)
	}
	srv.push(
		step{Tools: []stubTool{{"spawn", `{"prompt":"one","agent":"other"}`}, {"spawn", `{"prompt":"two","agent":"llm"}`}, {"spawn", `{"prompt":"three","agent":"none"}`}}},
		step{Text: "I am another."}, step{Text: "I am like you."},
	)
	prompt(t, s, "go")
	res := all[frames.ToolResult](s)
	if len(res) != 3 || words(res[0].Content) != "I am another." || words(res[1].Content) != "I am like you." || !res[2].IsError {
		t.Fatalf("results = %+v; want two answers and an error", res)
	}
	seen := srv.requests()
	if seen[1].Model != "second" || strings.Contains(seen[1].Body, "Be kind.") || seen[2].Model != "stub" || !strings.Contains(seen[2].Body, "Be kind.") {
		t.Errorf("children had the models %q and %q; want the other's own, and this one's configuration", seen[1].Model, seen[2].Model)
	}
}

// A long file is read in parts that together are the whole.
func TestReadGoesOnWhereItStopped(t *testing.T) {
	d := dir(t)
	var want strings.Builder
	for i := range 3000 {
		want.WriteString(strings.Repeat("x", i%50) + "\n")
	}
	put(t, d, "f", want.String())
	put(t, d, "long", strings.Repeat("y", 1<<20)+"\nend\n")
	_, _, res := use(t, agenttest.Script{Cwd: d}, options(t, &stub{}),
		stubTool{"read", `{"path":"f"}`}, stubTool{"read", `{"path":"f","from":1,"lines":3}`},
		stubTool{"read", `{"path":"f","from":9000}`}, stubTool{"read", `{"path":"long"}`}, stubTool{"read", `{"path":"long","from":2}`})
	first := words(res[0].Content)
	body, _, more := strings.Cut(first, "[There is more: go on with from=")
	if !more || !strings.HasPrefix(want.String(), body) || len(first) > 24<<10 {
		t.Errorf("the first part has %d bytes and is no beginning of the file", len(first))
	}
	if got := words(res[1].Content); got != "\nx\nxx\n[There is more: go on with from=4.]" {
		t.Errorf("three lines = %q", got)
	}
	if got := words(res[2].Content); got != "[The file has 3000 lines.]" {
		t.Errorf("behind the end = %q", got)
	}
	if got := words(res[3].Content); len(got) > 25<<10 || !strings.Contains(got, "the line is longer") {
		t.Errorf("a long line makes %d bytes", len(got))
	}
	if got := words(res[4].Content); got != "end\n" {
		t.Errorf("behind the long line = %q", got)
	}
}

// Files keep their mode, and links within the directory are followed.
func TestWriteKeepsModeAndLinks(t *testing.T) {
	d := dir(t)
	put(t, d, "run.sh", "old")
	if err := os.Chmod(filepath.Join(d, "run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("run.sh", filepath.Join(d, "link")); err != nil {
		t.Fatal(err)
	}
	use(t, agenttest.Script{Cwd: d}, options(t, &stub{}),
		stubTool{"edit", `{"path":"run.sh","old":"old","new":"new"}`}, stubTool{"write", `{"path":"link","content":"newer"}`})
	fi, err := os.Lstat(filepath.Join(d, "run.sh"))
	if err != nil || fi.Mode().Perm() != 0o755 || get(t, d, "run.sh") != "newer" {
		t.Errorf("run.sh = %v, %v, %q; want mode 755 and the new text", fi, err, get(t, d, "run.sh"))
	}
	if fi, err := os.Lstat(filepath.Join(d, "link")); err != nil || fi.Mode()&os.ModeSymlink == 0 {
		t.Errorf("link = %v, %v; want a link still", fi, err)
	}
	if left, err := os.ReadDir(d); err != nil || len(left) != 2 {
		t.Errorf("files = %v, %v; want no other", left, err)
	}
}
