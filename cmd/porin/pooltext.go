package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "porin.dev/porin/api/v1"
)

func prefixText(prefixes []netip.Prefix) string {
	var texts []string
	for _, p := range prefixes {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, " ")
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

func selectorText(labels map[string]string) string {
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		texts = append(texts, key+"="+labels[key])
	}
	return strings.Join(texts, " ")
}

func quarantineText(p v1.PoolSpec) string {
	if p.Quarantine == nil || *p.Quarantine == 0 {
		return "none"
	}
	return plain(*p.Quarantine)
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
