package chaos

import (
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// The modes.
const (
	podCIDR   = "pod-cidr"
	multiPool = "multi-pool" // of an etcd, whose members are killed and stopped, too
)

// pool has small blocks, so that nodes claim some all the time, and about twice as many as they need.
var pool = v1.PoolSpec{
	Name:          "default",
	Prefixes:      []netip.Prefix{netip.MustParsePrefix("10.64.0.0/25"), netip.MustParsePrefix("fd00:64::/121")},
	IPv4BlockBits: 29, IPv6BlockBits: 125,
	Quarantine: new(time.Duration(0)),
}

// flags of an agent. Without a quarantine an address that is freed too early is given out again at once; a doctor that
// repaired would hide a leak.
func (w *world) flags(node *testutil.Node) []string {
	always := []string{"--doctor-repair=false", "--log-level=warn"}
	if w.etcd == nil {
		return append(always, "--ipam-pod-cidr="+node.PodIPv4.String()+","+node.PodIPv6.String(), "--ipam-quarantine=0s")
	}
	return append(always, "--ipam-mode=multi-pool", "--ipam-pre-allocate=4", "--store=etcd", "--store-etcd-endpoints="+w.etcd.endpoints())
}

// prepare makes the pool, when there are pools.
func (h *host) prepare(t *testing.T) {
	t.Helper()
	if h.etcd == nil {
		return
	}
	if err := h.agent.Do(http.MethodPut, "/v1/pool/"+pool.Name, pool, nil); err != nil {
		t.Fatal(err)
	}
}

// prefixes are those of the node's pods: of the ones that live, when the node has parts of a pool.
func (h *host) prefixes() (all []netip.Prefix) {
	if h.etcd == nil {
		return []netip.Prefix{h.node.PodIPv4, h.node.PodIPv6}
	}
	for _, p := range h.live {
		all = append(all, netip.PrefixFrom(p.IPv4, 32), netip.PrefixFrom(p.IPv6, 128))
	}
	return slices.Clip(all)
}
