package blocks

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// slot is one block of a pool and who owns it: one node the whole of it, or several a part each. It is the unit of
// compare-and-swap, so no two nodes can own the same address.
type slot struct {
	Parts []part `json:"parts"`
}

// part is what one node owns of a block.
type part struct {
	Prefix  netip.Prefix `json:"prefix"`
	Node    string       `json:"node"`
	Claimed time.Time    `json:"claimed"` // for people
}

// leastPart bounds the halving: no part has fewer addresses than four.
const leastPart = leastHostBits

// ownedBy returns what the node has of the slot.
func (s slot) ownedBy(node string) (parts []netip.Prefix) {
	for _, p := range s.Parts {
		if p.Node == node {
			parts = append(parts, p.Prefix)
		}
	}
	return parts
}

// free returns the largest parts of the block that nobody owns.
func (s slot) free(block netip.Prefix) []netip.Prefix {
	taken := false
	for _, p := range s.Parts {
		if p.Prefix == block {
			return nil
		}
		taken = taken || block.Overlaps(p.Prefix)
	}
	if !taken {
		return []netip.Prefix{block}
	}
	if block.Addr().BitLen()-block.Bits() <= leastPart {
		return nil
	}
	low, high := halves(block)
	return append(s.free(low), s.free(high)...)
}

// halves cuts a prefix in two.
func halves(p netip.Prefix) (low, high netip.Prefix) {
	return nth(p, p.Bits()+1, 0), nth(p, p.Bits()+1, 1)
}

// with returns the slot with another part.
func (s slot) with(p part) slot {
	return slot{Parts: append(slices.Clone(s.Parts), p)}
}

// without returns the slot without a part of a node.
func (s slot) without(node string, prefix netip.Prefix) slot {
	return slot{Parts: slices.DeleteFunc(slices.Clone(s.Parts), func(p part) bool { return p.Node == node && p.Prefix == prefix })}
}

// The keys of the store. Every node follows the notices, and no node the rest. A prefix has no '/' in a key.
const (
	noticesPrefix = "notices/"
	poolsKey      = noticesPrefix + "pools"
	wantsPrefix   = noticesPrefix + "wants/"
	blocksPrefix  = "blocks/"
	nodesPrefix   = "nodes/"
)

func slotKey(pool string, block netip.Prefix) string {
	return blocksPrefix + pool + "/" + strings.ReplaceAll(block.String(), "/", "_")
}

func (at slotID) key() string { return slotKey(at.pool, at.block) }

// parseSlotKey is the reverse of slotKey.
func parseSlotKey(key string) (pool string, block netip.Prefix, ok bool) {
	rest, ok := strings.CutPrefix(key, blocksPrefix)
	if !ok {
		return "", netip.Prefix{}, false
	}
	pool, text, ok := strings.Cut(rest, "/")
	if !ok {
		return "", netip.Prefix{}, false
	}
	block, err := netip.ParsePrefix(strings.ReplaceAll(text, "_", "/"))
	return pool, block, err == nil && block == block.Masked()
}

func wantKey(pool string, f family, node string) string {
	return wantsPrefix + pool + "/" + f.String() + "/" + node
}
