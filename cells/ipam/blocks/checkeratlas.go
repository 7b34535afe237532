package blocks

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"porin.dev/porin/cells/store"
)

// atlas is all that the store says of blocks and pools at a time.
type atlas struct {
	parts      []Part // in the order of their addresses
	pools      []Pool
	poolsKnown bool
	unreadable []unreadable
}

// unreadable is an entry that cannot be read.
type unreadable struct {
	key string
	err error
}

// readAtlas reads the blocks first: whoever claims one has seen its pool before.
func readAtlas(ctx context.Context, s store.Store) (a atlas, err error) {
	entries, _, err := s.List(ctx, blocksPrefix)
	if err != nil {
		return a, fmt.Errorf("read the blocks: %w", err)
	}
	notices, _, err := s.List(ctx, noticesPrefix)
	if err != nil {
		return a, fmt.Errorf("read the pools: %w", err)
	}
	for _, e := range entries {
		if err := a.add(e); err != nil {
			a.unreadable = append(a.unreadable, unreadable{e.Key, err})
		}
	}
	slices.SortFunc(a.parts, func(x, y Part) int {
		return cmp.Or(x.Prefix.Addr().Compare(y.Prefix.Addr()), cmp.Compare(x.Prefix.Bits(), y.Prefix.Bits()), cmp.Compare(x.String(), y.String()))
	})
	a.setPools(notices)
	return a, nil
}

func (a *atlas) setPools(notices []store.Entry) {
	a.poolsKnown = true
	for _, e := range notices {
		if e.Key != poolsKey {
			continue
		}
		pools, err := decodePools(e)
		if a.pools = pools; err != nil {
			a.poolsKnown = false
			a.unreadable = append(a.unreadable, unreadable{e.Key, err})
		}
	}
}

func (a *atlas) add(e store.Entry) error {
	s, err := decodeParts(e)
	if err != nil {
		return err
	}
	pool, block, _ := parseSlotKey(e.Key)
	for _, p := range s.Parts {
		a.parts = append(a.parts, Part{pool, block, p.Prefix, p.Node})
	}
	return nil
}

// String names the part for people.
func (p Part) String() string { return fmt.Sprintf("%s of node %s, pool %s", p.Prefix, p.Node, p.Pool) }

// of returns the parts of one node.
func (a atlas) of(node string) []Part {
	return slices.DeleteFunc(slices.Clone(a.parts), func(p Part) bool { return p.Node != node })
}

func (a atlas) owners() int {
	nodes := map[string]bool{}
	for _, p := range a.parts {
		nodes[p.Node] = true
	}
	return len(nodes)
}

// whose names who has something of a prefix.
func (a atlas) whose(prefix netip.Prefix) string {
	var texts []string
	for _, p := range a.parts {
		if p.Prefix.Overlaps(prefix) {
			texts = append(texts, p.String())
		}
	}
	if len(texts) == 0 {
		return "nobody's"
	}
	return strings.Join(texts, " and ")
}
