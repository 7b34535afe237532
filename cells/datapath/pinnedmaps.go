package datapath

import (
	"slices"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/engine"
)

// PinnedMaps are maps that the agent has pinned, opened by a proxy in a process of its own. They stay when the agent
// ends.
type PinnedMaps struct {
	root string
	maps kernelMaps
}

// NewPinnedMaps returns maps that are not open: [ErrNotStarted] is what they answer.
func NewPinnedMaps(bpfRoot string) *PinnedMaps { return &PinnedMaps{root: bpfRoot} }

// Open opens the maps, also if they are open already: an agent that has started may have others. After an error the
// previous maps stay.
func (p *PinnedMaps) Open() error {
	names := append(bpf.ListenerMaps(), bpf.ProxyLink, bpf.Redirects, bpf.Endpoints, bpf.Slots,
		bpf.Policies, bpf.ActiveCopy, bpf.Addresses, bpf.Prefixes, bpf.Tables, bpf.Rows)
	slices.Sort(names)
	opened, err := loader.OpenPinned(p.root, slices.Compact(names)...)
	if err != nil {
		return err
	}
	p.replace(opened)
	return nil
}

// Close closes the maps.
func (p *PinnedMaps) Close() { p.replace(nil) }

func (p *PinnedMaps) replace(opened *loader.Maps) {
	p.maps.mu.Lock()
	defer p.maps.mu.Unlock()
	if before := p.maps.maps; before != nil {
		(*loader.Maps)(before).Close()
	}
	p.maps.maps = (*bpfMaps)(opened)
}

// Redirects are those in the maps.
func (p *PinnedMaps) Redirects() *Redirects { return &Redirects{&p.maps} }

// Verdict reads what the kernel decides about a connection: see [policy.Enforcer].
func (p *PinnedMaps) Verdict(q policy.Question) (value uint32, err error) {
	value = engine.ValueDeny
	err = p.maps.use(func(m *bpfMaps) error {
		value, err = verdict(policyMaps((*loader.Maps)(m)), q)
		return err
	})
	return value, err
}
