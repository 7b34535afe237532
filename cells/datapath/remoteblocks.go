package datapath

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/internal/reconcile"
)

// remoteBlocks are the blocks of the last [Datapath.SetRemoteBlocks].
type remoteBlocks struct {
	mu     sync.Mutex // guards the fields below; held while the map is written
	known  bool       // since the start
	blocks []netip.Prefix
}

// SetRemoteBlocks sets the blocks of other nodes, in place of the last call's. Connections between their pods and this
// node's bypass this node's stack, unless it translates them. While there are such blocks, from_uplink and to_uplink
// are on all uplinks.
func (d *Datapath) SetRemoteBlocks(blocks []netip.Prefix) error {
	if err := d.remoteBlocks.set(&d.pins, blocks); err != nil {
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

// findings compares the map with the last call of SetRemoteBlocks.
func (r *remoteBlocks) findings(p *pins) (findings []doctor.Finding, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known {
		return nil, nil
	}
	var has map[abi.CIDRKey]bool
	err = p.use(func(o *loader.Objects) error {
		has, err = readBlocks(o.Maps.RemoteBlocks)
		return err
	})
	if err != nil {
		return nil, err
	}
	add := func(block netip.Prefix, detail string) {
		findings = append(findings, doctor.Finding{
			Kind: remoteBlockDiffers, Subject: entryName(bpf.RemoteBlocks, block.String()), Detail: detail,
			Repair: func(context.Context) error { return r.write(p) },
		})
	}
	for _, block := range r.blocks {
		if key := abi.CIDRKeyOf(block); !has[key] {
			add(block, reconcile.Missing)
		} else {
			delete(has, key)
		}
	}
	for key := range has {
		add(key.Prefix(), "no other node has the block")
	}
	return findings, nil
}

// write writes the blocks of the last call again.
func (r *remoteBlocks) write(p *pins) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known {
		return nil
	}
	return p.use(func(o *loader.Objects) error { return writeBlocks(o.Maps.RemoteBlocks, r.blocks) })
}

// set remembers the blocks, unless the datapath is stopped, and writes them.
func (r *remoteBlocks) set(p *pins, blocks []netip.Prefix) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return p.use(func(o *loader.Objects) error {
		r.known, r.blocks = true, blocks
		return writeBlocks(o.Maps.RemoteBlocks, blocks)
	})
}

// forget is for a datapath that stops.
func (r *remoteBlocks) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.blocks = false, nil
}
