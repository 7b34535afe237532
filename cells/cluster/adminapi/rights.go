package adminapi

import (
	"fmt"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/fault"
)

// checkRights refuses a command of porin that the role of an agent does not cover.
func checkRights(b cluster.Backend, command string) error {
	if !b.AgentRights {
		return nil
	}
	return fault.New(fault.Forbidden, fmt.Sprintf("with --store kubernetes an agent has no right to do this: use porin %s with --kubeconfig FILE, which has an administrator's credentials", command))
}
