package masquerade

import (
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

// family is a family that is masqueraded, and its sets.
type family struct {
	nft.Family
	sources, inside *nft.Set // prefixes
	pods            *nft.Set // addresses
}

func newFamily(f nft.Family) family {
	return family{f, f.Addresses("sources", true), f.Addresses("inside", true), f.Addresses("pods", false)}
}

// ifname is the name as the kernel compares it.
func ifname(name string) []byte {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return padded
}

func (t *Table) chain() nft.Chain {
	c := nft.Chain{Name: chainName, Type: nftables.ChainTypeNAT, Hook: nftables.ChainHookPostrouting, Order: afterOthers}
	c.Rules = append(c.Rules, nft.On("to the node itself: of the proxy, as a pod").Meta(expr.MetaKeyOIFNAME, 0).Equal(0, ifname("lo")...).Verdict(expr.VerdictAccept))
	for _, f := range t.families {
		c.Rules = append(c.Rules,
			nft.On("by a tunnel, by which replies come to this node's addresses of pods alone").Of(f.Family).Meta(expr.MetaKeyOIFNAME, 0).Equal(0, ifname(link.TunnelDevice)...).
				Source(f.Family, 0).Lookup(f.sources, nft.NotIn).With(&expr.Masq{FullyRandom: true}),
			nft.On("not from a pod of this node").Of(f.Family).Source(f.Family, 0).Lookup(f.sources, nft.NotIn).Verdict(expr.VerdictAccept),
			nft.On("from an exempt pod").Of(f.Family).Source(f.Family, 0).Lookup(f.pods, nft.In).Verdict(expr.VerdictAccept),
			nft.On("stays inside, or is excluded").Of(f.Family).Destination(f.Family, 0).Lookup(f.inside, nft.In).Verdict(expr.VerdictAccept),
			nft.On("leaves the cluster").Of(f.Family).Count().With(&expr.Masq{FullyRandom: true}),
		)
	}
	return c
}
