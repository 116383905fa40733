//go:build realagents

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
	}
}
