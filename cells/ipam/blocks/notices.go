package blocks

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"porin.dev/porin/cells/store"
)

// notices are what every node follows: the pools, and who has found no block. There are few of them, and they seldom
// change, however many nodes and blocks there are. They may lag behind the store: whoever claims reads the pools once more.
type notices struct {
	synced bool
	pools  map[string]Pool
	wants  map[string]want // by key
}

func newNotices() notices { return notices{pools: map[string]Pool{}, wants: map[string]want{}} }

// take takes in what a watch tells.
func (n *notices) take(event store.Event) {
	switch event.Type {
	case store.Put:
		n.put(event.Entry)
	case store.Deleted:
		n.drop(event.Entry.Key)
	case store.Resync:
		n.synced, n.wants = true, map[string]want{}
		if !slices.ContainsFunc(event.Entries, func(e store.Entry) bool { return e.Key == poolsKey }) {
			n.setPools(nil)
		}
		for _, e := range event.Entries {
			n.put(e)
		}
	}
}

// mostWants bounds how many are remembered. A node gives up something for one of them at a time.
const mostWants = 10_000

// put takes in an entry. What cannot be read is passed over: the pools are as they were.
func (n *notices) put(e store.Entry) {
	if e.Key == poolsKey {
		if pools, err := decodePools(e); err == nil {
			n.setPools(pools)
		}
	} else if strings.HasPrefix(e.Key, wantsPrefix) && len(n.wants) < mostWants {
		if w, err := store.Decode[want](e, version); err == nil {
			n.wants[e.Key] = w
		}
	}
}

func (n *notices) drop(key string) {
	delete(n.wants, key)
	if key == poolsKey {
		n.setPools(nil)
	}
}

func (n *notices) setPools(pools []Pool) {
	n.pools = map[string]Pool{}
	for _, p := range pools {
		n.pools[p.Name] = p
	}
}

func (n *notices) poolNames() []string { return slices.Sorted(maps.Keys(n.pools)) }

// wanted returns what other nodes want of a pool and family, by their keys in order.
func (n *notices) wanted(pool string, f family, self string) (keys []string) {
	for key := range n.wants {
		if strings.HasPrefix(key, wantKey(pool, f, "")) && key != wantKey(pool, f, self) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// decodeList returns the pools of an answer to a question for them: none when they were not found.
func decodeList(e store.Entry, err error) ([]Pool, error) {
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodePools(e)
}
