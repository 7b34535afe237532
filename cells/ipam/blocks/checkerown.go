package blocks

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/doctor"
)

// mine is what this node gives out from or has addresses of in use, by pool and block.
type mine map[Part]Usage

func (c *Checker) mine() mine {
	m := mine{}
	for _, pool := range c.given.Wanted() {
		for _, u := range c.given.Usage(pool) {
			if !u.Drained || u.Used > 0 {
				m[Part{Pool: pool, Prefix: u.Block}] = u
			}
		}
	}
	return m
}

// has tells whether there is something of a part.
func (m mine) has(p Part) bool {
	for own := range m {
		if own.Pool == p.Pool && own.Prefix.Overlaps(p.Prefix) {
			return true
		}
	}
	return false
}

// nameTaken is that this node has nothing, as it is not the only one of its name.
func (c *Checker) nameTaken() []doctor.Finding {
	err := c.holder.NameTaken()
	if err == nil {
		return nil
	}
	return []doctor.Finding{{Kind: nodeNameTaken, Subject: "node " + c.cfg.Node, Detail: err.Error()}}
}

// notHeld are the parts of this node that it neither gives out from nor knows to have. One that has just begun knows of
// nothing yet.
func (c *Checker) notHeld(own []Part, before, after mine) (findings []doctor.Finding) {
	held := c.holder.Held()
	if held == nil {
		return nil
	}
	for _, p := range own {
		if before.has(p) || after.has(p) || slices.Contains(held, p) {
			continue
		}
		findings = append(findings, doctor.Finding{
			Kind: blockNotHeld, Subject: fmt.Sprintf("%s of pool %s", p.Prefix, p.Pool), Detail: "the node does not give out from it",
			Repair: c.holder.Recheck,
		})
	}
	return findings
}

// notOwned are the blocks that this node has, and not for the store.
func (c *Checker) notOwned(a atlas, before, after mine) (findings []doctor.Finding) {
	own := a.of(c.cfg.Node)
	for p, u := range after {
		if _, was := before[p]; !was || slices.ContainsFunc(own, func(o Part) bool { return o.has(p) }) {
			continue
		}
		findings = append(findings, doctor.Finding{
			Kind: blockNotOwned, Subject: fmt.Sprintf("%s of pool %s", p.Prefix, p.Pool),
			Detail: fmt.Sprintf("addresses in use: %d; for the store it is %s", u.Used, a.whose(p.Prefix)),
			Repair: func(ctx context.Context) error { return c.regain(ctx, p.Pool, p.Prefix) },
		})
	}
	return findings
}

// has tells whether another part lies in it.
func (p Part) has(other Part) bool {
	return p.Pool == other.Pool && p.Prefix.Bits() <= other.Prefix.Bits() && p.Prefix.Contains(other.Prefix.Addr())
}

// regain has nothing more given out from what is not this node's, and claims it if it is in use and nobody's.
func (c *Checker) regain(ctx context.Context, pool string, prefix netip.Prefix) error {
	if err := c.holder.Recheck(ctx); err != nil {
		return err
	}
	if !c.mine().has(Part{Pool: pool, Prefix: prefix}) {
		return nil // nothing of it was in use, or it is the node's by now
	}
	return c.holder.More(ctx, pool, prefix.Addr())
}
