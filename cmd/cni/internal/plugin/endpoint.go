package plugin

import (
	"errors"
	"fmt"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/agent"
)

// undoTimeout is the time that the undo of an ADD has, which may begin when the caller's is over: no call of the plugin
// lasts longer than "timeout" and this, and as much for another IPAM plugin, but for what the kernel takes.
const undoTimeout = 5 * time.Second

// create asks the agent for the endpoint. When the answer does not come, the agent may have made it even so.
func (a *adding) create() (err error) {
	a.endpoint, err = a.conn.Create(a.attachment(), a.request(), a.noteOnLink)
	if err == nil {
		err = checkAnswer(a.endpoint)
	}
	if err == nil {
		return nil
	}
	problem, refused := errors.AsType[*v1.Problem](err)
	if !refused {
		a.forbidEndpoint()
	} else if problem.Code == v1.CodeNotFound {
		return fmt.Errorf("create the endpoint of %s:%s: %w: %w", clip(a.ContainerID), a.IfName, errLinkGone, err)
	}
	return a.agentFault(fmt.Sprintf("create the endpoint of %s:%s", clip(a.ContainerID), a.IfName), err)
}

// request is what the agent is asked for. A container of another IPAM plugin's addresses has no pool and no reservation,
// whatever it names: that may be meant for its other networks.
func (a *adding) request() v1.EndpointRequest {
	r := v1.EndpointRequest{
		Network:   a.Config.Name,
		Pod:       a.whose(),
		NetNS:     a.NetNS,
		Host:      v1.Interface{Name: a.hostName, Index: a.host.Index, MAC: a.hostText},
		Container: v1.Interface{Name: a.IfName, MAC: a.podText},
		Addresses: a.asked(), ExternalIPAM: a.delegated(),
		Began: a.began.boot.Nanoseconds(),
	}
	if !a.delegated() {
		r.Pool, r.Reservation = a.Pool(), a.Args.Reservation
	}
	return r
}

// checkAnswer finds what a broken agent could make the plugin do.
func checkAnswer(ep v1.Endpoint) error {
	four, six := ep.Addresses.IPv4, ep.Addresses.IPv6
	switch {
	case !four.IsValid() && !six.IsValid():
		return errors.New("the agent's answer has no address")
	case four.IsValid() && (!four.Is4() || !ep.Gateways.IPv4.Is4()), six.IsValid() && (!six.Is6() || !ep.Gateways.IPv6.Is6()):
		return errors.New("the agent's answer has an address without a gateway of its family")
	}
	return nil
}

func (a *adding) whose() v1.Pod {
	return v1.Pod{
		Namespace: a.Args.PodNamespace, Name: a.Args.PodName, UID: a.Args.PodUID, PriorityClass: a.Args.PodPriorityClass,
	}
}

// deleteEndpoint undoes a create that was answered: it spares an endpoint of a later ADD, and this one may try again.
func (a *adding) deleteEndpoint() { a.deleteBegan(a.began.boot) }

// forbidEndpoint undoes a create of which no answer came. It may still be on its way to the agent, which refuses it when
// it arrives after a deletion that began later: by a nanosecond, so that the next ADD of this attachment is welcome.
func (a *adding) forbidEndpoint() { a.deleteBegan(a.began.boot + 1) }

// deleteBegan asks for a deletion that began at that time. What cannot be undone here the agent finds out: its endpoint
// has no link any more.
func (a *adding) deleteBegan(began time.Duration) v1.DeleteResult {
	if a.undoBy.IsZero() {
		a.undoBy = time.Now().Add(undoTimeout)
	}
	c := agent.Client{Socket: a.Config.Socket}
	result, _ := c.Delete(a.undoBy, a.attachment(), began)
	return result
}
