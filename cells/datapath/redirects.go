package datapath

import (
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/internal/bpfarray"
	"porin.dev/porin/internal/fault"
)

// Redirects is what the programs know of connections that they redirect to the proxy.
type Redirects struct{ maps *kernelMaps }

// Redirects are those in the maps.
func (d *Datapath) Redirects() *Redirects { return &Redirects{&d.maps} }

// Redirect says who has opened a redirected connection.
type Redirect struct {
	Source   netip.Addr // before the node has translated it
	Endpoint uint16     // ID of the endpoint of this node that it is; 0 for any other
	FromNode bool       // the node itself has sent the first packet
}

// ErrNotRedirected is returned for a connection that the programs do not know, or whose endpoint is gone.
var ErrNotRedirected = fault.New(fault.NotFound, "the connection was not redirected")

// SetProxyLink has the programs redirect by a device, or with 0 drop what the proxy is to decide about.
func (r *Redirects) SetProxyLink(index int) error {
	return r.maps.use(func(m *bpfMaps) error {
		if err := m.ProxyLink.Put(uint32(0), uint32(index)); err != nil {
			return fmt.Errorf("write the map %s: %w", m.ProxyLink, err)
		}
		return nil
	})
}

// UseMaps calls f with the maps that the program select_listener shares with the others: see [bpf.ListenerMaps].
func (r *Redirects) UseMaps(f func(map[string]*ebpf.Map) error) error {
	return r.maps.use(func(m *bpfMaps) error {
		all := (*loader.Maps)(m).ByName()
		shared := map[string]*ebpf.Map{}
		for _, name := range bpf.ListenerMaps() {
			shared[name] = all[name]
		}
		return f(shared)
	})
}

// ProxyLink returns the device that the programs redirect to, 0 for none.
func (r *Redirects) ProxyLink() (index int, err error) {
	err = r.maps.use(func(m *bpfMaps) error {
		var value uint32
		if err := m.ProxyLink.Lookup(uint32(0), &value); err != nil {
			return fmt.Errorf("read the map %s: %w", m.ProxyLink, err)
		}
		index = int(value)
		return nil
	})
	return index, err
}

// Lookup returns who has opened a connection of TCP or UDP that has these ends for the proxy, and forgets it.
func (r *Redirects) Lookup(protocol uint8, client, server netip.AddrPort) (found Redirect, err error) {
	key := abi.RedirectKey{
		Client: abi.AddrOf(client.Addr()), Server: abi.AddrOf(server.Addr()), ClientPort: abi.Port(client.Port()), ServerPort: abi.Port(server.Port()),
		Protocol: protocol, Family: 6,
	}
	if client.Addr().Is4() {
		key.Family = 4
	}
	err = r.maps.use(func(m *bpfMaps) error {
		var value abi.Redirect
		if err := gone(m.Redirects.Lookup(key, &value)); err != nil {
			return fmt.Errorf("read the map %s: %w", m.Redirects, err)
		}
		if value == (abi.Redirect{}) || value.Id != 0 && m.generation(value.Id) != value.Generation {
			return ErrNotRedirected
		}
		found = Redirect{Source: value.Source.IP(), Endpoint: value.Id, FromNode: value.FromNode != 0}
		if protocol == unix.IPPROTO_UDP { // a datagram that follows may be on its way
			return nil
		}
		return gone(m.Redirects.Delete(key))
	})
	return found, err
}

// EndpointAt returns the ID of the endpoint of this node that has an address, or 0.
func (r *Redirects) EndpointAt(addr netip.Addr) (id uint16, err error) {
	err = r.maps.use(func(m *bpfMaps) error {
		var value abi.Endpoint
		if err := gone(m.Endpoints.Lookup(abi.AddrOf(addr), &value)); err != nil {
			return fmt.Errorf("read the map %s: %w", m.Endpoints, err)
		}
		id = value.Id
		return nil
	})
	return id, err
}

// AddressGeneration returns a number that changes whenever an endpoint of this node gets an address.
func (r *Redirects) AddressGeneration() (generation uint32, err error) {
	err = r.maps.use(func(m *bpfMaps) error {
		generation = m.generation(uint16(abi.NoEndpoint))
		return nil
	})
	return generation, err
}

// Version returns the generation of the endpoint's ID, and the revision of its policy.
func (r *Redirects) Version(id uint16) (generation, revision uint32, err error) {
	err = r.maps.use(func(m *bpfMaps) error {
		policy, err := bpfarray.Read[abi.Policy](m.Policies, uint32(id))
		if err != nil {
			return fmt.Errorf("read the policy of endpoint %d: %w", id, err)
		}
		generation, revision = m.generation(id), policy.Revision
		return nil
	})
	return generation, revision, err
}
