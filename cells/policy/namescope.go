package policy

import (
	"maps"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// NameScope says which answers change no policy. A proxy passes them on while no agent answers it.
type NameScope struct {
	// Rules are the rules for names of all policies: an answer for a name that none of them matches needs no agent.
	Rules []model.DNSRule `json:"rules,omitempty"`
	// Cluster has ranges of addresses in the cluster: of pods of other nodes, of this node and of its pods. A name
	// never changes their policy. The list may lack some, such as other nodes' own addresses.
	Cluster []netip.Prefix `json:"cluster,omitempty"`
}

// Scope returns the scope as it is now. It waits while the engine changes.
func (n *Names) Scope() (s NameScope) {
	v := n.view
	v.mu.RLock()
	defer v.mu.RUnlock()
	s.Rules = slices.Collect(maps.Keys(v.domainRules()))
	s.Cluster = slices.Collect(maps.Keys(v.unmanaged))
	keys := append(slices.Collect(maps.Keys(v.locals)), HostKey)
	for _, key := range keys {
		if ep, ok := v.engine.Endpoint(key); ok {
			for _, addr := range ep.Addresses {
				s.Cluster = append(s.Cluster, netip.PrefixFrom(addr, addr.BitLen()))
			}
		}
	}
	return s
}

// OnScopeChange sets a function that Names calls when the rules of [Names.Scope] change, before they are in force.
// Names does not call it for the ranges: answers with addresses in a range that a proxy does not know wait for an
// agent. The function must not block, nor call Names. Call OnScopeChange before [Queue.Start].
func (n *Names) OnScopeChange(changed func()) { n.onScopeChange = changed }
