package recipe

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// State says how an agent can be had.
type State string

// The states.
const (
	OnPath  State = "found"   // its program is on the PATH
	ByNpx   State = "npx"     // npx runs it, and downloads it the first time
	Missing State = "missing" // neither
)

// Found is a recipe and how it can be run here.
type Found struct {
	Recipe
	State State
	// Command is the absolute path of a program, Args its arguments; empty if the
	// agent is missing.
	Command string
	Args    []string
	// Note is what a person should know: of one that is missing, how to get it.
	Note string
}

// Start is how long it may take to start.
func (f Found) Start() time.Duration {
	if f.State == ByNpx {
		return npxStartTimeout
	}
	return startTimeout
}

// Pass lists the variables of the host's environment that it sees.
func (f Found) Pass() []string {
	names := slices.Concat(everyone, f.PassEnv)
	if f.State == ByNpx {
		names = append(names, npm...)
	}
	return names
}

// Env is what detection looks at: the environment of the host.
type Env struct{ Getenv func(string) string }

// Detect says of every recipe how it can be run here, in the order in which they are
// shown. It reads no more than a few names of files, and the version of node.
func Detect(env Env) []Found {
	n := env.node()
	out := make([]Found, len(recipes))
	for i, r := range recipes {
		out[i] = env.find(r, n)
	}
	return out
}

// Find is [Detect] for one recipe.
func Find(env Env, r Recipe) Found { return env.find(r, env.node()) }

// Apart returns the arguments with which npx, which is called with args to run program,
// has it run in the directory that the variable dir names, and itself runs elsewhere:
// npx takes settings and programs from the directory in which it runs, and a session's
// holds what strangers wrote.
func Apart(dir, program string, args []string) []string {
	if runtime.GOOS == "windows" { // what runs there needs no directory
		return args
	}
	script := `cd "$` + dir + `" && exec "$0" "$@"`
	return append([]string{args[0], "-p", args[1], "--", "sh", "-c", script, program}, args[2:]...)
}

// node is what is known of node and npx.
type node struct {
	path, npx string
	major     int // 0 if it is not known
	version   string
}

func (e Env) find(r Recipe, n node) Found {
	f := Found{Recipe: r, State: Missing}
	if p := e.Look(r.Program); p != "" {
		f.State, f.Command, f.Args = OnPath, p, slices.Clone(r.Args)
		return f
	}
	pinned := r.Package + "@" + r.Version
	switch {
	case r.Package == "":
		f.Note = r.Get + ", so that " + r.Program + " is on the PATH"
	case n.path == "" || n.npx == "":
		f.Note = fmt.Sprintf("install node %d or later with npx, or: npm install -g %s", r.Node, pinned)
	case n.major != 0 && n.major < r.Node:
		f.Note = fmt.Sprintf("needs node %d or later, and %s is %s; install a newer one, or put %s on the PATH", r.Node, n.path, n.version, r.Program)
	case r.Alone && runtime.GOOS == "windows": // see Apart
		f.Note = "runs through npx in the home directory only; install it: npm install -g " + pinned
	default:
		f.State, f.Command = ByNpx, n.npx
		f.Args = append([]string{"-y", pinned}, r.Args...)
		f.Note = "downloads " + pinned + " when it is first used"
		if n.major == 0 {
			f.Note += fmt.Sprintf("; needs node %d or later, and which one %s is was not found out", r.Node, n.path)
		}
	}
	return f
}

// Look returns the absolute path of a program on the PATH, "" if there is none. Entries
// of the PATH that are not absolute are passed over: what they name depends on where
// one stands.
func (e Env) Look(name string) string {
	if name == "" || strings.ContainsAny(name, `/\`) {
		return ""
	}
	for _, dir := range filepath.SplitList(e.Getenv("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		for _, ext := range e.extensions() {
			if p := filepath.Join(dir, name+ext); Runs(p) {
				return p
			}
		}
	}
	return ""
}

func (e Env) extensions() []string {
	if runtime.GOOS != "windows" {
		return []string{""}
	}
	return []string{".exe", ".cmd", ".bat"}
}

// Runs reports whether path is a program.
func Runs(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && (runtime.GOOS == "windows" || info.Mode().Perm()&0o111 != 0)
}

func (e Env) node() node {
	n := node{path: e.Look("node"), npx: e.Look("npx")}
	if n.path != "" {
		n.version = nodeVersion(n.path)
		first, _, _ := strings.Cut(n.version, ".")
		n.major, _ = strconv.Atoi(first) // "" is not known
	}
	return n
}

var (
	versioned = regexp.MustCompile(`^(?:node-)?v?(\d{1,3}\.\d{1,3}\.\d{1,3})(?:-.*)?$`)
	defined   = regexp.MustCompile(`(?m)^#define NODE_(MAJOR|MINOR|PATCH)_VERSION (\d{1,3})\s*$`)
)

// nodeVersion finds the version of node by the names and files around it, without
// running it; "" if they do not tell.
func nodeVersion(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	bin := filepath.Dir(real)
	for dir := bin; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if m := versioned.FindStringSubmatch(filepath.Base(dir)); m != nil {
			return m[1]
		}
	}
	for _, root := range []string{filepath.Dir(bin), filepath.Dir(filepath.Dir(path))} {
		if v := headerVersion(filepath.Join(root, "include", "node", "node_version.h")); v != "" {
			return v
		}
	}
	return ""
}

// headerVersion reads the version from a header of node's.
func headerVersion(path string) string {
	const most = 64 << 10
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > most {
		return ""
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	parts := map[string]string{}
	for _, m := range defined.FindAllSubmatch(b, -1) {
		parts[string(m[1])] = string(m[2])
	}
	if len(parts) != 3 {
		return ""
	}
	return parts["MAJOR"] + "." + parts["MINOR"] + "." + parts["PATCH"]
}
