package endpointmanager_test

import (
	"context"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/endpoint"
)

// simLinkStep is the step link on the fake kernel. Each of its effects waits for its turn.
type simLinkStep struct {
	node  *simNode
	agent *simAgent
}

func (l simLinkStep) Name() string { return "link" }

func (l simLinkStep) pass(effect string) error {
	return l.node.pass(l.agent.process, "kernel."+effect)
}

func (l simLinkStep) Attach(_ context.Context, ep endpoint.Endpoint, _ *endpoint.Namespace) (endpoint.Endpoint, error) {
	a := ep.Spec.Attachment
	if err := l.pass("CreateLink " + a.String()); err != nil {
		return ep, err
	}
	index := l.node.newLink(a, ep.Spec.Began)
	host, container := v1.InterfaceMACs(a.ContainerID, a.IfName)
	hostMAC, _ := v1.ParseMAC(host)
	containerMAC, _ := v1.ParseMAC(container)
	ep.Host = endpoint.Interface{Name: hostEndOf(a), Index: index, MAC: hostMAC}
	ep.Container = endpoint.Interface{Name: a.IfName, Index: 2, MAC: containerMAC}
	return ep, nil
}

func (l simLinkStep) Renew(_ context.Context, ep endpoint.Endpoint) error {
	if err := l.pass("SetAlias " + ep.Spec.Attachment.String()); err != nil {
		return err
	}
	l.node.mu.Lock()
	defer l.node.mu.Unlock()
	l.node.links[ep.Host.Index-1] = ep.Spec.Began
	return nil
}

func (l simLinkStep) Detach(_ context.Context, ep endpoint.Endpoint, _ endpoint.DeleteConfig) error {
	if err := l.pass("DeleteLink " + ep.Spec.Attachment.String()); err != nil {
		return err
	}
	if link, err := l.find(ep); err == nil {
		l.node.kernel.RemoveLink(link.Attrs().Index)
	}
	return nil
}

func (l simLinkStep) Restore(_ context.Context, ep endpoint.Endpoint) ([]string, error) {
	_, err := l.find(ep)
	return nil, err
}

func (l simLinkStep) Survey(_ context.Context, eps []endpoint.Endpoint) (map[endpoint.Attachment]error, error) {
	if err := l.pass("Survey"); err != nil {
		return nil, err
	}
	lost := map[endpoint.Attachment]error{}
	for _, ep := range eps {
		if _, err := l.find(ep); err != nil {
			lost[ep.Spec.Attachment] = err
		}
	}
	return lost, nil
}

func (l simLinkStep) Prune(_ context.Context, live []endpoint.Endpoint) (removed []string, err error) {
	if err := l.pass("PruneLinks"); err != nil {
		return nil, err
	}
	keep := map[int]bool{}
	for _, ep := range live {
		keep[ep.Host.Index] = true
	}
	for _, link := range l.node.kernel.HostEnds() {
		if !keep[link.Attrs().Index] {
			l.node.kernel.RemoveLink(link.Attrs().Index)
			removed = append(removed, link.Attrs().Name)
		}
	}
	return removed, nil
}

// find returns the endpoint's own host end.
func (l simLinkStep) find(ep endpoint.Endpoint) (netlink.Link, error) {
	for _, link := range l.node.kernel.HostEnds() {
		if attrs := link.Attrs(); attrs.Name == hostEndOf(ep.Spec.Attachment) && (ep.Host.Index == 0 || ep.Host.Index == attrs.Index) {
			return link, nil
		}
	}
	return nil, fmt.Errorf("%s, index %d: %w", ep.Spec.Attachment, ep.Host.Index, datapath.ErrNoLink)
}

func hostEndOf(a endpoint.Attachment) string {
	return v1.HostInterfaceName(a.ContainerID, a.IfName)
}

// newLink makes the host end for an attachment, in place of a link that an earlier attempt left.
func (n *simNode) newLink(a endpoint.Attachment, began time.Duration) (index int) {
	n.removeLink(a, time.Duration(1<<63-1))
	n.mu.Lock()
	n.links = append(n.links, began)
	index = len(n.links)
	n.mu.Unlock()
	host, _ := v1.InterfaceMACs(a.ContainerID, a.IfName)
	mac, _ := v1.ParseMAC(host)
	return n.kernel.AddLink(netlink.LinkAttrs{Index: index, Name: hostEndOf(a), HardwareAddr: mac[:]})
}

// removeLink removes the host end of an attachment unless it is of a life that began later, as its alias says.
func (n *simNode) removeLink(a endpoint.Attachment, began time.Duration) {
	for _, link := range n.kernel.HostEnds() {
		if link.Attrs().Name != hostEndOf(a) {
			continue
		}
		n.mu.Lock()
		later := n.links[link.Attrs().Index-1] > began
		n.mu.Unlock()
		if !later {
			n.kernel.RemoveLink(link.Attrs().Index)
		}
	}
}
