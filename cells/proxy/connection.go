package proxy

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/httpproxy"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/fault"
)

// Kernel is what the datapath knows of redirected connections, and of the policies for them.
type Kernel interface {
	redirect.Link
	// Opener returns who has opened a redirected connection that has these ends for the proxy; [ErrNoOpener] when it is
	// not known. For TCP it removes what the kernel has noted of the connection: a second call returns [ErrNoOpener]. For
	// UDP that stays, as more datagrams may follow.
	Opener(protocol model.Protocol, client, server netip.AddrPort) (Opener, error)
	// EndpointAt returns the ID of the endpoint of this node that has an address, or 0.
	EndpointAt(addr netip.Addr) (uint16, error)
	// Verdict returns what the row says that decides about a connection: see [policy.Enforcer].
	Verdict(q policy.Question) (uint32, error)
	// Version returns the generation of an endpoint's ID, which changes when another endpoint gets the ID, and the
	// revision of the endpoint's policies, which changes whenever a verdict may.
	Version(id uint16) (generation, revision uint32, err error)
	// AddressGeneration returns a number that changes whenever an endpoint of this node gets an address.
	AddressGeneration() (uint32, error)
}

// Opener is who has opened a connection.
type Opener struct {
	Source   netip.Addr // before the node has translated it
	Endpoint uint16     // ID of the endpoint of this node that it is; 0 for any other
	FromNode bool       // the node itself has sent it
}

// ErrNoOpener is returned for a connection that was not redirected, or that is older than its endpoint.
var ErrNoOpener = fault.New(fault.NotFound, "nothing is known of who has opened the connection")

// connection is a redirected connection, and what decides about it.
type connection struct {
	kernel   Kernel
	rules    *rulesByNumber
	protocol model.Protocol
	opener   Opener
	client   netip.AddrPort // as the proxy sees it
	server   netip.AddrPort
	receiver uint16 // ID of the endpoint of this node that the server is; 0 for any other

	mu                sync.Mutex // guards the fields below
	versions          [2]version // of opener and receiver when decided was read; zero for an end that is no endpoint of this node
	decided           *decision  // nil before the first one
	addressGeneration uint32     // when receiver was read: see [Kernel.AddressGeneration]
}

// decision has the rules for a connection, nil where an end has none.
type decision struct{ egress, ingress *ruleSet }

// sets are the rules that there are.
func (d *decision) sets() []*ruleSet {
	return slices.DeleteFunc([]*ruleSet{d.egress, d.ingress}, func(s *ruleSet) bool { return s == nil })
}

// isDNS reports whether the connection is one for queries. It is an error when its ends do not agree about that.
func (d *decision) isDNS() (bool, error) {
	dns := 0
	for _, set := range d.sets() {
		if set.dns != nil {
			dns++
		}
	}
	if dns > 0 && dns < len(d.sets()) {
		return false, fmt.Errorf("%w: one end has rules for HTTP, and the other one for DNS", errDenied)
	}
	return dns > 0, nil
}

// identify finds out who the ends are.
func identify(kernel Kernel, rules *rulesByNumber, protocol model.Protocol, client, server netip.AddrPort) (*connection, error) {
	opener, err := kernel.Opener(protocol, client, server)
	if err != nil {
		return nil, err
	}
	addressGeneration, err := kernel.AddressGeneration()
	if err != nil {
		return nil, err
	}
	receiver, err := kernel.EndpointAt(server.Addr())
	if err != nil {
		return nil, err
	}
	return &connection{
		kernel: kernel, rules: rules, protocol: protocol, opener: opener, client: client, server: server, receiver: receiver, addressGeneration: addressGeneration,
	}, nil
}

// decide returns the rules that are in force now, or an error that wraps [errDenied].
func (c *connection) decide() (*decision, error) {
	versions, err := c.readVersions()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkReceiverLocked(); err != nil {
		return nil, err
	}
	if c.decided != nil && c.versions == versions {
		return c.decided, nil
	}
	if c.decided != nil && !sameEndpoints(c.versions, versions) {
		return nil, fmt.Errorf("%w: an endpoint of it is gone", errDenied)
	}
	d := &decision{}
	if c.opener.Endpoint != 0 && c.opener.Endpoint != c.receiver {
		if d.egress, err = c.verdict(model.Egress, c.opener.Endpoint, c.server.Addr()); err != nil {
			return nil, err
		}
	}
	if c.receiver != 0 && c.opener.Endpoint != c.receiver {
		if d.ingress, err = c.verdict(model.Ingress, c.receiver, c.opener.Source); err != nil {
			return nil, err
		}
	}
	c.decided, c.versions = d, versions
	return d, nil
}

