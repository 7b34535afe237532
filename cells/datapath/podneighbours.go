package datapath

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/reconcile"
)

// podNeighbours are the neighbour entries of the endpoints' addresses: nothing is asked on the link.
type podNeighbours struct {
	handle, reader *netlink.Handle
	entries        *nl.Neighbours
}

// podNeighbour is what an entry says.
type podNeighbour struct {
	mac       endpoint.MAC // of the container
	permanent bool         // which is the mark of our entries
}

func newPodNeighbours(handle, reader *netlink.Handle, entries *nl.Neighbours) *reconcile.Table[Entry, placed, podNeighbour] {
	return &reconcile.Table[Entry, placed, podNeighbour]{
		Operations:   &podNeighbours{handle, reader, entries},
		Kinds:        reconcile.Kinds{Missing: neighMissing, Differs: neighMissing, Orphan: neighOrphan},
		OrphanDetail: orphanAddress,
	}
}

func (*podNeighbours) Desired(e Entry) []reconcile.Thing[placed, podNeighbour] {
	return placesOf(e, podNeighbour{e.PodMAC, true})
}

func (*podNeighbours) Has(e Entry, key placed) bool { return key.link == e.Link }

func (p *podNeighbours) List() (keys []placed, err error) {
	entries, err := nl.Dump(func() ([]netlink.Neigh, error) { return p.reader.NeighList(0, netlink.FAMILY_ALL) })
	for _, n := range entries {
		if podNeighbourOf(n).permanent {
			keys = append(keys, placed{n.LinkIndex, hostPrefix(nl.Addr(n.IP))})
		}
	}
	return keys, nl.IgnoreInterrupted(err)
}

func (p *podNeighbours) Get(key placed) (have podNeighbour, found bool, err error) {
	entry, err := p.entries.Get(key.link, key.dst.Addr())
	if err != nil {
		return have, false, nl.IgnoreAbsent(err)
	}
	return podNeighbourOf(*entry), true, nil
}

func podNeighbourOf(n netlink.Neigh) (p podNeighbour) {
	copy(p.mac[:], n.HardwareAddr)
	p.permanent = n.State&netlink.NUD_PERMANENT != 0
	return p
}

func (p *podNeighbours) Apply(key placed, want podNeighbour) error {
	return explain(fmt.Sprintf("set neighbour %s on link", key.dst.Addr()), key.link, p.handle.NeighSet(neighbour(key, want.mac)))
}

func neighbour(key placed, mac endpoint.MAC) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: key.link, IP: key.dst.Addr().AsSlice(), HardwareAddr: mac[:], State: netlink.NUD_PERMANENT}
}

func (p *podNeighbours) Remove(key placed) error {
	err := p.handle.NeighDel(neighbour(key, endpoint.MAC{}))
	return explain(fmt.Sprintf("remove neighbour %s on link", key.dst.Addr()), key.link, nl.IgnoreAbsent(err))
}

func (*podNeighbours) Compare(want, have podNeighbour) string {
	switch {
	case have.mac != want.mac:
		return fmt.Sprintf("%s instead of %s", have.mac, want.mac)
	case !have.permanent:
		return "not permanent"
	}
	return ""
}

func (*podNeighbours) Name(key placed) string { return "neighbour " + key.dst.Addr().String() }

func (*podNeighbours) NameOrphan(key placed) string {
	return fmt.Sprintf("neighbour %s on link %d", key.dst.Addr(), key.link)
}
