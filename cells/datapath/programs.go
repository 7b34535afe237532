package datapath

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/reconcile"
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
	filters        [2]netlink.BpfFilter // less their LinkIndex; ingress first
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

func (p *hostPrograms) Desired(e Entry) (programs []reconcile.Thing[programKey, int]) {
	for side, filter := range p.filters {
		programs = append(programs, reconcile.Thing[programKey, int]{Key: programKey{e.Link, side}, Want: filter.Id})
	}
	return programs
}

func (*hostPrograms) Has(e Entry, key programKey) bool { return key.link == e.Link }

func (*hostPrograms) List() ([]programKey, error) { return nil, nil }

func (p *hostPrograms) Get(key programKey) (id int, found bool, err error) {
	id, err = programAt(p.reader, key.link, p.filters[key.side])
	return id, id != 0, err
}

// programAt is the ID of the program in the place of our filter on the link; 0 for none.
func programAt(handle *netlink.Handle, link int, ours netlink.BpfFilter) (id int, err error) {
	filters, err := nl.Dump(func() ([]netlink.Filter, error) { return handle.FilterList(nl.LinkAt(link), ours.Parent) })
	for _, filter := range filters {
		bpf, ok := filter.(*netlink.BpfFilter)
		if ok && bpf.Handle == ours.Handle && bpf.Priority == ours.Priority {
			return bpf.Id, nil
		}
	}
	return 0, ignoreRefusal(err)
}

// Apply adds the qdisc, which has no packets, with the first filter.
func (p *hostPrograms) Apply(key programKey, _ int) error {
	if key.side == 0 {
		if err := p.handle.QdiscAdd(clsact(key.link)); err != nil && !errors.Is(err, unix.EEXIST) {
			return explainFilter("add clsact to link", key.link, err)
		}
	}
	filter := p.filters[key.side]
	filter.LinkIndex = key.link
	return explainFilter("attach "+filter.Name+" to link", key.link, p.handle.FilterReplace(&filter))
}

// Remove leaves the qdisc, which goes with the link.
func (p *hostPrograms) Remove(key programKey) error {
	filter := p.filters[key.side]
	filter.LinkIndex = key.link
	return explain("detach "+filter.Name+" from link", key.link, ignoreRefusal(p.handle.FilterDel(&filter)))
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

// clsact is the qdisc that filters are attached to. It holds no packets.
func clsact(link int) *netlink.Clsact {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: link, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
}

// explainFilter is explain, and says what a kernel without filters lacks.
func explainFilter(doing string, index int, err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		err = fmt.Errorf("%w: clsact (CONFIG_NET_SCH_INGRESS) or BPF classifiers (CONFIG_NET_CLS_BPF): %w", loader.ErrKernel, err)
	}
	return explain(doing, index, err)
}
