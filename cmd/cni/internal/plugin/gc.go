package plugin

import (
	"fmt"

	"porin.dev/porin/cmd/cni/internal/spec"
)

// gc deletes every attachment of this network that is not valid and was there when the call began: a container that
// is attached meanwhile is in no list yet.
func (t *task) gc() error {
	endpoints, err := t.agent.Endpoints(t.deadline, t.Config.Name)
	if err != nil {
		return t.agentFault("list the endpoints of network "+t.Config.Name, err)
	}
	valid := make(map[spec.Attachment]bool, len(t.Config.Valid))
	for _, a := range t.Config.Valid {
		valid[a] = true
	}
	var faults []*spec.Error
	for _, ep := range endpoints {
		a := spec.Attachment{ContainerID: ep.ContainerID, IfName: ep.IfName}
		if !valid[a] && ep.Created.Before(t.began.wall) {
			if _, err := t.agent.Delete(t.deadline, a); err != nil {
				faults = append(faults, t.agentFault(fmt.Sprintf("delete the endpoint of %s:%s", clip(a.ContainerID), a.IfName), err))
			}
		}
	}
	if len(faults) == 0 {
		return nil
	}
	if n := len(faults); n > 1 {
		faults[0].Msg += fmt.Sprintf(" (the first of %d that failed)", n)
	}
	return faults[0]
}

// status asks whether containers can be attached. They keep what they have without an agent; only when it says that
// it has no programs in the kernel are they cut off.
func (t *task) status() error {
	ready, programs, err := t.agent.Status(t.deadline)
	if err != nil {
		fault := t.agentFault("ask for the status of the agent", err)
		fault.Code = spec.NotAvailable
		return fault
	}
	if ready {
		return nil
	}
	fault := &spec.Error{Code: spec.NotAvailable, Msg: "the agent is not ready", Hint: "look at its log, and at porin status"}
	if programs == 0 {
		fault.Code, fault.Msg = spec.Limited, "the agent is not ready, and its programs are not in the kernel"
	}
	return fault
}
