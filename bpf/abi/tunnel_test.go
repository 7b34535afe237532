package abi_test

import (
	"net/netip"
	"testing"

	"porin.dev/porin/bpf/abi"
)

// TestCIDRKey: a prefix and its key are the same, and keys of the two families never are.
func TestCIDRKey(t *testing.T) {
	seen := map[abi.CIDRKey]netip.Prefix{}
	for _, text := range []string{"0.0.0.0/0", "10.1.0.0/16", "192.0.2.1/32", "::/0", "::/96", "fd00::/64", "2001:db8::1/128", "::a01:0/112"} {
		p := netip.MustParsePrefix(text)
		key := abi.CIDRKeyOf(p)
		if back := key.Prefix(); back != p {
			t.Errorf("%s comes back as %s", p, back)
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have the same key", p, other)
		}
		seen[key] = p
	}
}

// TestTunnelDropReasons: all have names, and room in the map.
func TestTunnelDropReasons(t *testing.T) {
	names := map[string]bool{}
	for _, reason := range abi.TunnelDropReasons() {
		if name := reason.String(); name == "" || names[name] || int(reason) >= len(abi.TunnelDrops{}.ToTunnel) {
			t.Errorf("reason %d is named %q", reason, name)
		}
		names[reason.String()] = true
	}
	if len(names) < 7 {
		t.Errorf("reasons %v", names)
	}
}
