package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"testing"

	"porin.dev/porin/cells/policy/model"
)

// TestScope: a proxy is told the rules for names of all policies, and what is of the cluster.
func TestScope(t *testing.T) {
	n := servingNode(t, "")
	changes := 0
	n.queue.names.OnScopeChange(func() { changes++ })
	web := pod(1, "web")
	n.attach(t, web)
	n.queue.SetRemote(RemoteChange{SetBlocks: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}})
	expect := func(when string, wantChanges int, want ...model.DNSRule) {
		t.Helper()
		s := n.queue.names.Scope()
		slices.SortFunc(s.Rules, func(x, y model.DNSRule) int { return cmp.Compare(x.Pattern, y.Pattern) })
		if !slices.Equal(s.Rules, want) || changes != wantChanges {
			t.Errorf("%s: rules %v, told %d times; want %v and %d", when, s.Rules, changes, want, wantChanges)
		}
	}
	expect("without policies", 0)
	n.put(t, webTo("names", "*.example"))
	expect("a policy", 1, model.DNSRule{Pattern: "*.example"})
	n.put(t, webTo("same", "*.example"))
	expect("another policy with the rule", 1, model.DNSRule{Pattern: "*.example"})
	n.put(t, webTo("names", "*.other"))
	expect("another rule", 2, model.DNSRule{Pattern: "*.example"}, model.DNSRule{Pattern: "*.other"})
	n.put(t, webTo("same", "*.other"))
	expect("a rule is gone", 3, model.DNSRule{Pattern: "*.other"})

	s := n.queue.names.Scope()
	for text, want := range map[string]bool{"10.9.0.7": true, "10.10.0.7": false, web.Addresses.IPv4.String(): true} {
		addr := netip.MustParseAddr(text)
		if got := slices.ContainsFunc(s.Cluster, func(cidr netip.Prefix) bool { return cidr.Contains(addr) }); got != want {
			t.Errorf("%s is of the cluster: %t, want %t", addr, got, want)
		}
	}
}
