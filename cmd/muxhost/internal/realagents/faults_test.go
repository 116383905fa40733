//go:build realagents && linux

package realagents_test

// faults are what is known to be wrong with the agents of realAgents, in these
// versions. In each the host must stay correct: the clients agree, nothing stays
// open, and nothing runs that was not allowed.
func faults() []fault {
	return []fault{
		{
			agent: "opencode", scene: "subagent", sign: errMute.Error(),
			what: "opencode does not pass on what its subagents ask, so that a turn would wait for ever; muxhost's recipe has them do nothing that needs asking",
		},
		{
			agent: "gemini", scene: "subagent", sign: "denied by policy",
			what: "gemini denies itself its subagents when it is driven; where its owner's policy allows them it does not pass on what they ask, and the turn waits until it is cancelled",
		},
	}
}
