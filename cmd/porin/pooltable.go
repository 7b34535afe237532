package main

import (
	"fmt"
	"io"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	v1 "porin.dev/porin/api/v1"
)

func poolTable(w io.Writer, p v1.PoolSpec) {
	row(w, "Pool:", p.Name+", "+poolState(p))
	row(w, "Prefixes:", joined(p.Prefixes))
	if len(p.Exclude) > 0 {
		row(w, "Excluded:", joined(p.Exclude))
	}
	row(w, "Blocks:", blockText(p))
	for _, use := range p.Use {
		family := map[string]string{"ipv4": "IPv4:", "ipv6": "IPv6:"}[use.Family]
		row(w, family, fmt.Sprintf("%d of %s blocks owned, by %s; %s free",
			use.Owned, blockCount(use.Blocks), plural(use.Nodes, "node"), blockCount(use.Blocks-use.Owned)))
	}
	for _, b := range p.Draining[:min(len(p.Draining), shownDraining)] {
		row(w, "Draining:", fmt.Sprintf("%s, on node %s", b.CIDR, b.Node))
	}
	if more := len(p.Draining) - shownDraining; more > 0 {
		row(w, "Draining:", fmt.Sprintf("%d more; -o json has all", more))
	}
	if len(p.NodeSelector) > 0 {
		row(w, "Nodes:", labelsText(p.NodeSelector))
	}
	if len(p.AllowedNamespaces) > 0 {
		row(w, "Namespaces:", strings.Join(p.AllowedNamespaces, " "))
	}
	row(w, "Quarantine:", quarantineText(p))
	if p.ReuseResting {
		row(w, "When full:", "the address that rests longest is given out")
	}
}

// blockText is the size of the blocks of the families that the pool has.
func blockText(p v1.PoolSpec) string {
	var texts []string
	if slices.ContainsFunc(p.Prefixes, func(prefix netip.Prefix) bool { return prefix.Addr().Is4() }) {
		texts = append(texts, fmt.Sprintf("/%d", p.IPv4BlockBits))
	}
	if slices.ContainsFunc(p.Prefixes, func(prefix netip.Prefix) bool { return prefix.Addr().Is6() }) {
		texts = append(texts, fmt.Sprintf("/%d", p.IPv6BlockBits))
	}
	return strings.Join(texts, ", ")
}

func quarantineText(p v1.PoolSpec) string {
	if p.Quarantine == nil || *p.Quarantine == 0 {
		return "none"
	}
	return plainDuration(*p.Quarantine)
}

func poolState(p v1.PoolSpec) string {
	switch {
	case p.State != "" && p.State != "accepted":
		return p.State
	case p.Disabled:
		return "disabled"
	}
	return "enabled"
}

// ownedText is "3 of 1024", and "" for a family that the pool has not.
func ownedText(p v1.PoolSpec, family string) string {
	for _, use := range p.Use {
		if use.Family == family {
			return fmt.Sprintf("%d of %s", use.Owned, blockCount(use.Blocks))
		}
	}
	return ""
}

// blockCount is the approximate number: the digits of a large IPv6 prefix's count are not useful.
func blockCount(n int64) string {
	const readable = 1 << 24
	if n <= readable {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("2^%d", bits.Len64(uint64(n-1))) // 2^58 less a few is 2^58
}

// shownDraining is how many blocks a table names. JSON has all.
const shownDraining = 50
