package blocks

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/store"
	"porin.dev/porin/internal/fault"
)

// version is of all values that this package writes.
const version = 1

type poolList struct {
	Pools []Pool `json:"pools"`
}

// presence is what a node says of itself as long as it lives.
type presence struct {
	Node   string            `json:"node"`
	Labels map[string]string `json:"labels,omitempty"`
	Agent  string            `json:"agent"` // all lives of an agent in a boot say the same, and no other one does
}

// want is that a node has no address left of a pool and family, and has found no block. Owners is how many nodes had some.
type want struct {
	Node   string `json:"node"`
	Owners int    `json:"owners"`
}

// errUnreadable is that what is in the store was written by a later version, or by somebody who knows no better. It is not
// acted upon, and not changed.
var errUnreadable = fault.New(fault.Internal, "it cannot be read")

func decodePools(e store.Entry) ([]Pool, error) {
	list, err := store.Decode[poolList](e, version)
	if err == nil {
		err = checkPools(list.Pools)
	}
	if err != nil {
		return nil, fmt.Errorf("read the pools: %w: %w", errUnreadable, err)
	}
	return list.Pools, nil
}

// checkPools finds what no [Pools.Put] leaves behind.
func checkPools(list []Pool) error {
	var all []netip.Prefix
	names := map[string]bool{}
	for _, p := range list {
		if err := p.checkAlone(); err != nil {
			return fmt.Errorf("pool %.64q: %w", p.Name, err)
		}
		if names[p.Name] {
			return fmt.Errorf("pool %.64q: it is there twice", p.Name)
		}
		names[p.Name] = true
		all = append(all, p.Prefixes...)
	}
	return checkApart(all)
}

// decodeSlot returns a block whose parts are apart, in it, and of nodes.
func decodeSlot(e store.Entry) (slot, error) {
	s, err := decodeParts(e)
	if err == nil {
		err = checkApart(s.prefixes())
	}
	if err != nil {
		return slot{}, fmt.Errorf("block %s: %w: %w", e.Key, errUnreadable, err)
	}
	return s, nil
}

// decodeParts is decodeSlot for who looks for parts that are not apart.
func decodeParts(e store.Entry) (slot, error) {
	_, block, ok := parseSlotKey(e.Key)
	if !ok {
		return slot{}, fmt.Errorf("its key is not %sPOOL/SHARD/ADDRESS_BITS", blocksPrefix)
	}
	s, err := store.Decode[slot](e, version)
	if err == nil {
		err = s.check(block)
	}
	if err != nil {
		return slot{}, err
	}
	return s, nil
}

// checkApart finds prefixes that have addresses in common.
func checkApart(prefixes []netip.Prefix) error {
	sorted := slices.SortedFunc(slices.Values(prefixes), func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	for i := 1; i < len(sorted); i++ { // the first that is not apart is in the one before it
		if sorted[i-1].Overlaps(sorted[i]) {
			return fmt.Errorf("%s and %s have addresses in common", sorted[i-1], sorted[i])
		}
	}
	return nil
}

func encode(value any) []byte {
	text, err := store.Encode(version, value)
	if err != nil {
		panic(err) // a type of ours that JSON does not take
	}
	return text
}
