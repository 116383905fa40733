package demo

import (
	"time"

	"github.com/muxhost/muxhost/frames"
)

// The roles of a session.
const (
	roleShow    = "show"
	roleExplore = "explore"
	roleTests   = "tests"
	roleFix     = "fix"
	roleStream  = "stream"
	roleAsks    = "asks"
	roleSpawns  = "spawns"
	roleTasks   = "tasks"
	roleWide    = "wide"
)

// The pace at speed 1.
const (
	chunkPause = 60 * time.Millisecond
	linePause  = 350 * time.Millisecond
)

// scripts are what the agent plays. In texts {name} stands for a fact: the
// prompt, the cwd, what a person decided, the last words of a child.
var scripts = map[string][]step{
	"hello": {say{"Write `show me` and I show what muxhost can do. I answer anything else with an echo."}},

	"echo": {
		think{"A prompt. I have no model, so I repeat it."},
		say{"You said: {prompt}\n\nI am a demonstration without a model; write `show me` for the tour."},
		spend{frames.Usage{InputTokens: 40, OutputTokens: 30, ContextTokens: 70, ContextWindow: 200_000}},
	},

	"background": {
		think{"A build takes long; it can go on while we talk."},
		background{"demo", "Build everything (pretended)", []string{
			"compiling frames\n", "compiling store\n", "compiling mux\n", "compiling rpc\n", "compiling host\n", "compiling cmd\n", "linking\n", "done\n",
		}, "completed", "8 steps"},
		say{"The build goes on in the background as task `{task}`. Look at it with `muxhost tasks`."},
	},

	roleShow: {
		modelBegins{},
		think{"The person wants a tour. I plan it, look around, let two helpers work at the same time, and ask what only a person can know."},
		plan{"in_progress", "pending", "pending"},
		say{"# A tour of muxhost\n\nThis is a **scripted** session: no model answers, and *nothing is run or changed*. " +
			"Still, everything that you see travels as it would from a real agent:\n\n" +
			"- this text streams in small pieces\n- my plan is beside it\n- tools show their output while they run\n" +
			"- two helpers work at the same time, and one of them brings a helper of its own\n\n" +
			"```go\nfor event := range session.Events() {\n\tfmt.Println(event.Seq, event.Type)\n}\n```\n\n" +
			"Open this session on your phone as well: it shows the same, and you can answer there.\n"},
		tool{"search", "search", "Search for TODO in {cwd}", `{"pattern":"TODO"}`, []string{
			"cmd/main.go:12: flags\n", "store/log.go:88: compaction\n", "store/log.go:140: checksum\n", "web/app.ts:7: dark mode\n",
		}},
		plan{"completed", "in_progress", "pending"},
		launch{"A", "Explore the code", roleExplore, "Look at how the project stores its data."},
		launch{"B", "Run the tests", roleTests, "Find out why the tests fail."},
		question{"answer", frames.Question{
			ID: "database", Header: "Database", Question: "Which database shall the project use?",
			Options: []frames.QuestionOption{
				{Label: "SQLite", Description: "One file, nothing to run"},
				{Label: "Postgres", Description: "A server, for many writers"},
			},
		}},
		join{"A"},
		join{"B"},
		modelEnds{frames.Usage{InputTokens: 5200, OutputTokens: 640, CacheReadTokens: 4100, ContextTokens: 5840, ContextWindow: 200_000}},
		spend{frames.Usage{InputTokens: 5200, OutputTokens: 640, CacheReadTokens: 4100, ContextTokens: 5840, ContextWindow: 200_000}},
		plan{"completed", "completed", "completed"},
		say{"## What came out\n\n- **Database:** {answer}\n- **Exploring:** {A}\n- **Tests:** {B}\n\nNothing was run or changed."},
	},

	roleExplore: {
		think{"Storage first, then who calls it."},
		tool{"read", "read", "Read store/log.go", `{"path":"store/log.go"}`, []string{"package store\n", "\n", "// Log is an append-only file.\n"}},
		tool{"read", "read", "Read store/index.go", `{"path":"store/index.go"}`, []string{"package store\n", "\n", "// Index finds a record by its number.\n"}},
		say{"The data is one append-only log with an index; a database fits behind the same interface."},
	},

	roleTests: {
		tool{"test", "execute", "Run the tests (pretended)", `{"packages":"./..."}`, []string{
			"ok   cmd\n", "ok   web\n", "FAIL store: stale object file\n",
		}},
		launch{"C", "Build from scratch", roleFix, "The object files are stale; build from scratch."},
		join{"C"},
		say{"One package failed because of stale object files. {C}"},
	},

	roleFix: {
		think{"Deleting the build directory is safe here, but a person has to allow it."},
		gated{"decision", "sh", "execute", "rm -rf build && make", "Stale object files break the build."},
		say{"The clean build {decision}."},
	},
}

// todos is the plan that [plan] steps give states.
var todos = []string{"Look around", "Let helpers explore and test", "Sum up"}
