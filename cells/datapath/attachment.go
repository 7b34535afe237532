package datapath

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/reconcile"
)

// Update attaches the programs before it brings the link up: no packet passes unchecked. Routes need a link that is up.
func (n *nodeLinks) Update(e Entry) error {
	if n.handle == nil {
		return ErrNotStarted
	}
	if err := n.router.ignoreAdvertisements(e.LinkName); err != nil {
		return err
	}
	if err := n.programs.Update(e); err != nil {
		return err
	}
	if l, err := n.handle.LinkByIndex(e.Link); err == nil && l.Attrs().HardwareAddr.String() != e.HostMAC.String() {
		if err := n.handle.LinkSetHardwareAddr(l, e.HostMAC[:]); err != nil {
			return explain("set the MAC of link", e.Link, err)
		}
	}
	if err := n.handle.LinkSetUp(nl.LinkAt(e.Link)); err != nil {
		return explain("bring up link", e.Link, err)
	}
	for _, part := range n.addresses {
		if err := part.Update(e); err != nil {
			return err
		}
	}
	return nil
}

// Delete needs the addresses of e, too.
func (n *nodeLinks) Delete(e Entry) error {
	if n.handle == nil {
		return ErrNotStarted
	}
	err := explain("take down link", e.Link, nl.IgnoreAbsent(n.handle.LinkSetDown(nl.LinkAt(e.Link))))
	for _, part := range append(n.addresses[:len(n.addresses):len(n.addresses)], n.programs) {
		err = errors.Join(err, part.Delete(e))
	}
	return err
}

// Compare tells of nothing else when the link is not the endpoint's: it is not for Update to change that.
func (n *nodeLinks) Compare(e Entry) ([]Difference, error) {
	if n.reader == nil {
		return nil, ErrNotStarted
	}
	l, err := linkOrErrNoLink(n.reader.LinkByIndex(e.Link))
	if err != nil && !errors.Is(err, ErrNoLink) {
		return nil, err
	}
	differences := compareLink(e, l)
	if slices.ContainsFunc(differences, isForPerson) {
		return differences, nil
	}
	others, err := reconcile.Compare(e, append([]Part{n.programs}, n.addresses...)...)
	return append(differences, others...), err
}

func compareLink(e Entry, l netlink.Link) (differences []Difference) {
	subject := "link " + e.LinkName
	switch {
	case l == nil:
		return []Difference{{Kind: linkMissing, Subject: subject, Detail: reconcile.Missing}}
	case l.Attrs().Name != e.LinkName || l.Type() != "veth":
		detail := fmt.Sprintf("%s %s instead of veth %s", l.Type(), l.Attrs().Name, e.LinkName)
		return []Difference{{Kind: linkDiffers, Subject: subject, Detail: detail}}
	}
	if mac := l.Attrs().HardwareAddr.String(); mac != e.HostMAC.String() {
		detail := fmt.Sprintf("MAC %s instead of %s", mac, e.HostMAC)
		differences = append(differences, Difference{Kind: linkMACDiffers, Subject: subject, Detail: detail})
	}
	if l.Attrs().Flags&net.FlagUp == 0 {
		differences = append(differences, Difference{Kind: linkDown, Subject: subject, Detail: "down"})
	}
	return differences
}

// isForPerson reports whether Update cannot make it right.
func isForPerson(d Difference) bool { return d.Kind == linkMissing || d.Kind == linkDiffers }

// Orphans finds the routes and neighbour entries, on links of endpoints, for addresses that these do not have.
func (n *nodeLinks) Orphans(owners func() []Entry) (orphans []Orphan, err error) {
	if n.reader == nil {
		return nil, ErrNotStarted
	}
	for _, part := range n.addresses {
		some, partErr := part.Orphans(owners)
		orphans, err = append(orphans, some...), errors.Join(err, partErr)
	}
	return orphans, err
}
