package main

import (
	"errors"
	"net/netip"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy"
)

// proxyKernel is the [proxy.Kernel] of the datapath.
type proxyKernel struct {
	*datapath.Redirects
	enforcer *datapath.Enforcer
}

func newProxyKernel(d *datapath.Datapath) proxy.Kernel {
	return proxyKernel{d.Redirects(), d.Enforcer()}
}

// Opener implements [proxy.Kernel].
func (k proxyKernel) Opener(protocol model.Protocol, client, server netip.AddrPort) (proxy.Opener, error) {
	found, err := k.Lookup(uint8(protocol), client, server)
	if errors.Is(err, datapath.ErrNotRedirected) || err == nil && !found.Source.IsValid() {
		return proxy.Opener{}, proxy.ErrNoOpener
	}
	return proxy.Opener{Source: found.Source, Endpoint: found.Endpoint, SentHere: found.SentHere, ToNode: found.ToNode}, err
}

// Verdict implements [proxy.Kernel].
func (k proxyKernel) Verdict(q policy.Question) (uint32, error) { return k.enforcer.Verdict(q) }
