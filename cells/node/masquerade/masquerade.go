package masquerade

import (
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
	*nft.Owner
	families []family
	exclude  []netip.Prefix

	mu      sync.Mutex // guards the field below; held during Apply
	desired Desired    // of the last Apply
}

// New returns the one of a namespace, which must stay open until Close. It touches nothing. cfg is valid, and resolved.
func New(namespace *os.File, cfg Config, log *slog.Logger) *Table {
	exclude, _ := cfg.excluded()
	t := &Table{families: cfg.families(), exclude: exclude}
	table := &nft.Table{Name: TableName, Unsupported: ErrUnsupported}
	for _, f := range t.families {
		table.Sets = append(table.Sets, f.sources, f.inside, f.pods)
	}
	table.Chains = []nft.Chain{t.chain()}
	t.Owner = nft.New(namespace, table, log)
	return t
}

// Apply applies d. When it fails, the previous state stays, and Run tries again.
func (t *Table) Apply(d Desired) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.desired = d
	if err := t.Owner.Apply(t.stateOf(d)); err != nil {
		return fmt.Errorf("masquerade what pods send to the outside: %w", err)
	}
	return nil
}

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
		s.AddPrefixes(f.sources, f.Family, d.Sources)
		s.AddPrefixes(f.inside, f.Family, inside)
		s.AddAddresses(f.pods, f.Family, d.Pods)
	}
	return s
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
		s.Families = append(s.Families, f.Name)
	}
	counts, err := t.Packets(chainName)
	if err == nil {
		s.Connections = counts[0]
	}
	s.Err = errors.Join(t.Err(), err)
	return s
}
