package datapath

import (
	"context"
	"net/netip"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/internal/reconcile"
)

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
