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

// scope is a [policy.NameScope] that can be asked. It never changes. Of a nil one, every rule may select every name.
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

// outside returns the addresses that a name may have: those outside of the cluster, which other machines have.
func (s *scope) outside(addresses []dnsname.Address) (found []netip.Addr) {
	for _, a := range addresses {
		addr := names.Normalize(a.Addr)
		if !names.IsLocalScope(addr) && (s == nil || !s.cluster.Contains(addr)) {
			found = append(found, addr)
		}
	}
	return found
}

// mergeScopes returns what both say together, for an agent that starts and does not know all policies yet.
func mergeScopes(x, y *policy.NameScope) *policy.NameScope {
	if x == nil || y == nil {
		return nil
	}
	merged := &policy.NameScope{Rules: slices.Clone(x.Rules), Cluster: slices.Clone(x.Cluster)}
	for _, rule := range y.Rules {
		if !slices.Contains(merged.Rules, rule) {
			merged.Rules = append(merged.Rules, rule)
		}
	}
	for _, cidr := range y.Cluster {
		if !slices.Contains(merged.Cluster, cidr) {
			merged.Cluster = append(merged.Cluster, cidr)
		}
	}
	return merged
}
