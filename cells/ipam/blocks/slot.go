package blocks

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"porin.dev/porin/cells/store"
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

// mostParts bounds the parts of a block: a value of the store has no room for more.
const mostParts = 1024

// check finds what no node writes. Parts that are not apart are checkApart's.
func (s slot) check(block netip.Prefix) error {
	if host := block.Addr().BitLen() - block.Bits(); host < leastHostBits || host > mostHostBits {
		return fmt.Errorf("a block of %d bits for addresses", host)
	}
	if len(s.Parts) > mostParts {
		return fmt.Errorf("it has %d parts", len(s.Parts))
	}
	for _, p := range s.Parts {
		inside := p.Prefix.IsValid() && p.Prefix.Bits() >= block.Bits() && block.Contains(p.Prefix.Addr())
		if !inside || p.Prefix != p.Prefix.Masked() || p.Prefix.Addr().BitLen()-p.Prefix.Bits() < leastPart || checkNode(p.Node) != nil {
			return fmt.Errorf("it gives %s to node %.64q, which is no part of it or no node", p.Prefix, p.Node)
		}
	}
	return nil
}

func (s slot) prefixes() (list []netip.Prefix) {
	for _, p := range s.Parts {
		list = append(list, p.Prefix)
	}
	return list
}

// checkNode says why no node has such a name: it is a part of a key.
func checkNode(name string) error {
	if strings.Contains(name, "/") {
		return errors.New("want no slash in it")
	}
	return store.CheckKey(nodesPrefix + name)
}

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
	return shardKey(pool, block) + keyOf(block)
}

func (at slotID) key() string { return slotKey(at.pool, at.block) }

// shardBits says how many blocks there are at the most in a shard: 256.
const shardBits = 8

// shardKey is the prefix of the keys of the blocks around one: whoever looks for a free one need not read the whole pool.
func shardKey(pool string, block netip.Prefix) string {
	return poolKey(pool) + keyOf(shardOf(block)) + "/"
}

func poolKey(pool string) string { return blocksPrefix + pool + "/" }

func shardOf(block netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(block.Addr(), block.Bits()-shardBits).Masked()
}

func keyOf(prefix netip.Prefix) string { return strings.ReplaceAll(prefix.String(), "/", "_") }

// parseSlotKey is the reverse of slotKey.
func parseSlotKey(key string) (pool string, block netip.Prefix, ok bool) {
	parts := strings.Split(key, "/")
	if len(parts) != 4 {
		return "", netip.Prefix{}, false
	}
	block, err := netip.ParsePrefix(strings.ReplaceAll(parts[3], "_", "/"))
	return parts[1], block, err == nil && block == block.Masked() && block.Bits() >= shardBits && slotKey(parts[1], block) == key
}

func wantKey(pool string, f family, node string) string {
	return wantsPrefix + pool + "/" + f.String() + "/" + node
}
