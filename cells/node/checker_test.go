package node

import "testing"

func TestOverlaps(t *testing.T) {
	for _, c := range []struct {
		block, address, service string
		want                    string
	}{
		{"10.9.0.0/24", "192.0.2.9", "10.96.0.1", ""},
		{"10.9.0.0/24", "192.0.2.9", "", ""},
		{"10.9.0.0/24", "192.0.2.9", "api.example.com", ""},
		{"10.96.0.0/24", "192.0.2.9", "10.96.0.1", "it has the address of the Service kubernetes, 10.96.0.1"},
		{"192.0.2.0/24", "192.0.2.9", "10.96.0.1", "it has the node's own address, 192.0.2.9"},
		{"fd00:1::/64", "192.0.2.9", "fd00:1::1", "it has the address of the Service kubernetes, fd00:1::1"},
	} {
		findings := overlaps(Self{Addresses: addresses(c.address), Blocks: prefixes(c.block)}, c.service)
		if c.want == "" && len(findings) > 0 || c.want != "" && (len(findings) != 1 || findings[0].Detail != c.want) {
			t.Errorf("block %s, node %s, Service %q: %+v, want %q", c.block, c.address, c.service, findings, c.want)
		}
	}
}
