// Package config reads what a person configures: config.toml in the configuration
// directory, and the project file .muxhost.toml beside the code that agents work on.
//
// config.toml holds the settings of `muxhost serve`, under the names of its flags,
// and the agents. A project file comes with the code, so it may only tighten: deny,
// ask, name fewer agents, wait shorter.
//
// Every fault is an [Error] with file and line; all faults of a file, the first of
// very many, are told at once. A key that is not known is one, and whatever the file says beside it is not
// used either: half a configuration could allow what the other half forbids.
//
// config opens the named files only, runs nothing and changes nothing.
package config
