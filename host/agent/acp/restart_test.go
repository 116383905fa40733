package acp_test

import (
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// An agent that crashes again and again is left alone for a time that doubles: a prompt
// fails at once, and says when the next try is. After a good while all is forgotten.
func TestAnAgentThatCrashesAgainAndAgainIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		starts, good := 0, false
		d := driver(t, acp.Options{}, func(f *fake) {
			starts++
			serveCrowd(canResume, func(*crowd) {}, func(c *crowd, id string, _ message) {
				if good {
					c.finish(id, "end_turn")
				} else {
					panicked(c.fake)
				}
			})(f)
		})
		s := open(t, agenttest.Script{}, d)
		crash := func() {
			t.Helper()
			if _, err := s.Prompt(t.Context(), "go"); err == nil || strings.Contains(err.Error(), "again and again") {
				t.Fatalf("Prompt = %v; want a crash", err)
			}
		}
		for range 5 {
			crash()
		}
		for _, delay := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			delay *= time.Second
			for _, wait := range []time.Duration{0, delay - 2*time.Second, 2 * time.Second} {
				<-time.After(wait)
				began, n := time.Now(), starts
				if wait == 2*time.Second {
					crash()
					continue
				}
				_, err := s.Prompt(t.Context(), "go")
				if err == nil || !strings.Contains(err.Error(), "again and again") || time.Since(began) > time.Second || starts != n {
					t.Fatalf("Prompt = %v with a delay of %v, after %v; want a refusal at once", err, delay, time.Since(began))
				}
				next := time.Now().Add(delay - wait).UTC().Format("15:04")
				if !strings.Contains(err.Error(), next) {
					t.Errorf("%v; want the time of the next try, %s", err, next)
				}
			}
		}
		<-time.After(8 * time.Minute)
		crash() // as the first one
		good = true
		prompt(t, s)
	})
}

// A start that fails counts like a crash; crashes that are far apart do not add up.
func TestWhatCountsAsAFailure(t *testing.T) {
	for name, c := range map[string]struct {
		pause   time.Duration
		refused bool
	}{"at once": {0, true}, "now and then": {time.Minute, false}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				starts := 0
				d := driver(t, acp.Options{}, func(f *fake) { starts++; _, _ = f.log.Write([]byte("no key\n")) })
				h := agenttest.New(agenttest.Script{Cwd: "/src/demo"}, d)
				defer shut(t, d)
				var err error
				for range 5 {
					<-time.After(c.pause)
					_, err = h.Open(t.Context(), nil)
				}
				if err != nil && strings.Contains(err.Error(), "again and again") {
					t.Errorf("Open = %v; want the fifth one tried", err)
				}
				_, err = h.Open(t.Context(), nil)
				if err == nil || strings.Contains(err.Error(), "again and again") != c.refused || !strings.Contains(err.Error(), "no key") {
					t.Errorf("Open = %v; want it refused: %t, and what the agent said last", err, c.refused)
				}
				if want := map[bool]int{true: 5, false: 6}[c.refused]; starts != want {
					t.Errorf("%d starts; want %d", starts, want)
				}
			})
		})
	}
}

// An agent that leaves the mode in which it asks, and had to be ended for that, has
// failed too.
func TestLeavingTheModeIsAFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{ApprovalMode: "ask"}, func(f *fake) {
			set := 0
			for {
				m, ok := f.recv()
				switch {
				case !ok:
					return
				case m.Method == "initialize":
					f.result(m, `{"protocolVersion":1}`)
				case m.Method == "session/new":
					f.result(m, `{"sessionId":"s1",`+modes+`}`)
				case m.Method == "session/set_mode" && set == 0:
					set++
					f.result(m, `{}`)
				case m.Method == "session/set_mode":
					f.line(`{"id":%s,"error":{"code":1,"message":"no"}}`, m.ID)
				case m.Method == "session/prompt":
					f.update(`{"sessionUpdate":"current_mode_update","currentModeId":"auto"}`)
				}
			}
		}))
		for range 5 {
			if _, err := s.Prompt(t.Context(), "go"); err == nil || !strings.Contains(err.Error(), "left the mode") {
				t.Fatalf("Prompt = %v; want that it left its mode", err)
			}
		}
		if _, err := s.Prompt(t.Context(), "go"); err == nil || !strings.Contains(err.Error(), "again and again") {
			t.Errorf("Prompt = %v; want that it is left alone", err)
		}
	})
}

// A start that is slow is told of while it lasts, and the error at its limit says what
// was waited for and what the agent logged.
func TestASlowStartIsToldOf(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, agenttest.Script{}, driver(t, acp.Options{}, func(f *fake) {
			m, _ := f.until("initialize")
			f.result(m, `{"protocolVersion":1}`)
			m, _ = f.until("session/new")
			<-time.After(4 * time.Second)
			f.result(m, `{"sessionId":"s1"}`)
			f.recv()
		}))
		if got := rawOf(s, "starting"); len(got) != 0 {
			t.Errorf("told %v of a start of 4s; want nothing", got)
		}
	})
	for method, doing := range map[string]string{"initialize": "initialize", "session/new": "session"} {
		bubble(t, func(t *testing.T) {
			d := driver(t, acp.Options{}, func(f *fake) {
				for {
					m, ok := f.recv()
					switch {
					case !ok:
						return
					case m.Method == method:
						_, _ = f.log.Write([]byte("downloading\n"))
					case m.Method == "initialize":
						f.result(m, `{"protocolVersion":1}`)
					}
				}
			})
			var told []string
			sc := agenttest.Script{Cwd: "/src/demo", Event: keepRaw("starting", &told)}
			h := agenttest.New(sc, d)
			defer shut(t, d)
			_, err := h.Open(t.Context(), nil)
			for _, want := range []string{method, "longer than 3m0s", "downloading"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Open = %v; want %q in it", err, want)
				}
			}
			if len(told) != 1 || field([]byte(told[0]), "waitingFor") != doing || field([]byte(told[0]), "elapsedMs") != "5000" ||
				field([]byte(told[0]), "limitMs") != "180000" || field([]byte(told[0]), "log") != "downloading" {
				t.Errorf("told %v; want one note, of %s", told, doing)
			}
		})
	}
}
