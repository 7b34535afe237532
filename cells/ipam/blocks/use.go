package blocks

import (
	"context"

	v1 "porin.dev/porin/api/v1"
)

// specs returns pools as the API has them, with how full they are. They come without that when a block cannot be read: the
// doctor says which, and the pools can be changed all the same.
func (s routes) specs(ctx context.Context, pools []Pool) []v1.PoolSpec {
	parts, err := Owned(ctx, s.pools.store, "")
	specs := make([]v1.PoolSpec, len(pools))
	for i, p := range pools {
		if specs[i] = specOf(p); err == nil {
			specs[i].Use = p.use(parts)
		}
	}
	return specs
}

func specOf(p Pool) v1.PoolSpec {
	return v1.PoolSpec{
		Name: p.Name, Prefixes: p.Prefixes, IPv4BlockBits: p.IPv4BlockBits, IPv6BlockBits: p.IPv6BlockBits,
		NodeSelector: p.NodeSelector, Disabled: p.Disabled, Quarantine: p.Quarantine, ReuseResting: p.ReuseResting,
	}
}

func poolOf(s v1.PoolSpec) Pool {
	return Pool{
		Name: s.Name, Prefixes: s.Prefixes, IPv4BlockBits: s.IPv4BlockBits, IPv6BlockBits: s.IPv6BlockBits,
		NodeSelector: s.NodeSelector, Disabled: s.Disabled, Quarantine: s.Quarantine, ReuseResting: s.ReuseResting,
	}
}

// use counts the blocks of the pool as it is now. What nodes have yet of a prefix that was taken out of it is left out.
func (p Pool) use(parts []Part) (list []v1.PoolUse) {
	for _, f := range []family{ipv4, ipv6} {
		if p.count(f) == 0 {
			continue
		}
		owned, nodes := map[slotID]bool{}, map[string]bool{}
		for _, part := range parts {
			if part.Pool == p.Name && familyOf(part.Block) == f && p.has(part.Block) {
				owned[slotID{part.Pool, part.Block}], nodes[part.Node] = true, true
			}
		}
		list = append(list, v1.PoolUse{Family: f.String(), Blocks: int64(p.count(f)), Owned: int64(len(owned)), Nodes: len(nodes)})
	}
	return list
}
