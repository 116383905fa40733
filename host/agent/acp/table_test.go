package acp_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// quirk is something that agents do and a host must survive.
type quirk struct {
	n    int
	rule string // that the host keeps
	// shown are the recordings that show the quirk; they are played, and holds is
	// then asked whether the rule was kept.
	shown []string
	holds func(t *testing.T, p played)
	// tests are tests of this package that hold the host to the rule where no
	// recording does.
	tests []string
}

// played is a recording after it was played.
type played struct {
	*recording
	host *agenttest.Host
	root *agenttest.Session
}

func quirks() []quirk {
	return slices.Concat(quirksOfModes(), quirksOfRequests(), quirksOfTurns(), quirksOfCalls(), quirksOfProcesses())
}

func quirksOfModes() []quirk {
	return []quirk{
		{
			1, "the approval mode is set before the first prompt",
			[]string{"claude-stream", "claude-perm-allow"},
			holdsModeFirst,
			[]string{
				"TestNoPromptBeforeTheModeIsAcknowledged", "TestAnAgentWithoutTheModeIsNotUsed", "TestAModeThatDriftsIsPutBack",
				"TestAModeThatCannotBePutBackEndsTheAgent",
			},
		},
		{2, "the approval mode is set again after a load", nil, nil, []string{"TestTheModeIsSetOnRecordedAgents", "TestTheModeIsSetAfterResumeAndLoad"}},
		{31, "modes, models and options are taken in either form, and answers go by kind", []string{"codex-stream", "claude-stream"}, holdsLegacyBlocks, []string{"TestAnswersAreMappedByKind", "TestConfigure"}},
	}
}

func quirksOfRequests() []quirk {
	return []quirk{
		{
			3, "an id of 0 is an id",
			[]string{"claude-perm-allow", "codex-perm-allow", "gemini-perm-allow", "opencode-perm-allow"},
			holdsIDZero,
			[]string{"TestIdsAreKeptAsTheyAreWritten"},
		},
		{
			4, "a request that the agent withdraws is settled",
			[]string{"claude-perm-cancel-silent", "codex-perm-cancel-silent", "codex-subagent-cancel-pending-native", "codex-subagent-cancel-pending-flat"},
			holdsWithdrawn,
			[]string{"TestAWithdrawnRequestIsSettled"},
		},
		{
			5, "every open request is answered before session/cancel",
			[]string{"gemini-perm-cancel-silent", "gemini-perm-cancel-ok", "opencode-perm-cancel-silent", "claude-perm-cancel-ok"},
			holdsAnsweredFirst,
			[]string{"TestCancelAnswersRequestsFirst"},
		},
		{
			6, "an allowance after the cancellation reaches nobody",
			[]string{"gemini-perm-cancel-ok", "opencode-perm-cancel-ok", "codex-perm-cancel-ok", "claude-perm-cancel-ok"},
			holdsAnsweredFirst,
			[]string{"TestALateAllowanceIsNotSent"},
		},
		{9, "requests that are open at once are told apart", nil, nil, []string{"TestIdsAreKeptAsTheyAreWritten"}},
		{
			12, "what was not offered is refused",
			[]string{"opencode-perm-allow", "opencode-perm-allow-fs", "opencode-perm-allow-nofs"},
			holdsRefused,
			[]string{"TestUnknownMessagesAreRefusedOrKept"},
		},
		{
			13, "an unknown notification is kept, also an early one",
			[]string{"claude-stream", "codex-stream"},
			holdsNotification,
			[]string{"TestUnknownMessagesAreRefusedOrKept"},
		},
		{
			17, "what comes after the turn's end is kept, and what it asks is asked",
			[]string{"codex-stream", "codex-perm-allow", "codex-subagent-native", "claude-resume", "claude-subagent-cancel-pending-flat"},
			holdsAfterwards,
			[]string{"TestUpdatesOutsideTurnsAreKept", "TestAQuestionOutsideTurnsIsAsked", "TestRequestsOutsideTurnsAreSettled", "TestSubagentsAskOutsideTurns"},
		},
		{
			18, "a cancellation reaches the subagents",
			[]string{"codex-subagent-cancel-pending-native"},
			holdsCascade,
			[]string{"TestCancelReachesSubagents"},
		},
		{
			33, "a form is asked whole, and kept as it came",
			[]string{"claude-ask-accept", "claude-ask-decline", "claude-ask-cancel", "codex-ask-accept", "codex-ask-decline", "codex-ask-cancel"},
			holdsForm,
			[]string{
				"TestAFormBecomesQuestions", "TestASecretIsDeclined", "TestWhatDoesNotFitAFormIsAskedAgain", "TestQuestionsInAPermissionRequest",
				"TestOnlyQuestionsAreAskedAsQuestions",
			},
		},
	}
}

