package roster

import "github.com/muxhost/muxhost/host/agent"

// Preset makes a driver whose sessions begin with a model.
func Preset(d agent.Driver, model string) agent.Driver { return preset{d, model} }
