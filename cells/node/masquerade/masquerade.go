package masquerade

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"

	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/nft"
)

// ErrUnsupported is returned when the kernel lacks what masquerading needs.
var ErrUnsupported = fault.New(fault.Unavailable,
	"kernel lacks what masquerading needs: nf_tables with inet tables and masquerading (Linux 5.2, CONFIG_NF_TABLES_INET, CONFIG_NFT_NAT, CONFIG_NFT_MASQ)")

// Desired says whose packets are masqueraded, and where to they are not.
type Desired struct {
	// Sources are the prefixes of this node's pods.
	Sources []netip.Prefix
	// Inside are destinations to which pods keep their addresses: all pods of the cluster, and the nodes that are reached
	// without a tunnel. Sources and the excluded destinations of [Config] count as inside, too.
	Inside []netip.Prefix
	// Pods are addresses of pods of this node that are never masqueraded.
	Pods []netip.Addr
}

// Table has traffic of this node's pods that leaves the cluster leave with the node's address. It is a table of
// nftables in one network namespace.
type Table struct {
	owner    *nft.Owner
	families []family
	exclude  []netip.Prefix
	sets     map[string]familySets

	mu      sync.Mutex // guards the field below; held during Apply
	desired Desired    // of the last Apply
}

// New returns the one of a namespace, which must stay open until Close. It touches nothing. cfg is valid, and resolved.
func New(namespace *os.File, cfg Config, log *slog.Logger) *Table {
	exclude, _ := cfg.excluded()
	t := &Table{families: cfg.families(), exclude: exclude, sets: map[string]familySets{}}
	table := &nft.Table{Name: TableName, Unsupported: ErrUnsupported}
	for _, f := range t.families {
		sets := newSets(f)
		t.sets[f.name] = sets
		table.Sets = append(table.Sets, sets.sources, sets.inside, sets.pods)
	}
	table.Chains = []nft.Chain{t.chain()}
	t.owner = nft.New(namespace, table, log)
	return t
}

// Close closes the socket. The table stays.
func (t *Table) Close() error { return t.owner.Close() }

// Apply applies d. When it fails, the previous state stays, and Run tries again.
func (t *Table) Apply(d Desired) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.desired = d
	if err := t.owner.Apply(t.stateOf(d)); err != nil {
		return fmt.Errorf("masquerade what pods send to the outside: %w", err)
	}
	return nil
}

// Run restores what other programs remove or change, until ctx ends.
func (t *Table) Run(ctx context.Context) error { return t.owner.Run(ctx) }

// Repair is the last Apply again. It does nothing before the first one, when a previous agent's table is there.
func (t *Table) Repair() error { return t.owner.Repair() }

// Compare returns how the table differs from the last Apply, and changes nothing.
func (t *Table) Compare() ([]string, error) { return t.owner.Compare() }

// always are destinations for which the source is a part of the address: multicast, broadcast and link-local IPv6.
var always = []netip.Prefix{
	netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("ff00::/8"), netip.MustParsePrefix("fe80::/10"),
}

// stateOf is what the sets should have: nil without a family or a source.
func (t *Table) stateOf(d Desired) nft.State {
	if len(t.families) == 0 || len(d.Sources) == 0 {
		return nil
	}
	s := nft.State{}
	inside := slices.Concat(d.Inside, d.Sources, t.exclude, always)
	for _, f := range t.families {
		sets := t.sets[f.name]
		for _, p := range f.outermost(d.Sources) {
			s.Add(sets.sources, nft.Prefix(p))
		}
		for _, p := range f.outermost(inside) {
			s.Add(sets.inside, nft.Prefix(p))
		}
		for _, addr := range d.Pods {
			if addr = addr.Unmap(); f.has(addr) {
				s.Add(sets.pods, nft.Element{Key: string(addr.AsSlice())})
			}
		}
	}
	return s
}

// outermost returns the prefixes of the family that are in no other one. Ranges of a set must not overlap.
func (f family) outermost(prefixes []netip.Prefix) (list []netip.Prefix) {
	for _, p := range prefixes {
		if f.has(p.Addr()) {
			list = append(list, p.Masked())
		}
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	kept := list[:0]
	for _, p := range list {
		if len(kept) == 0 || !kept[len(kept)-1].Overlaps(p) { // a wider one comes first
			kept = append(kept, p)
		}
	}
	return kept
}

// Status is what an operator wants to know.
type Status struct {
	Families []string // "ipv4", "ipv6"
	Desired  Desired  // of the last Apply
	Exclude  []netip.Prefix
	// Connections is how many were masqueraded since the table was made.
	Connections uint64
	Err         error // of the last attempt to write, or of reading Connections
}

// Status returns how it is. It asks the kernel.
func (t *Table) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Status{Desired: t.desired, Exclude: t.exclude}
	for _, f := range t.families {
		s.Families = append(s.Families, f.name)
	}
	counts, err := t.owner.Packets(chainName)
	if err == nil {
		s.Connections = counts[0]
	}
	s.Err = errors.Join(t.owner.Err(), err)
	return s
}
