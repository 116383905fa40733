package config

import _ "embed"

// Example is a config.toml that says every key, all of it commented out.
//
//go:embed example.toml
var Example string

// ProjectExample is a project file that says every key, all of it commented out.
const ProjectExample = `# .muxhost.toml: what sessions in this directory, and below it, may not do. It only
# tightens; what it does not say is as the person at the host configured it.

# Ask nobody; reject what would be asked.
#mode = "deny"
# Tools that are always asked about, and those that never run.
#ask = ["Bash"]
#deny = ["WebFetch", {tool = "Bash", input = {command = "git push"}}]
# How long an approval waits, at most.
#ask-timeout = "1m"
# The only agents that run here, and the one of muxhost run.
#agents = ["claude", "shell"]
#agent = "claude"
`
