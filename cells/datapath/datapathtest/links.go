package datapathtest

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/endpoint"
)

// links is [datapath.Links] of a Kernel.
type links struct{ kernel *Kernel }

func (l links) Link(index int) (netlink.Link, error) {
	unlock, err := l.kernel.lock("Links.Link")
	defer unlock()
	if err != nil {
		return nil, err
	}
	attrs, ok := l.kernel.links[index]
	if !ok {
		return nil, datapath.ErrNoLink
	}
	return netlink.NewVeth(attrs), nil
}

func (l links) LinkByName(name string) (netlink.Link, error) {
	unlock, err := l.kernel.lock("Links.LinkByName")
	defer unlock()
	if err != nil {
		return nil, err
	}
	for _, attrs := range l.kernel.links {
		if attrs.Name == name {
			return netlink.NewVeth(attrs), nil
		}
	}
	return nil, datapath.ErrNoLink
}

func (l links) Forward(datapath.Entry) error {
	unlock, err := l.kernel.lock("Links.Forward")
	defer unlock()
	return err
}

// WaitForCarrier does not wait: a link has a carrier while it is up.
func (l links) WaitForCarrier(ctx context.Context, host, _ int, _ *endpoint.Namespace) error {
	unlock, err := l.kernel.lock("Links.WaitForCarrier")
	defer unlock()
	if err != nil {
		return err
	}
	attrs, ok := l.kernel.links[host]
	switch {
	case !ok:
		return datapath.ErrNoLink
	case attrs.Flags&net.FlagUp == 0:
		return fmt.Errorf("%s is down and never has a carrier", attrs.Name)
	}
	return ctx.Err()
}

func (l links) BringDown(index int) error {
	unlock, err := l.kernel.lock("Links.BringDown")
	defer unlock()
	if err != nil {
		return err
	}
	return l.kernel.bring(index, false)
}

// Addresses returns the addresses of all attached endpoints.
func (l links) Addresses() (map[int][]netip.Addr, error) {
	unlock, err := l.kernel.lock("Links.Addresses")
	defer unlock()
	led := map[int][]netip.Addr{}
	for index, e := range l.kernel.attached {
		led[index] = e.Addresses.List()
	}
	return led, err
}

func (l links) Update(e datapath.Entry) error {
	unlock, err := l.kernel.lock("Links.Update")
	defer unlock()
	if err == nil {
		err = l.kernel.bring(e.Link, true)
	}
	if err == nil {
		l.kernel.attached[e.Link] = e
	}
	return err
}

func (l links) Delete(e datapath.Entry) error {
	unlock, err := l.kernel.lock("Links.Delete")
	defer unlock()
	if err != nil {
		return err
	}
	delete(l.kernel.attached, e.Link)
	_ = l.kernel.bring(e.Link, false) // as far as it is there
	return nil
}

func (l links) Compare(e datapath.Entry) (differences []datapath.Difference, err error) {
	unlock, err := l.kernel.lock("Links.Compare")
	defer unlock()
	if err != nil {
		return nil, err
	}
	attrs, ok := l.kernel.links[e.Link]
	subject := "link " + e.LinkName
	switch {
	case !ok:
		return []datapath.Difference{{Kind: "link-missing", Subject: subject, Detail: "missing"}}, nil
	case attrs.Flags&net.FlagUp == 0:
		differences = append(differences, datapath.Difference{Kind: "link-down", Subject: subject, Detail: "down"})
	}
	if l.kernel.attached[e.Link] != e {
		differences = append(differences, datapath.Difference{Kind: "program-missing", Subject: "what is attached to " + subject, Detail: "missing"})
	}
	return differences, nil
}

// Orphans finds nothing: all routes are from Update.
func (l links) Orphans(func() []datapath.Entry) ([]datapath.Orphan, error) {
	unlock, err := l.kernel.lock("Links.Orphans")
	defer unlock()
	return nil, err
}

// bring expects the lock.
func (k *Kernel) bring(index int, up bool) error {
	attrs, ok := k.links[index]
	if !ok {
		return fmt.Errorf("link %d: %w", index, datapath.ErrNoLink)
	}
	attrs.Flags &^= net.FlagUp
	if up {
		attrs.Flags |= net.FlagUp
	}
	k.links[index] = attrs
	return nil
}
