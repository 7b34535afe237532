package datapath

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath/loader"
)

// SetRemoteBlocks sets the blocks of other nodes, in place of the last call's. Connections between their pods and this
// node's bypass this node's stack, unless it translates them. While there are such blocks, from_uplink and to_uplink
// are on all uplinks.
func (d *Datapath) SetRemoteBlocks(blocks []netip.Prefix) error {
	err := d.pins.use(func(o *loader.Objects) error { return writeBlocks(o.Maps.RemoteBlocks, blocks) })
	if err != nil {
		return err
	}
	// to_uplink, too: it tells connections apart that the stack has translated.
	return errors.Join(d.uplinks.require(directPath, len(blocks) > 0), d.fromUplinks.require(directPath, len(blocks) > 0))
}

// writeBlocks makes the map as given. Unwanted entries go first, as they may fill the map.
func writeBlocks(m *ebpf.Map, blocks []netip.Prefix) error {
	has, err := readBlocks(m)
	if err != nil {
		return err
	}
	wanted := map[abi.CIDRKey]bool{}
	for _, block := range blocks {
		wanted[abi.CIDRKeyOf(block)] = true
	}
	var errs []error
	for key := range has {
		if wanted[key] {
			continue
		}
		if err := gone(m.Delete(key)); err != nil {
			errs = append(errs, fmt.Errorf("remove block %s of another node: %w", key.Prefix(), err))
		}
	}
	for key := range wanted {
		if has[key] {
			continue
		}
		if err := m.Put(key, uint32(1)); err != nil {
			return errors.Join(append(errs, fmt.Errorf("write block %s of another node: %w", key.Prefix(), full(err)))...)
		}
	}
	return errors.Join(errs...)
}

func readBlocks(m *ebpf.Map) (map[abi.CIDRKey]bool, error) {
	has := map[abi.CIDRKey]bool{}
	var key abi.CIDRKey
	var value uint32
	entries := m.Iterate()
	for entries.Next(&key, &value) {
		has[key] = true
	}
	if err := entries.Err(); err != nil {
		return nil, fmt.Errorf("read the blocks of other nodes: %w", err)
	}
	return has, nil
}
