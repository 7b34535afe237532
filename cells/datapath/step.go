package datapath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpointmanager"
)

// Links is what [Step] needs of the node's network interfaces.
type Links interface {
	// Link describes an interface, or returns [ErrNoLink].
	Link(index int) (netlink.Link, error)
	// LinkByName is for who has no index.
	LinkByName(name string) (netlink.Link, error)
	// Wire attaches the programs to e.Link, brings it up, and leads e.Addresses there. When it fails, Unwire undoes its parts.
	Wire(e Entry) error
	// Rewire is Wire after a restart: it leaves alone what is right, and says what it made anew.
	Rewire(e Entry) (replaced []string, err error)
	// WaitForCarrier returns when both ends pass packets: the host end, and the one of that index in the container's
	// namespace unless namespace is nil.
	WaitForCarrier(ctx context.Context, host, container int, namespace *endpointmanager.Namespace) error
	// BringUp lets packets pass again.
	BringUp(index int) error
	// BringDown stops all packets of the interface, but for those that another pod's program redirects to its peer.
	BringDown(index int) error
	// Unwire takes off what Wire made, as far as it is there, and brings the link down. The link stays.
	Unwire(e Entry)
	// HostRoutes returns the addresses that routes of ours lead to each link, by its index.
	HostRoutes() (map[int][]netip.Addr, error)
	// PruneWiring removes routes and neighbour entries of ours, on the links of live, for other addresses than theirs.
	PruneWiring(live []Entry) (removed []string, err error)
}

// Pins is what [Step] needs of the pinned programs.
type Pins interface {
	// PrunePins removes programs of former agents. It comes after Restore has replaced those in use.
	PrunePins() (removed []string, err error)
}

// Step is the datapath's [endpointmanager.Step] and [endpointmanager.Pruner]. Attach needs the addresses of ep: it
// comes after ipam and link.
type Step struct {
	links Links
	maps  Maps
	pins  Pins
	log   *slog.Logger
}

// NewStep returns the step on what a [Datapath] gives, or on doubles of it.
func NewStep(links Links, maps Maps, pins Pins, log *slog.Logger) *Step {
	return &Step{links: links, maps: maps, pins: pins, log: log}
}

// Name is "datapath".
func (s *Step) Name() string { return "datapath" }

// Attach puts the endpoint behind its host end and lets packets pass: map entries, filters, the host end up, routes of the
// node; then it waits until both ends have a carrier. On failure the host end is down again.
func (s *Step) Attach(ctx context.Context, ep endpointmanager.Endpoint, namespace *endpointmanager.Namespace) (_ endpointmanager.Endpoint, err error) {
	if err := ctx.Err(); err != nil {
		return ep, err
	}
	e, _, err := s.entry(ep)
	if err != nil {
		return ep, fmt.Errorf("attach to the datapath: %w", err)
	}
	if err = s.maps.Put(e); err == nil {
		err = s.links.Wire(e)
	}
	if err == nil {
		err = s.links.WaitForCarrier(ctx, e.Link, ep.Container.Index, namespace)
	}
	if err != nil {
		s.links.Unwire(e)
		return ep, errors.Join(fmt.Errorf("attach %s to the datapath: %w", ep.Host.Name, err), s.maps.Delete(e.Link, e.ID))
	}
	return ep, nil
}

// Detach takes the endpoint out of the datapath. It begins with the host end: from its first microseconds no packet passes
// the stack, and with the map entries no other pod's.
func (s *Step) Detach(_ context.Context, ep endpointmanager.Endpoint, cfg endpointmanager.DeleteConfig) error {
	index := ep.Host.Index // which may be somebody else's by now: maps.Delete looks at the ID, too
	link, err := s.find(ep)
	if err == nil {
		index = link.Attrs().Index
		err = s.links.BringDown(index)
	}
	if errors.Is(err, ErrNoLink) || errors.Is(err, ErrForeignLink) {
		err = nil // its own link went before
	}
	id := ep.ID
	if cfg.Sweep { // of an endpoint that nobody knows, so its entries have another number
		id = uint16(abi.NoEndpoint)
	}
	if err := errors.Join(err, s.maps.Delete(index, id)); err != nil {
		return fmt.Errorf("detach %s from the datapath: %w", ep.Spec.Attachment, err)
	}
	return nil
}

// Restore makes the endpoint's part of the kernel what it should be, and says what was not. It fails when the link is
// gone. One that is down is brought up: a deletion that took it down is on record, and not restored.
func (s *Step) Restore(ctx context.Context, ep endpointmanager.Endpoint) (replaced []string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if replaced, err = s.restore(ep); err != nil {
		return replaced, fmt.Errorf("restore %s in the datapath: %w", ep.Spec.Attachment, err)
	}
	return replaced, nil
}

func (s *Step) restore(ep endpointmanager.Endpoint) (replaced []string, err error) {
	e, link, err := s.entry(ep)
	if err != nil {
		return nil, err
	}
	if !isUp(link) {
		if err := s.links.BringUp(e.Link); err != nil {
			return nil, err
		}
		replaced = append(replaced, ep.Host.Name+": down")
	}
	entries, err := s.maps.Mend(e)
	if replaced = append(replaced, entries...); err != nil {
		return replaced, err
	}
	wiring, err := s.links.Rewire(e)
	return append(replaced, wiring...), err
}

// entry checks that the host end is the endpoint's own.
func (s *Step) entry(ep endpointmanager.Endpoint) (Entry, netlink.Link, error) {
	link, err := s.find(ep)
	if err != nil {
		return Entry{}, nil, err
	}
	if mac := link.Attrs().HardwareAddr.String(); mac != ep.Host.MAC.String() {
		return Entry{}, nil, fmt.Errorf("%s has MAC %s, not %s: %w", link.Attrs().Name, mac, ep.Host.MAC, ErrForeignLink)
	}
	e := entryOf(ep)
	e.Link, e.LinkName = link.Attrs().Index, link.Attrs().Name
	return e, link, e.check()
}

// find returns the attachment's own link. Without an index it is found by its name alone.
func (s *Step) find(ep endpointmanager.Endpoint) (link netlink.Link, err error) {
	name := ep.Spec.Attachment.HostEnd()
	if index := ep.Host.Index; index != 0 {
		link, err = s.links.Link(index)
	} else {
		link, err = s.links.LinkByName(name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, index %d: %w", name, ep.Host.Index, err)
	}
	if attrs := link.Attrs(); attrs.Name != name || link.Type() != "veth" {
		return nil, fmt.Errorf("index %d is %s %q, not veth %q: %w", attrs.Index, link.Type(), attrs.Name, name, ErrForeignLink)
	}
	return link, nil
}

func isUp(link netlink.Link) bool { return link.Attrs().Flags&net.FlagUp != 0 }
