package chaos

import (
	"fmt"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/testutil"
)

// The modes.
const (
	podCIDR   = "pod-cidr"
	multiPool = "multi-pool" // of a Kubernetes API, whose servers are killed and stopped, too
)

// pool has small blocks, so that nodes claim some all the time, and about twice as many as they need.
var pool = cluster.Pool{
	Name:          cluster.DefaultPool,
	Prefixes:      []netip.Prefix{netip.MustParsePrefix("10.64.0.0/25"), netip.MustParsePrefix("fd00:64::/121")},
	IPv4BlockBits: 29, IPv6BlockBits: 125,
}

// favoured is the node whose pods ask for a pool of single addresses: it claims a block for nearly every pod.
type favoured struct {
	pool string
	host *host
}

// favour has the pods of no other node ask for the pool.
func (w *world) favour(pool string, h *host) { w.favourite.Store(&favoured{pool, h}) }

// newPool makes a pool of single addresses that no pod has used, and returns its name.
func (w *world) newPool(stop <-chan struct{}) string {
	n := w.pools
	w.pools++
	fresh := cluster.Pool{
		Name: fmt.Sprintf("fresh-%d", n), IPv4BlockBits: 32, IPv6BlockBits: 128,
		Prefixes: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 66, byte(n >> 3), byte(n << 5)}), 27),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0, 0, 0x66, 6: byte(n >> 8), 7: byte(n)}), 123),
		},
	}
	w.fresh = fresh
	for {
		err := w.api.putPool(fresh)
		if err == nil || !sleep(retry, stop) {
			return fresh.Name
		}
	}
}

// choosePool has the container ask for the pool of its node.
func (h *host) choosePool(c *testutil.Container) {
	if f := h.favourite.Load(); f != nil && f.host == h {
		c.Args = append(c.Args, [2]string{"PORIN_POOL", f.pool})
	}
}

// flags of an agent. Without a quarantine an address that is freed too early is given out again at once; a doctor that
// repaired would hide a leak.
func (w *world) flags(node *testutil.Node) []string {
	always := []string{"--doctor-repair=false", "--log-level=warn"}
	if w.api == nil {
		return append(always, "--ipam-pod-cidr="+node.PodIPv4.String()+","+node.PodIPv6.String(), "--ipam-quarantine=0s")
	}
	return slices.Concat(always, []string{"--ipam-mode=multi-pool", "--ipam-pre-allocate=4"}, w.api.flags())
}

// prefixes are the prefixes of the node's pods: of its live pods, when the node has parts of a pool.
func (h *host) prefixes() (all []netip.Prefix) {
	if h.api == nil {
		return []netip.Prefix{h.node.PodIPv4, h.node.PodIPv6}
	}
	for _, p := range h.live {
		all = append(all, netip.PrefixFrom(p.IPv4, 32), netip.PrefixFrom(p.IPv6, 128))
	}
	return slices.Clip(all)
}
