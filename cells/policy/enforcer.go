package policy

import "porin.dev/porin/cells/policy/engine"

// Enforcer writes into the kernel what the engine says.
type Enforcer interface {
	// Apply writes what has changed since the last call that succeeded; nil stands for everything, as at first, and after an error. Until the first call what
	// former agents wrote stays in force. locals has the local endpoints that the engine knows; Apply keeps neither. After an error the kernel may have any part
	// of the change. It is called from one goroutine at a time, and the engine does not change during a call.
	Apply(e *engine.Engine, change *engine.Change, locals map[string]Local) error
}

// Local is where the datapath has an endpoint of this node.
type Local struct {
	Number uint16 // of the endpoint
	Link   int    // index of its host end
}

// noEnforcer is for a program without a datapath.
type noEnforcer struct{}

func (noEnforcer) Apply(*engine.Engine, *engine.Change, map[string]Local) error { return nil }

func isEmpty(c engine.Change) bool {
	return len(c.Addresses)+len(c.Prefixes)+len(c.Endpoints)+len(c.Tables) == 0
}
