package blocks

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"porin.dev/porin/cells/store"
)

// view is what this node knows of the cluster: it follows the store, and may lag behind it. Each compare-and-swap finds
// out whether it did.
type view struct {
	mu     sync.Mutex // guards the fields below
	synced bool
	pools  map[string]Pool
	slots  map[string]map[netip.Prefix]versioned // by pool
	nodes  map[string]bool
	wants  map[string]bool // by key
}

// versioned is a slot as it was at a revision.
type versioned struct {
	slot
	revision int64
}

func newView() *view {
	return &view{pools: map[string]Pool{}, slots: map[string]map[netip.Prefix]versioned{}, nodes: map[string]bool{}, wants: map[string]bool{}}
}

// put takes in an entry. What cannot be read is passed over: it is of a later version, and nobody's to claim.
func (v *view) put(e store.Entry) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.insert(e)
}

// insert expects the lock.
func (v *view) insert(e store.Entry) {
	switch {
	case e.Key == poolsKey:
		pools, err := decodePools(e)
		if err != nil {
			return
		}
		v.pools = map[string]Pool{}
		for _, p := range pools {
			v.pools[p.Name] = p
		}
	case strings.HasPrefix(e.Key, blocksPrefix):
		pool, block, ok := parseSlotKey(e.Key)
		s, err := decodeSlot(e)
		if !ok || err != nil || v.slots[pool][block].revision > e.Revision {
			return
		}
		if v.slots[pool] == nil {
			v.slots[pool] = map[netip.Prefix]versioned{}
		}
		v.slots[pool][block] = versioned{s, e.Revision}
	case strings.HasPrefix(e.Key, nodesPrefix):
		v.nodes[strings.TrimPrefix(e.Key, nodesPrefix)] = true
	case strings.HasPrefix(e.Key, wantsPrefix):
		v.wants[e.Key] = true
	}
}

// drop takes in that a key is gone.
func (v *view) drop(key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case key == poolsKey:
		v.pools = map[string]Pool{}
	case strings.HasPrefix(key, blocksPrefix):
		if pool, block, ok := parseSlotKey(key); ok {
			delete(v.slots[pool], block)
		}
	case strings.HasPrefix(key, nodesPrefix):
		delete(v.nodes, strings.TrimPrefix(key, nodesPrefix))
	case strings.HasPrefix(key, wantsPrefix):
		delete(v.wants, key)
	}
}

// reset takes in the whole of what there is.
func (v *view) reset(entries []store.Entry) {
	fresh := newView()
	for _, e := range entries {
		fresh.insert(e)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pools, v.slots, v.nodes, v.wants, v.synced = fresh.pools, fresh.slots, fresh.nodes, fresh.wants, true
}

func (v *view) isSynced() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.synced
}

func (v *view) pool(name string) (Pool, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p, ok := v.pools[name]
	return p, ok
}

func (v *view) poolNames() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(maps.Keys(v.pools))
}

// holding is a part of a block that a node owns.
type holding struct {
	pool  string
	block netip.Prefix // the whole block
	part  netip.Prefix
	node  string
}

// holdings returns the parts that chosen nodes own, in order.
func (v *view) holdings(chosen func(node string) bool) (list []holding) {
	v.mu.Lock()
	for pool, slots := range v.slots {
		for block, s := range slots {
			for _, p := range s.Parts {
				list = append(list, holding{pool, block, p.Prefix, p.Node})
			}
		}
	}
	v.mu.Unlock()
	list = slices.DeleteFunc(list, func(h holding) bool { return !chosen(h.node) })
	slices.SortFunc(list, func(a, b holding) int {
		return cmp.Or(cmp.Compare(a.pool, b.pool), a.part.Addr().Compare(b.part.Addr()), cmp.Compare(a.part.Bits(), b.part.Bits()))
	})
	return list
}

// replaceSlots takes in all blocks of a pool that are owned.
func (v *view) replaceSlots(pool string, entries []store.Entry) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.slots, pool)
	for _, e := range entries {
		v.insert(e)
	}
}

// counts returns how many nodes live, and how many of them want blocks.
func (v *view) counts() (nodes, wants int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.nodes), len(v.wants)
}

// slot returns a block as far as it is known; a block that nobody owns any of is the zero slot at revision 0.
func (v *view) slot(pool string, block netip.Prefix) versioned {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.slots[pool][block]
}

func (v *view) lives(node string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.nodes[node]
}

// wanted tells whether another node has found no block of the pool and family.
func (v *view) wanted(pool string, f family, self string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for key := range v.wants {
		if strings.HasPrefix(key, wantKey(pool, f, "")) && key != wantKey(pool, f, self) {
			return true
		}
	}
	return false
}

// partly returns the blocks of a family that somebody owns a part of, and of which something is free.
func (v *view) partly(p Pool, f family) (free []holding) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for block, s := range v.slots[p.Name] {
		if familyOf(block) != f || !p.has(block) {
			continue
		}
		for _, part := range s.free(block) {
			free = append(free, holding{pool: p.Name, block: block, part: part})
		}
	}
	slices.SortFunc(free, func(a, b holding) int { return a.part.Addr().Compare(b.part.Addr()) })
	return free
}

// fewBlocks is how many blocks of a pool are looked at one by one. Of a larger pool a block at a random place is free, or
// one of those after it.
const fewBlocks = 1 << 12

// untouched returns a block of the family that nobody owns any of, each with the same chance: were it the first after a
// random place, all that begin among those that are taken would meet. random returns a number below its argument.
func (v *view) untouched(p Pool, f family, random func(uint64) uint64) (netip.Prefix, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	count := p.count(f)
	if count > fewBlocks {
		return v.after(p, f, random(count))
	}
	var free []netip.Prefix
	for i := range count {
		if block := p.block(f, i); len(v.slots[p.Name][block].Parts) == 0 {
			free = append(free, block)
		}
	}
	if len(free) == 0 {
		return netip.Prefix{}, false
	}
	return free[random(uint64(len(free)))], true
}

// after returns the first block from a place on of which nobody owns any: it is among as many as are owned, and one more.
// It expects the lock.
func (v *view) after(p Pool, f family, start uint64) (netip.Prefix, bool) {
	count := p.count(f)
	for i := range min(count, uint64(len(v.slots[p.Name]))+1) {
		if block := p.block(f, (start+i)%count); len(v.slots[p.Name][block].Parts) == 0 {
			return block, true
		}
	}
	return netip.Prefix{}, false
}
