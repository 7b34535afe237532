package hostfilter

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"

	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/nft"
)

// ErrUnsupported is returned when the kernel lacks nf_tables, or parts of it.
var ErrUnsupported = fault.New(fault.Unavailable,
	"kernel lacks what egress policies need: nf_tables with inet tables, connection tracking and concatenations of ranges (Linux 5.6, CONFIG_NF_TABLES_INET, CONFIG_NFT_CT)")

// ErrRows is returned for rows that contradict each other or have ports where there are none.
var ErrRows = fault.New(fault.Invalid, "malformed rows")

// Desired is what the table should enforce.
type Desired struct {
	Pods []Pod // pods with an egress policy; others are not restricted
	// Enforced are the devices on which a program enforces egress policies: pods' host ends, and the uplinks. A packet
	// of Pods to another device is dropped.
	Enforced []int
	// Groups has the group of each address of the node for which some pod has rows of its own.
	Groups map[netip.Addr]Group
}

// Pod is a pod with an egress policy.
type Pod struct {
	Link int   // index of its host end
	Rows []Row // to the node's addresses, unless OfGroup has others
	// OfGroup has the rows to the addresses of a group of Desired.Groups, if they differ.
	OfGroup map[Group][]Row
}

// Group stands for addresses of the node that policies treat alike, within one [Desired].
type Group uint32

// Row is a verdict. A row with a range of ports takes precedence over one for all ports, and that one over the row
// without a protocol. What no row matches is denied. Ranges of a protocol must not overlap. Of ICMP and ICMPv6, a port
// is a type of messages. The kernel adds ranges after other rows: a range that denies where they allow is late for some
// packets.
type Row struct {
	Protocol    uint8  // IPPROTO_...; 0 stands for all, and has no ports
	First, Last uint16 // destination ports; 0 to 65535 stands for all, also of protocols without ports
	Allow       bool
}

// Filter is the table of one network namespace.
type Filter struct{ *nft.Owner }

// New returns the filter of the namespace, which must stay open until Close. It touches nothing.
func New(namespace *os.File, log *slog.Logger) *Filter {
	return &Filter{nft.New(namespace, table, log)}
}

// Apply makes the table what d says, also when other programs have changed it. When it fails, the table is as before,
// or as d says if the kernel has not answered in time. A pod that is not in d is not restricted, also when a previous
// agent did so: the first d must have all pods.
func (f *Filter) Apply(d Desired) (err error) {
	if len(d.Pods) == 0 {
		err = f.Owner.Apply(nil) // the kernel may lack nf_tables
	} else {
		err = f.Update(func(have nft.State) (nft.State, error) { return stateOf(d, have) })
	}
	if err != nil {
		return fmt.Errorf("apply the filter for the node itself: %w", err)
	}
	return nil
}

// Counters are the packets that were dropped since the table was made.
type Counters struct {
	Input   uint64 // from restricted pods to the node
	Forward uint64 // from restricted pods, to devices without the program
}

// Counters reads the table's counters, which are 0 without a table.
func (f *Filter) Counters() (Counters, error) {
	counts, err := f.Packets(denied, forward)
	if err != nil {
		return Counters{}, err
	}
	return Counters{Input: counts[0], Forward: counts[1]}, nil
}
