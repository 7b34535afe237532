package masquerade

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nft"
)

// TableName is the name of the table.
const TableName = "porin-masquerade"

const chainName = "postrouting"

// afterOthers is a priority: kube-proxy and most others have 100 (srcnat). The first chain that translates a connection
// is the last one that sees it.
const afterOthers = 110

// family is a family that is masqueraded.
type family struct {
	name string
	nft  nft.Family
}

func (f family) has(addr netip.Addr) bool { return addr.Is4() == (f.name == IPv4) }

// ifname is the name as the kernel compares it.
func ifname(name string) []byte {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return padded
}

// familySets are the sets of one family.
type familySets struct {
	sources, inside *nft.Set // prefixes
	pods            *nft.Set // addresses
}

func newSets(f family) familySets {
	key := nftables.TypeIPAddr
	if f.name == IPv6 {
		key = nftables.TypeIP6Addr
	}
	return familySets{
		sources: &nft.Set{Name: "sources-" + f.name, Key: key, Ranges: true},
		inside:  &nft.Set{Name: "inside-" + f.name, Key: key, Ranges: true},
		pods:    &nft.Set{Name: "pods-" + f.name, Key: key},
	}
}

func (t *Table) chain() nft.Chain {
	c := nft.Chain{Name: chainName, Type: nftables.ChainTypeNAT, Hook: nftables.ChainHookPostrouting, Order: afterOthers}
	c.Rules = append(c.Rules, nft.On("to the node itself: of the proxy, as a pod").Meta(expr.MetaKeyOIFNAME, 0).Equal(0, ifname("lo")...).Verdict(expr.VerdictAccept))
	for _, f := range t.families {
		sets := t.sets[f.name]
		c.Rules = append(c.Rules,
			nft.On("by a tunnel, by which replies come to this node's addresses of pods alone").Of(f.nft).Meta(expr.MetaKeyOIFNAME, 0).Equal(0, ifname(link.TunnelDevice)...).
				Source(f.nft, 0).Lookup(sets.sources, nft.NotIn).With(&expr.Masq{FullyRandom: true}),
			nft.On("not from a pod of this node").Of(f.nft).Source(f.nft, 0).Lookup(sets.sources, nft.NotIn).Verdict(expr.VerdictAccept),
			nft.On("from an exempt pod").Of(f.nft).Source(f.nft, 0).Lookup(sets.pods, nft.In).Verdict(expr.VerdictAccept),
			nft.On("stays inside, or is excluded").Of(f.nft).Destination(f.nft, 0).Lookup(sets.inside, nft.In).Verdict(expr.VerdictAccept),
			nft.On("leaves the cluster").Of(f.nft).Count().With(&expr.Masq{FullyRandom: true}),
		)
	}
	return c
}
