package doctor

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/config"
	"github.com/muxhost/muxhost/cmd/muxhost/internal/recipe"
	"github.com/muxhost/muxhost/cmd/muxhost/internal/roster"
)

// node looks at what agents from npm need.
func (v *visit) node() {
	var through []string
	least := 0
	for _, e := range v.entries {
		switch {
		case e.State == roster.ByNpx && strings.Contains(e.Note, "was not found out"):
			v.say("node", Warn, fmt.Sprintf("%s needs node %d or later, and which one this is was not found out", e.Name, e.Node), "look with: node --version")
			return
		case e.State == roster.Missing && strings.HasPrefix(e.Note, "needs node"):
			level := Warn
			if e.Source == "built-in" { // nobody asked for it
				level = Info
			}
			v.say("node", level, e.Name+" "+e.Note, "")
			return
		case e.State == roster.ByNpx:
			through, least = append(through, e.Name), max(least, e.Node)
		}
	}
	machine := recipe.Env{Getenv: v.Getenv}
	switch {
	case len(through) > 0:
		v.say("node", OK, fmt.Sprintf("%s is %d or later, and npx runs %s", machine.Look("node"), least, strings.Join(through, ", ")), "")
	case v.broken:
	case machine.Look("node") == "" || machine.Look("npx") == "":
		v.say("node", Info, "there is none with npx; agents that come through npx are not offered", "install node 22 or later if you want them")
	default:
		v.say("node", OK, machine.Look("node")+"; no agent needs npx", "")
	}
}

// agents looks at each agent, and starts them where the world can.
func (v *visit) agents() {
	if v.broken {
		v.say("agents", Info, "not looked at: the configuration does not hold", "")
		return
	}
	var missing []string
	for _, e := range v.entries {
		switch {
		case v.ctx.Err() != nil:
			return
		case e.State == roster.Missing && e.Source == "built-in":
			missing = append(missing, e.Name)
		default:
			v.agent(e)
		}
	}
	if len(missing) > 0 {
		v.say("agents", Info, "not on this machine: "+strings.Join(missing, ", "), "muxhost agents ls"+v.Hint+" says how to get them")
	}
	if v.Probe == nil {
		v.say("agents", Info, "none was started", "muxhost doctor --agents"+v.Hint+" starts each one, asks who it is, and ends it again")
	}
}

// agent looks at one agent.
func (v *visit) agent(e roster.Entry) {
	check := "agent " + e.Name
	switch e.State {
	case roster.Missing:
		v.say(check, Fail, e.Note, "install it, or mend "+e.Source+", or write enabled = false there")
		return
	case roster.Disabled:
		v.say(check, Info, e.Note, "")
		return
	case roster.BuiltIn:
		v.say(check, OK, "part of the host", "")
		return
	case roster.Endpoint:
		if e.Note != "" {
			v.say(check, Warn, e.Note, "set it for the host, or leave out api-key-env if the endpoint needs no key")
		}
	}
	if v.Probe == nil || e.State == roster.ByNpx && e.Source == "built-in" {
		v.say(check, OK, describe(e), "")
		return
	}
	v.probe(check, e)
}

// probe starts one agent. One that nobody configured is no failure.
func (v *visit) probe(check string, e roster.Entry) {
	r, err := v.Probe(v.ctx, e)
	if err != nil {
		level := Fail
		if e.Source == "built-in" {
			level = Warn
		}
		what, fix, _ := strings.Cut(err.Error(), "\n")
		if fix == "" {
			fix = "muxhost agents test " + e.Name + v.Hint + " tells more"
		}
		v.say(check, level, describe(e)+"; it does not answer: "+what, strings.ReplaceAll(fix, "\n", "; "))
		return
	}
	what := describe(e) + "; "
	switch {
	case e.Kind == config.KindLLM:
		what += "it answers and has " + count(len(r.Models), "model") + ", this one among them"
	case r.Agent+r.Version != "":
		what += "it is " + strings.TrimSpace(r.Agent+" "+r.Version)
	default:
		what += "it answers"
	}
	if r.Mode != "" {
		what += fmt.Sprintf(", and acknowledged the mode %q", r.Mode)
	}
	v.say(check, OK, what+fmt.Sprintf(" (%v)", r.Took.Round(10*time.Millisecond)), "")
}

var keyName = regexp.MustCompile(`(KEY|TOKEN|SECRET|PASSWORD)$`)

// describe says what an agent is, and which keys it is given, by name.
func describe(e roster.Entry) string {
	if e.Kind == config.KindLLM {
		at := "?"
		if u, err := url.Parse(e.LLM.BaseURL); err == nil {
			at = u.Host
		}
		return fmt.Sprintf("model %s at %s", e.Model, at)
	}
	what := "found: " + strings.Join(e.Command, " ")
	if e.State == roster.ByNpx {
		what = "through npx: " + strings.Join(e.Command, " ")
	}
	var keys []string
	for _, n := range e.EnvNames {
		if keyName.MatchString(n) {
			keys = append(keys, n)
		}
	}
	if len(keys) == 0 {
		return what + "; no key is set for it (it may have a login of its own)"
	}
	return what + "; it gets " + strings.Join(keys, ", ")
}
