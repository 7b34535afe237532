package blocks

import (
	"fmt"

	"porin.dev/porin/cells/store"
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
}

// want is that a node has no address left of a pool and family, and has found no block. Owners is how many nodes had some.
type want struct {
	Node   string `json:"node"`
	Owners int    `json:"owners"`
}

func decodePools(e store.Entry) ([]Pool, error) {
	list, err := store.Decode[poolList](e, version)
	if err != nil {
		return nil, fmt.Errorf("read the pools: %w", err)
	}
	return list.Pools, nil
}

func decodeSlot(e store.Entry) (slot, error) { return store.Decode[slot](e, version) }

func encode(value any) []byte {
	text, err := store.Encode(version, value)
	if err != nil {
		panic(err) // a type of ours that JSON does not take
	}
	return text
}
