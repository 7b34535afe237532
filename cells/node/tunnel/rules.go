package tunnel

import (
	"encoding/binary"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	"log/slog"
	"net/netip"
	"os"

	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/nft"
)

// TableName is the name of the table of [Rules].
const TableName = "porin-tunnel"

const (
	forgedChain = "forward"
	forgedOrder = -10 // before the filters of others

	translatedChain = "translated"
	translatedOrder = -90 // behind the translation of destinations

	untrackedIn, untrackedOut = "untracked-in", "untracked-out"
	untrackedOrder            = -300 // before conntrack
)

// ErrNoRules is returned when the kernel lacks what the rules need.
var ErrNoRules = fault.New(fault.Unavailable, "kernel lacks what keeps pods from sending packets of tunnels: nf_tables with inet tables (CONFIG_NF_TABLES_INET)")

// Rules are the table inet porin-tunnel: it drops tunnel packets that pods send themselves to anything but a pod, and
// packets whose destination this node has translated, as by a Service; it exempts tunnel packets between nodes from
// conntrack.
//
// A packet that a pod sends to the port of a node may be masqueraded: it then has the address of this node, which
// others believe. So may what anybody sends to a node port that leads to the port of a node, or it has the address of
// the node that the sender's pod is on. Between pods the port is one like any other. Each connection in a tunnel has an
// outer source port of its own, and would be two entries more in the conntrack of either node.
type Rules struct {
	*nft.Owner
	families []rulesFamily
}

type rulesFamily struct {
	nft.Family
	sources, pods *nft.Set // of this node; of all nodes
	nodes         *nft.Set // addresses of the other ones
	devices       *nft.Set // addresses of the tunnel devices of all, which are among the pods' prefixes
}

// NewRules returns the Rules of a namespace, which must stay open until Close. It touches nothing.
func NewRules(namespace *os.File, port int, log *slog.Logger) *Rules {
	r := &Rules{}
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		r.families = append(r.families, rulesFamily{f, f.Addresses("sources", true), f.Addresses("pods", true), f.Addresses("nodes", false), f.Addresses("devices", false)})
	}
	table := &nft.Table{Name: TableName, Unsupported: ErrNoRules}
	chain := nft.Chain{Name: forgedChain, Type: nftables.ChainTypeFilter, Hook: nftables.ChainHookForward, Order: forgedOrder}
	translated := nft.Chain{Name: translatedChain, Type: nftables.ChainTypeFilter, Hook: nftables.ChainHookPrerouting, Order: translatedOrder}
	in := nft.Chain{Name: untrackedIn, Type: nftables.ChainTypeFilter, Hook: nftables.ChainHookPrerouting, Order: untrackedOrder}
	out := nft.Chain{Name: untrackedOut, Type: nftables.ChainTypeFilter, Hook: nftables.ChainHookOutput, Order: untrackedOrder}
	for _, f := range r.families {
		table.Sets = append(table.Sets, f.sources, f.pods, f.nodes, f.devices)
		ofTunnel := func(comment string) nft.Rule {
			return nft.On(comment).Of(f.Family).Protocol(unix.IPPROTO_UDP).Transport(2, 2, 0).Equal(0, binary.BigEndian.AppendUint16(nil, uint16(port))...)
		}
		in.Rules = append(in.Rules, ofTunnel("from a node").Source(f.Family, 0).Lookup(f.nodes, nft.In).With(&expr.Notrack{}))
		out.Rules = append(out.Rules, ofTunnel("to a node").Destination(f.Family, 0).Lookup(f.nodes, nft.In).With(&expr.Notrack{}))
		ownTo := func(set *nft.Set, not bool, comment string) nft.Rule {
			return ofTunnel(comment).Source(f.Family, 0).Lookup(f.sources, nft.In).Destination(f.Family, 0).Lookup(set, not).Count().Verdict(expr.VerdictDrop)
		}
		translatedTo := func(set *nft.Set, not bool, comment string) nft.Rule {
			return redirected(ofTunnel(comment)).Destination(f.Family, 0).Lookup(set, not).Count().Verdict(expr.VerdictDrop)
		}
		chain.Rules = append(chain.Rules, ownTo(f.pods, nft.NotIn, "a pod's own packet of a tunnel"),
			ownTo(f.devices, nft.In, "a pod's own packet of a tunnel, to a tunnel device"))
		translated.Rules = append(translated.Rules, translatedTo(f.pods, nft.NotIn, "a packet of a tunnel that this node has translated"),
			translatedTo(f.devices, nft.In, "a packet of a tunnel that this node has translated, to a tunnel device"))
	}
	table.Chains = []nft.Chain{chain, translated, in, out}
	r.Owner = nft.New(namespace, table, log)
	return r
}

// redirected matches what this node has given another destination, but not replies, which go to ports that clients have
// chosen.
func redirected(r nft.Rule) nft.Rule {
	const original, dnat = 0, 1 << 5 // IP_CT_DIR_ORIGINAL, IPS_DST_NAT
	return r.With(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: nft.Register(0)}).Equal(0, original).
		With(&expr.Ct{Key: expr.CtKeySTATUS, Register: nft.Register(0)}).HasBits(0, dnat)
}

// Apply sets the prefixes of the pods of this node and of all nodes, and the addresses of the other nodes and of all
// tunnel devices.
func (r *Rules) Apply(sources, pods []netip.Prefix, nodes, devices []netip.Addr) error {
	state := nft.State{}
	for _, f := range r.families {
		state.AddPrefixes(f.sources, f.Family, sources)
		state.AddPrefixes(f.pods, f.Family, pods)
		state.AddAddresses(f.nodes, f.Family, nodes)
		state.AddAddresses(f.devices, f.Family, devices)
	}
	return r.Owner.Apply(state)
}

// Remove removes the table.
func (r *Rules) Remove() error { return r.Owner.Apply(nil) }

// Dropped is how many packets were dropped since the table was made.
func (r *Rules) Dropped() (sum uint64, err error) {
	counts, err := r.Packets(forgedChain, translatedChain)
	for _, n := range counts {
		sum += n
	}
	return sum, err
}
