//go:build realagents

package realagents_test

// faults are what is known to be wrong with the agents of realAgents, in these
// versions. In each the host must stay correct: the clients agree, nothing stays
// open, and nothing runs that was not allowed.
func faults() []fault {
	return []fault{
		{
			agent: "opencode", scene: "subagent", sign: "did not see an approval",
			what: "opencode does not forward what its subagents ask: the turn waits for ever, and ends when it is cancelled",
		},
	}
}
