package control

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/cells/policy/names"
)

// scope is a compiled [policy.NameScope]. It never changes. A nil scope is unknown: then rules may select any name.
type scope struct {
	rules   *dnsname.Rules
	cluster bart.Lite
}

func newScope(told *policy.NameScope) (*scope, error) {
	if told == nil {
		return nil, nil
	}
	rules, err := dnsname.Compile(told.Rules)
	if err != nil {
		return nil, fmt.Errorf("compile the rules for names: %w", err)
	}
	s := &scope{rules: rules}
	for _, cidr := range told.Cluster {
		if cidr.IsValid() {
			s.cluster.Insert(cidr)
		}
	}
	return s, nil
}

// selects reports whether a rule of a policy may select addresses of the name.
func (s *scope) selects(name string) bool { return s == nil || s.rules.Match(name) }

// outside returns the addresses that change the policy when a rule selects their name: neither addresses of the cluster
// nor loopback, link-local and the like.
func (s *scope) outside(addresses []dnsname.Address) (found []netip.Addr) {
	for _, a := range addresses {
		addr := names.Normalize(a.Addr)
		if !names.IsLocalScope(addr) && (s == nil || !s.cluster.Contains(addr)) {
			found = append(found, addr)
		}
	}
	return found
}

// mergeScopes returns the union, for an agent that starts and does not know all policies yet; nil if one is unknown.
func mergeScopes(x, y *policy.NameScope) *policy.NameScope {
	if x == nil || y == nil {
		return nil
	}
	merged := &policy.NameScope{Rules: slices.Clone(x.Rules), Cluster: slices.Concat(x.Cluster, y.Cluster)}
	for _, rule := range y.Rules {
		if !slices.Contains(merged.Rules, rule) {
			merged.Rules = append(merged.Rules, rule)
		}
	}
	slices.SortFunc(merged.Cluster, netip.Prefix.Compare) // there may be 100,000
	merged.Cluster = slices.Compact(merged.Cluster)
	return merged
}
