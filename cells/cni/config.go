package cni

// Config says which folders of the node the cell uses.
type Config struct {
	// StateDir is the agent's, which plugins know.
	StateDir string
	// ConfDir has the lists of plugins that the container runtime reads; the empty string when the agent cannot see it.
	ConfDir string
	// ConfPath is the agent's file there; the empty string when it writes none.
	ConfPath string
}
