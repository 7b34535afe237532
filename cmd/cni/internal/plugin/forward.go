package plugin

import (
	"errors"
	"time"

	"porin.dev/porin/cmd/cni/internal/spec"
)

// forward has the IPAM plugin, if there is one, do the command of this call, after this plugin has done its part.
func (t *task) forward(deadline time.Time) error {
	if !t.delegated() {
		return nil
	}
	p, err := t.ipam()
	if err != nil {
		return err
	}
	err = p.Call(t.Command, deadline)
	if t.Command == "DEL" || !unknownCommand(err) {
		return err
	}
	if t.Command == "STATUS" {
		return p.Speaks(t.Config.CNIVersion, deadline) // or it refuses every ADD
	}
	return nil
}

// unknownCommand tells whether the IPAM plugin says that it has no such command, as those do that are older than CHECK (0.4.0),
// GC and STATUS (1.1.0). It has nothing to say about the matter then.
func unknownCommand(err error) bool {
	fault, ok := errors.AsType[*spec.Error](err)
	return ok && fault.Code == spec.BadEnvironment
}
