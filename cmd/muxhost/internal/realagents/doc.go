// Package realagents drives the coding agents that people use, as their makers
// publish them, through a host: it is built with the tag realagents only, and run by
// .ci/agents, which installs the agents and takes the network away. The model is
// package stubllm. It prints one table of agents and scenes; a cell passes, or names
// a fault of the agent that is known and explained here, in which the host stayed
// correct. Any other fault fails.
//
// Every scene has a session of its own, which two clients follow over a socket; at
// its end both, and the log, must fold to the same view with nothing open.
package realagents
