// Package mapkernel is the [proxy.Kernel] of the datapath's maps: the agent's own datapath's, or maps that an agent has
// pinned for a proxy in a process of its own.
package mapkernel

import (
	"errors"
	"net/netip"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy"
)

// Verdicts reads what the maps of policy say.
type Verdicts interface {
	Verdict(q policy.Question) (uint32, error)
}

type kernel struct {
	*datapath.Redirects
	Verdicts
}

// New returns a kernel that reads the maps.
func New(redirects *datapath.Redirects, verdicts Verdicts) proxy.Kernel {
	return kernel{redirects, verdicts}
}

// Opener implements [proxy.Kernel].
func (k kernel) Opener(protocol model.Protocol, client, server netip.AddrPort) (proxy.Opener, error) {
	found, err := k.Lookup(uint8(protocol), client, server)
	if errors.Is(err, datapath.ErrNotRedirected) || err == nil && !found.Source.IsValid() {
		return proxy.Opener{}, proxy.ErrNoOpener
	}
	return proxy.Opener{Source: found.Source, Endpoint: found.Endpoint, FromNode: found.FromNode}, err
}
