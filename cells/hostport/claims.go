package hostport

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/nft"
)

// ErrTaken is returned when another endpoint has the port.
var ErrTaken = fault.New(fault.Conflict, "host port is taken")

// port is a port of the node, of one family.
type port struct {
	host     netip.Addr // unspecified for all addresses
	number   uint16
	protocol uint8
}

func (p port) String() string {
	return v1.PortMapping{Protocol: protocolNames[p.protocol], HostIP: p.host, HostPort: p.number}.Host()
}

// overlaps reports whether a packet may be for both.
func (p port) overlaps(other port) bool {
	return p.number == other.number && p.protocol == other.protocol && p.host.Is4() == other.host.Is4() &&
		(p.host == other.host || p.host.IsUnspecified() || other.host.IsUnspecified())
}

// claim is what one endpoint has.
type claim struct {
	ep    endpoint.Endpoint
	ports map[port]netip.AddrPort // where they lead to
}

// newClaim fails when the endpoint has no address that a mapping could lead to.
func newClaim(ep endpoint.Endpoint) (claim, error) {
	c := claim{ep: ep, ports: map[port]netip.AddrPort{}}
	mappings, err := ep.Spec.DecodePortMappings()
	if err != nil {
		return c, err
	}
	for _, m := range mappings {
		led := false
		for _, addr := range ep.Addresses.List() {
			host := m.HostIP
			switch {
			case !host.IsValid() && addr.Is4():
				host = netip.IPv4Unspecified()
			case !host.IsValid():
				host = netip.IPv6Unspecified()
			case host.Is4() != addr.Is4():
				continue
			}
			led = true
			c.ports[port{host, m.HostPort, protocolNumbers[m.Protocol]}] = netip.AddrPortFrom(addr, m.ContainerPort)
		}
		if !led {
			return c, fault.New(fault.Invalid, fmt.Sprintf("host port %s: the container has no address of that family", m.Host()))
		}
	}
	return c, nil
}

// usesLoopback reports whether processes of the node may connect by 127.0.0.0/8.
func (c claim) usesLoopback() bool {
	for p := range c.ports {
		if p.host.Is4() && (p.host.IsUnspecified() || p.host.IsLoopback()) {
			return true
		}
	}
	return false
}

// hasProtocol reports whether a port is of the protocol.
func (c claim) hasProtocol(number uint8) bool {
	for p := range c.ports {
		if p.protocol == number {
			return true
		}
	}
	return false
}

// isReplacedBy reports whether the other endpoint is the later life of the same pod: then this one is not used any
// more.
func (c claim) isReplacedBy(other endpoint.Endpoint) bool {
	pod := c.ep.Spec.Pod
	return pod.Name != "" && pod.Namespace == other.Spec.Pod.Namespace && pod.Name == other.Spec.Pod.Name &&
		c.ep.Spec.Attachment.ContainerID != other.Spec.Attachment.ContainerID && c.ep.Spec.Began < other.Spec.Began
}

func (c claim) String() string {
	if c.ep.Spec.Pod.Name != "" {
		return fmt.Sprintf("pod %s, container %s", c.ep.Spec.Pod, c.ep.Spec.Attachment)
	}
	return fmt.Sprintf("container %s", c.ep.Spec.Attachment)
}

// claims are the claims of all endpoints, and a previous agent's.
type claims struct {
	byAttachment map[endpoint.Attachment]claim
	previous     map[port]netip.AddrPort
	held         map[endpoint.Attachment][]netip.Addr // of endpoints with unknown mappings
}

// take gives the endpoint its ports. Those of an earlier life of its pod go over to it, and back when it releases them.
func (c *claims) take(mine claim) error {
	for p := range mine.ports {
		for other, theirs := range c.byAttachment {
			if other == mine.ep.Spec.Attachment || theirs.isReplacedBy(mine.ep) {
				continue
			}
			for taken := range theirs.ports {
				if taken.overlaps(p) {
					return fault.WithHint(fmt.Errorf("%w: %s is that of %s", ErrTaken, taken, theirs), "wait until that is deleted, or choose another hostPort for the pod")
				}
			}
		}
		for taken, to := range c.previous {
			if taken.overlaps(p) {
				return fault.WithHint(fmt.Errorf("%w: %s is that of an endpoint with address %s, which the agent's start has held", ErrTaken, taken, to.Addr()),
					"see porin status; porin restore accept ends the hold")
			}
		}
	}
	c.byAttachment[mine.ep.Spec.Attachment] = mine
	return nil
}

// restore gives the endpoint the ports that it had.
func (c *claims) restore(mine claim) {
	for p, to := range mine.ports {
		if c.previous[p] == to {
			delete(c.previous, p)
		}
	}
	c.byAttachment[mine.ep.Spec.Attachment] = mine
}

// release takes away what the endpoint has, and what a previous agent has left of it.
func (c *claims) release(ep endpoint.Endpoint) (ports map[port]netip.AddrPort) {
	a := ep.Spec.Attachment
	ports = c.byAttachment[a].ports
	delete(c.byAttachment, a)
	addrs := append(ep.Addresses.List(), c.held[a]...)
	delete(c.held, a)
	for p, to := range c.previous {
		for _, addr := range addrs {
			if to.Addr() == addr {
				delete(c.previous, p)
			}
		}
	}
	return ports
}

// prune removes what belongs to none of live, and to nothing that is held.
func (c *claims) prune(live []endpoint.Endpoint) (removed []string) {
	alive := map[endpoint.Attachment]bool{}
	for _, ep := range live {
		alive[ep.Spec.Attachment] = true
	}
	name := func(p port, to netip.AddrPort) { removed = append(removed, fmt.Sprintf("host port %s to %s", p, to)) }
	for a, claim := range c.byAttachment {
		if _, isHeld := c.held[a]; alive[a] || isHeld {
			continue
		}
		for p, to := range claim.ports {
			name(p, to)
		}
		delete(c.byAttachment, a)
	}
	held := map[netip.Addr]bool{}
	for _, addrs := range c.held {
		for _, addr := range addrs {
			held[addr] = true
		}
	}
	for p, to := range c.previous {
		if !held[to.Addr()] {
			name(p, to)
			delete(c.previous, p)
		}
	}
	return removed
}

// state is what the table should have: nil for no table. Of lives of one pod that claim a port the latest has it.
func (c *claims) state() nft.State {
	if len(c.previous) == 0 && len(c.byAttachment) == 0 {
		return nil
	}
	type target struct {
		port  port
		to    netip.AddrPort
		began time.Duration
	}
	byNumber := map[uint16][]target{}
	for _, claim := range c.byAttachment {
		for p, to := range claim.ports {
			byNumber[p.number] = append(byNumber[p.number], target{p, to, claim.ep.Spec.Began})
		}
	}
	s := nft.State{}
	for _, targets := range byNumber {
		for _, t := range targets {
			isLater := func(other target) bool { return other.port.overlaps(t.port) && other.began > t.began }
			if !slices.ContainsFunc(targets, isLater) {
				addElements(s, t.port, t.to)
			}
		}
	}
	for p, to := range c.previous {
		addElements(s, p, to)
	}
	return s
}
