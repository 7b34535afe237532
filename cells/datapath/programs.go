package datapath

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/reconcile"
	"porin.dev/porin/internal/tchook"
)

// Every filter of ours has this handle and priority, so that a new program takes the place of the old one, between two
// packets.
const (
	filterHandle   = 1
	filterPriority = 1
)

// hostPrograms are the programs of host ends: filters of the qdisc clsact. The value is a program's ID. Only what is
// listed for one link can be read, so it has no orphans.
type hostPrograms struct {
	handle, reader *netlink.Handle
	filters        [2]netlink.BpfFilter // less their LinkIndex: see filter; ingress first
}

// programKey is a filter by its link and its place in hostPrograms.filters.
type programKey struct{ link, side int }

func newHostPrograms(programs *loader.Programs, handle, reader *netlink.Handle) *reconcile.Table[Entry, programKey, int] {
	filter := func(side uint32, name string, p *loader.Program) netlink.BpfFilter {
		return netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{Parent: side, Handle: filterHandle, Priority: filterPriority, Protocol: unix.ETH_P_ALL},
			Fd:          p.FD(), Name: name, DirectAction: true, Id: int(p.ID),
		}
	}
	return &reconcile.Table[Entry, programKey, int]{
		Operations: &hostPrograms{handle, reader, [2]netlink.BpfFilter{
			filter(netlink.HANDLE_MIN_INGRESS, bpf.FromPod, programs.FromPod), filter(netlink.HANDLE_MIN_EGRESS, bpf.ToPod, programs.ToPod),
		}},
		Kinds: reconcile.Kinds{Missing: programMissing, Differs: programDiffers},
	}
}

func (p *hostPrograms) filter(key programKey) *netlink.BpfFilter {
	filter := p.filters[key.side]
	filter.LinkIndex = key.link
	return &filter
}

func (p *hostPrograms) Desired(e Entry) (programs []reconcile.Thing[programKey, int]) {
	for side, filter := range p.filters {
		programs = append(programs, reconcile.Thing[programKey, int]{Key: programKey{e.Link, side}, Want: filter.Id})
	}
	return programs
}

func (*hostPrograms) Has(e Entry, key programKey) bool { return key.link == e.Link }

func (*hostPrograms) List() ([]programKey, error) { return nil, nil }

func (p *hostPrograms) Get(key programKey) (id int, found bool, err error) {
	at, err := tchook.FilterAt(p.reader, p.filter(key))
	return int(at), at != 0, err
}

// Apply adds the qdisc, which has no packets, with the first filter.
func (p *hostPrograms) Apply(key programKey, _ int) error {
	if key.side == 0 {
		if err := p.handle.QdiscAdd(nl.Clsact(key.link)); err != nil && !errors.Is(err, unix.EEXIST) {
			return explainFilter("add clsact to link", key.link, err)
		}
	}
	filter := p.filter(key)
	return explainFilter("attach "+filter.Name+" to link", key.link, p.handle.FilterReplace(filter))
}

// Remove leaves the qdisc, which goes with the link.
func (p *hostPrograms) Remove(key programKey) error {
	filter := p.filter(key)
	return explain("detach "+filter.Name+" from link", key.link, nl.IgnoreAbsent(p.handle.FilterDel(filter)))
}

func (*hostPrograms) Compare(want, have int) string {
	if want == have {
		return ""
	}
	return fmt.Sprintf("%d instead of %d", have, want)
}

func (p *hostPrograms) Name(key programKey) string { return "program " + p.filters[key.side].Name }

func (p *hostPrograms) NameOrphan(key programKey) string {
	return fmt.Sprintf("%s on link %d", p.Name(key), key.link)
}

// explainFilter is explain, and says what a kernel without filters lacks.
func explainFilter(doing string, index int, err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		err = fmt.Errorf("%w: clsact (CONFIG_NET_SCH_INGRESS) or BPF classifiers (CONFIG_NET_CLS_BPF): %w", loader.ErrKernel, err)
	}
	return explain(doing, index, err)
}

// probeAttach attaches the programs to the lo of a temporary network namespace, so that a node learns at
// start, and not from its first container, that its kernel lacks clsact or BPF classifiers.
func probeAttach(programs *loader.Programs) error {
	const loopback = 1 // the index of lo in every network namespace
	err := netns.InNew(func() error {
		handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer handle.Close()
		err = newHostPrograms(programs, handle, handle).Update(Entry{Link: loopback})
		for side, program := range map[*uplinkSide]*loader.Program{uplinkEgress: programs.ToUplink, uplinkIngress: programs.FromUplink} {
			if err == nil {
				hook := tchook.Hook{Side: side.Side, TCX: loader.HasTCX(), Handle: handle}
				err = hook.Attach(loopback, program.Program, program.ID)
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("attach BPF programs to a link for a trial: %w", err)
	}
	return nil
}
