package plugin

import (
	"fmt"
	"slices"
	"strings"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/spec"
)

// gc has the agent delete every attachment of this network that is not valid and began before the call: a container that
// is attached meanwhile is in no list yet. Parts that could not be taken down are no failure: the agent has them on
// record and tries again, and the runtime could do no more. What was withheld is one: the next call does it. Another IPAM plugin comes after that, and not at all when
// it failed: endpoints that are still there use their addresses.
func (t *task) gc() error {
	result, err := t.agent.CollectGarbage(t.deadline, v1.GCRequest{
		Network: t.Config.Name, Valid: t.valid(), Began: t.began.boot.Nanoseconds(), DryRun: t.Config.GCDryRun,
	})
	switch {
	case err != nil:
		return t.agentFault("delete what is not valid of network "+t.Config.Name, err)
	case t.Config.GCDryRun:
		_, _ = fmt.Fprintf(t.io.Stderr, "porin-cni: GC of network %s would delete %d: %s\n", t.Config.Name, len(result.Stale), strings.Join(result.Stale, " "))
		return nil
	case result.Withheld != "":
		return &spec.Error{
			Code: spec.TryAgain, Msg: "nothing was deleted: " + result.Withheld,
			Hint: "call GC again if the list of valid attachments is right; porin gc --dry-run shows what would go",
		}
	}
	return t.forward(t.deadline)
}

// valid are those of the list that may be Porin's. The agent would refuse the whole call for another.
func (t *task) valid() []string {
	list := []string{}
	for _, a := range t.Config.Valid {
		if v1.CheckContainerID(a.ContainerID) == nil && v1.CheckInterfaceName(a.IfName) == nil {
			list = append(list, a.ContainerID+":"+a.IfName)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
