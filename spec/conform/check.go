package conform

import "slices"

// Check is one sentence of the contract that a server keeps or breaks.
type Check struct {
	// ID is unique: its family, a slash, a name.
	ID string
	// Family groups checks that stand or fall together.
	Family string
	// Says is what the contract says, as one sentence; Section is where.
	Says, Section string

	run   func(*T)
	alone bool // touches what the whole server shares: runs after the others
	slow  bool // waits for many seconds: starts first
}

// family is a table of checks.
type family struct {
	name   string
	checks []Check
}

// families lists everything there is, in the order of the report.
func families() []family {
	return []family{
		{"transport", transportChecks()},
		{"envelope", envelopeChecks()},
		{"params", paramsChecks()},
		{"describe", describeChecks()},
		{"sessions", sessionChecks()},
		{"subscribe", subscribeChecks()},
		{"events", eventChecks()},
		{"prompts", promptChecks()},
		{"cancel", cancelChecks()},
		{"approvals", approvalChecks()},
		{"questions", questionChecks()},
		{"grants", grantChecks()},
		{"pending", pendingChecks()},
		{"tasks", taskChecks()},
		{"fork", forkChecks()},
		{"export", exportChecks()},
		{"blobs", blobChecks()},
		{"scopes", scopeChecks()},
		{"tokens", tokenChecks()},
		{"reconnect", reconnectChecks()},
		{"slow", slowChecks()},
		{"http", httpChecks()},
		{"errors", errorChecks()},
		{"open", openChecks()},
	}
}

// Families names the families of checks, in the order of the report.
func Families() []string {
	var out []string
	for _, f := range families() {
		out = append(out, f.name)
	}
	return out
}

// Checks returns the checks of the named families, of all without a name, in the
// order of the report.
func Checks(names ...string) []Check {
	var out []Check
	for _, f := range families() {
		if len(names) > 0 && !slices.Contains(names, f.name) {
			continue
		}
		for _, c := range f.checks {
			c.Family, c.ID = f.name, f.name+"/"+c.ID
			out = append(out, c)
		}
	}
	return out
}