// isOver reports whether an end that was decided about is gone.
func (c *connection) isOver() bool {
	versions, err := c.readVersions()
	c.mu.Lock()
	defer c.mu.Unlock()
	return err != nil || c.decided != nil && !sameEndpoints(c.versions, versions)
}

// checkReceiverLocked returns an error when the server was no endpoint of this node, and has become one: earlier
// decisions did not consider that endpoint's rules.
func (c *connection) checkReceiverLocked() error {
	if c.receiver != 0 {
		return nil
	}
	addressGeneration, err := c.kernel.AddressGeneration()
	if err != nil || addressGeneration == c.addressGeneration {
		return err
	}
	id, err := c.kernel.EndpointAt(c.server.Addr())
	if err != nil {
		return err
	}
	if id != 0 {
		return fmt.Errorf("%w: endpoint %d has got the server's address", errDenied, id)
	}
	c.addressGeneration = addressGeneration
	return nil
}

// verdict returns the rules of one end, nil if it has none.
func (c *connection) verdict(direction model.Direction, id uint16, peer netip.Addr) (*ruleSet, error) {
	value, err := c.kernel.Verdict(policy.Question{
		Local: policy.Local{ID: id}, Direction: direction, Peer: peer, FromNode: c.opener.FromNode, Protocol: c.protocol, Port: c.server.Port(),
	})
	switch {
	case err != nil:
		return nil, err
	case value == abi.RowDeny:
		return nil, fmt.Errorf("%w: %s policy of endpoint %d", errDenied, direction, id)
	case value == abi.RowAllow:
		return nil, nil
	}
	set := c.rules.get(value)
	if set == nil {
		return nil, fmt.Errorf("%w: %s policy of endpoint %d has rules with number %d, which the proxy does not have", errDenied, direction, id, value)
	}
	return set, nil
}

// readVersions are read before the verdicts: what changes in between has another version the next time.
func (c *connection) readVersions() (versions [2]version, err error) {
	for i, id := range []uint16{c.opener.Endpoint, c.receiver} {
		if id == 0 {
			continue
		}
		v := &versions[i]
		if v.generation, v.revision, err = c.kernel.Version(id); err != nil {
			return versions, err
		}
	}
	return versions, nil
}

// version is what [Kernel.Version] returns for an endpoint.
type version struct{ generation, revision uint32 }

// sameEndpoints reports whether the IDs are still of the endpoints that they were of.
func sameEndpoints(x, y [2]version) bool {
	return x[0].generation == y[0].generation && x[1].generation == y[1].generation
}

// decideHTTP implements [httpproxy.Session.Decide].
func (c *connection) decideHTTP(r *httpproxy.Request) httpproxy.Reason {
	d, err := c.decide()
	if err != nil {
		return httpproxy.ReasonNoRule
	}
	for _, set := range d.sets() {
		if set.http == nil {
			return httpproxy.ReasonNoRule
		}
		if reason := set.http.Decide(r); reason != "" {
			return reason
		}
	}
	return ""
}

// source is the client before the node has translated its address.
func (c *connection) source() netip.AddrPort {
	return netip.AddrPortFrom(c.opener.Source, c.client.Port())
}

// endpoint is the endpoint of this node whose connection it is.
func (c *connection) endpoint() uint16 { return cmp.Or(c.opener.Endpoint, c.receiver) }

// hasEndpoint reports whether one of the ends is the endpoint.
func (c *connection) hasEndpoint(id uint16) bool { return c.opener.Endpoint == id || c.receiver == id }

// session is a connection that is being served.
type session struct {
	*connection
	ctx    context.Context // of all that serves it
	cancel context.CancelCauseFunc
	drain  func()
	memory *sessionMemory
	done   chan struct{} // closed when it has ended
}

// addrPort returns an end of a TCP connection, without IPv4 in IPv6.
func addrPort(a net.Addr) netip.AddrPort {
	ap := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