func quirksOfTurns() []quirk {
	return []quirk{
		{
			8, "a turn that ends as cancelled after a rejection was not cancelled by anybody",
			[]string{"claude-perm-reject", "codex-perm-reject", "gemini-perm-reject", "opencode-perm-reject", "codex-perm-outcome-cancelled"},
			holdsRejections,
			[]string{"TestARejectedCallIsClosed"},
		},
		{14, "lists of commands are bound to their session and stored once", []string{"claude-stream", "gemini-stream", "opencode-stream"}, holdsCommands, []string{"TestEarlyAndRepeatedUpdates"}},
		{
			15, "what comes after the answer to a load is still the replay",
			[]string{"claude-load-after", "codex-load-after", "opencode-load-after"},
			holdsNoReplay,
			[]string{"TestReplayIsDropped"},
		},
		{
			16, "a replay adds nothing to the log",
			[]string{"claude-subagent-load-after-native", "codex-subagent-load-after-native", "claude-load-after", "codex-load-after", "opencode-load-after"},
			holdsNoReplay,
			[]string{"TestReplayIsDropped"},
		},
		{19, "an agent that hangs is reported, and its turn cancelled at last", []string{"opencode-ask-accept"}, holdsStalled, []string{"TestASilentAgentIsCancelledAtLast"}},
		{
			20, "the second prompt waits for the end of the first",
			[]string{"claude-busy", "codex-busy", "gemini-busy", "opencode-busy"},
			holdsSerial,
			[]string{"TestTheHostTakesWhatRecordedAgentsSay"},
		},
		{
			21, "an error in any form ends the turn, and so does none",
			[]string{"claude-llm-error", "gemini-llm-error", "opencode-llm-error"},
			holdsNothing,
			[]string{"TestErrorsOfAnyForm"},
		},
		{22, "whatever the error of a load, the session is gone", nil, nil, []string{"TestALostSessionIsReplaced"}},
		{26, "what comes between session/cancel and the end is stored", []string{"opencode-cancel-stream"}, holdsBacklog, []string{"TestTheBacklogAfterCancelIsStored"}},
		{
			34, "a plan is a plan, and a tool call a tool call",
			[]string{"claude-plan", "codex-plan", "gemini-plan", "opencode-plan"},
			holdsPlan,
			[]string{"TestAPlanIsTheWholePlan"},
		},
	}
}

func quirksOfCalls() []quirk {
	return []quirk{
		{7, "a call has one end, whatever the agent says of its siblings", nil, nil, []string{"TestARejectionHasOneEndForEachCall", "TestOpenCallsAreClosedAtTheTurnsEnd"}},
		{
			10, "a call that was never announced begins with its request, and ends when that is rejected",
			[]string{"gemini-perm-allow", "gemini-perm-reject", "gemini-perm-outcome-cancelled", "codex-subagent-flat"},
			holdsUnannounced,
			[]string{"TestARejectedCallIsClosed", "TestOpenCallsAreClosedAtTheTurnsEnd"},
		},
		{
			11, "a call in progress is still asked for",
			[]string{"codex-perm-allow", "codex-perm-reject", "opencode-perm-allow", "opencode-perm-reject"},
			holdsAskedInProgress,
			[]string{"TestARejectedCallThatWasAnnouncedEndsAsRejected"},
		},
		{23, "output that only `_meta` carries is stored", []string{"codex-perm-allow"}, holdsMetaOutput, []string{"TestTerminalOutputInMeta"}},
		{24, "an empty chunk says nothing, and is kept", nil, nil, []string{"TestAnEmptyChunkIsKept"}},
		{
			25, "how a call ended is what the agent calls it, and its exit code is kept",
			[]string{"claude-perm-allow", "codex-perm-allow", "gemini-perm-allow", "opencode-perm-allow"},
			holdsFailedCommand, nil,
		},
		{32, "a huge line is read, and kept as a blob", nil, nil, []string{"TestLongLines"}},
	}
}

func quirksOfProcesses() []quirk {
	return []quirk{
		{27, "the agent's log is read, however much it is", nil, nil, []string{"TestTheLogIsDrained"}},
		{28, "an agent is ended in steps", nil, nil, []string{"TestTheEndComesInSteps", "TestAProcessThatIsStuckIsKilled"}},
		{29, "a slow start is waited for", nil, nil, []string{"TestStartTimeout"}},
		{30, "an agent's processes end with it", nil, nil, []string{"TestNoProcessSurvivesClose"}},
		{35, "what an agent leaves behind is ended", nil, nil, []string{"TestNoProcessSurvivesClose"}},
	}
}

// Every known quirk of an agent has a rule that the host keeps: on the recordings that
// show it, and in tests of its own.
func TestQuirks(t *testing.T) {
	all, known := quirks(), testNames(t)
	slices.SortFunc(all, func(a, b quirk) int { return a.n - b.n })
	for i, q := range all {
		if q.n != i+1 {
			t.Fatalf("quirk %d is followed by %d; want 1 to 35, each once", i, q.n)
		}
		t.Run(fmt.Sprintf("quirk/%02d %s", q.n, q.rule), func(t *testing.T) {
			for _, name := range q.tests {
				if !known[name] {
					t.Errorf("there is no %s", name)
				}
			}
			for _, name := range q.shown {
				t.Run(name, func(t *testing.T) {
					rec := readRecording(t, "testdata/replay/"+name+".jsonl")
					rec.then = func(t *testing.T, h *agenttest.Host, s *agenttest.Session) { q.holds(t, played{rec, h, s}) }
					synctest.Test(t, rec.play)
				})
			}
		})
	}
	if len(all) != 35 {
		t.Errorf("%d quirks; want 35", len(all))
	}
}

// testNames are the tests of this package.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}
