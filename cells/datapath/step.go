package datapath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/reconcile"
)

// Pins is what [Step] needs of the pinned programs.
type Pins interface {
	// PrunePins removes programs of previous agents. It comes after Restore has replaced those in use.
	PrunePins() (removed []string, err error)
}

// Step is the datapath's [endpoint.Step] and [endpoint.Pruner]. Attach needs the addresses of ep: it
// comes after ipam and link.
type Step struct {
	links Links
	maps  Maps
	parts []Part // in the order of Update: the programs know an endpoint before they see its packets
	pins  Pins
	log   *slog.Logger
}

// NewStep returns the step on what a [Datapath] gives, or on fakes of it.
func NewStep(links Links, maps Maps, pins Pins, log *slog.Logger) *Step {
	return &Step{links: links, maps: maps, parts: []Part{maps, links}, pins: pins, log: log}
}

// Name is "datapath".
func (s *Step) Name() string { return "datapath" }

// Attach puts the endpoint behind its host end and lets packets pass: map entries, filters, the host end up, routes of
// the node; then it waits until both ends have a carrier. On failure the host end is down again.
func (s *Step) Attach(ctx context.Context, ep endpoint.Endpoint, namespace *endpoint.Namespace) (_ endpoint.Endpoint, err error) {
	if err := ctx.Err(); err != nil {
		return ep, err
	}
	e, mac, err := s.entry(ep)
	if err == nil && mac != ep.Host.MAC.String() {
		err = fmt.Errorf("%s has MAC %s, not %s: %w", e.LinkName, mac, ep.Host.MAC, ErrForeignLink)
	}
	if err != nil {
		return ep, fmt.Errorf("attach to the datapath: %w", err)
	}
	if err = s.attach(e); err == nil {
		err = s.links.WaitForCarrier(ctx, e.Link, ep.Container.Index, namespace)
	}
	if err != nil {
		return ep, errors.Join(fmt.Errorf("attach %s to the datapath: %w", ep.Host.Name, err), s.undo(e))
	}
	return ep, nil
}

func (s *Step) attach(e Entry) error {
	if err := s.links.Forward(e); err != nil {
		return err
	}
	for _, part := range s.parts {
		if err := part.Update(e); err != nil {
			return err
		}
	}
	return nil
}

// undo goes on after what fails.
func (s *Step) undo(e Entry) error {
	var errs []error
	for _, part := range slices.Backward(s.parts) {
		errs = append(errs, part.Delete(e))
	}
	return errors.Join(errs...)
}

// Detach takes the endpoint out of the datapath. It begins with the host end: from its first microseconds no packet
// passes the stack, and with the map entries no other pod's.
func (s *Step) Detach(_ context.Context, ep endpoint.Endpoint, cfg endpoint.DeleteConfig) error {
	index := ep.Host.Index // which may be another endpoint's by now: maps.Delete compares the ID, too
	link, err := s.find(ep)
	if err == nil {
		index = link.Attrs().Index
		err = s.links.BringDown(index)
	}
	if errors.Is(err, ErrNoLink) || errors.Is(err, ErrForeignLink) {
		err = nil // its own link went before
	}
	id := ep.ID
	if cfg.Sweep { // of an unknown endpoint, so its entries have another number
		id = uint16(abi.NoEndpoint)
	}
	if err := errors.Join(err, s.maps.Delete(Entry{Link: index, ID: id})); err != nil {
		return fmt.Errorf("detach %s from the datapath: %w", ep.Spec.Attachment, err)
	}
	return nil
}

// Restore makes the endpoint's part of the kernel what it should be, and says what was not. It fails when the link is
// gone. One that is down is brought up: a deletion that took it down is on record, and not restored.
func (s *Step) Restore(ctx context.Context, ep endpoint.Endpoint) (replaced []string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e, _, err := s.entry(ep)
	if err == nil {
		err = s.links.Forward(e)
	}
	if err == nil {
		replaced, err = reconcile.Restore(e, s.parts...)
	}
	if err != nil {
		return replaced, fmt.Errorf("restore %s in the datapath: %w", ep.Spec.Attachment, err)
	}
	return replaced, nil
}

// Prune removes routes, neighbour entries, map entries and pins that bear Porin's mark and belong to none of live.
func (s *Step) Prune(_ context.Context, live []endpoint.Endpoint) (removed []string, err error) {
	removed, err = reconcile.Prune(func() []Entry { return entriesOf(live) }, s.parts...)
	pins, pinsErr := s.pins.PrunePins()
	removed = append(removed, pins...)
	if len(removed) > 0 {
		s.log.Info("datapath pruned", "removed", len(removed), "pins", len(pins))
	}
	if err := errors.Join(err, pinsErr); err != nil {
		return removed, fmt.Errorf("prune the datapath: %w", err)
	}
	return removed, nil
}

// entry checks that the host end is the endpoint's own. It returns the MAC that the host end has now, too.
func (s *Step) entry(ep endpoint.Endpoint) (_ Entry, mac string, err error) {
	link, err := s.find(ep)
	if err != nil {
		return Entry{}, "", err
	}
	e := entryOf(ep)
	e.Link, e.LinkName = link.Attrs().Index, link.Attrs().Name
	return e, link.Attrs().HardwareAddr.String(), e.check()
}

// find returns the attachment's own link. Without an index it is found by its name alone.
func (s *Step) find(ep endpoint.Endpoint) (link netlink.Link, err error) {
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

// Find completes the endpoints found, by the index of their host end, with what the maps know of them; and with the
// addresses of routes where the maps know none. The kernel removes the routes of a link that goes down. For an entry
// whose link is not among them it adds an endpoint: the link may be in another network namespace, and need the entry.
func (s *Step) Find(_ context.Context, found []endpoint.Endpoint) ([]endpoint.Endpoint, error) {
	entries, err := s.maps.Entries()
	if err != nil {
		return nil, fmt.Errorf("read what the programs know of links: %w", err)
	}
	addresses, err := s.links.Addresses()
	if err != nil {
		return nil, fmt.Errorf("list the addresses of links: %w", err)
	}
	for i, ep := range found {
		e := entries[ep.Host.Index]
		ep.ID, ep.Addresses = e.ID, e.Addresses
		ep.Container = endpoint.Interface{Name: ep.Spec.Attachment.IfName, MAC: e.PodMAC}
		for _, addr := range addresses[ep.Host.Index] {
			if addr.Is4() && !ep.Addresses.IPv4.IsValid() {
				ep.Addresses.IPv4 = addr
			} else if addr.Is6() && !ep.Addresses.IPv6.IsValid() {
				ep.Addresses.IPv6 = addr
			}
		}
		found[i] = ep
		delete(entries, ep.Host.Index)
	}
	for _, index := range slices.Sorted(maps.Keys(entries)) {
		e := entries[index]
		ep := endpoint.Endpoint{ID: e.ID, Addresses: e.Addresses, Host: endpoint.Interface{Index: index}}
		ep.Spec.Attachment = endpoint.Unnamed(fmt.Sprintf("link/%d", index)) // which is the name of no interface
		found = append(found, ep)
	}
	return found, nil
}
