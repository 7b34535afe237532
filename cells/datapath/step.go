package datapath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpointmanager"
)

// Links is what [Step] needs of the node's network interfaces.
type Links interface {
	// Link describes an interface, or returns [ErrNoLink].
	Link(index int) (Link, error)
	// LinkByName is for who has no index.
	LinkByName(name string) (Link, error)
	// Links lists the interfaces that bear the mark of a host end.
	Links() ([]Link, error)
	// Wire attaches the programs to e.Link and leads e.Addresses there. When it fails, Unwire undoes its parts.
	Wire(e Entry) error
	// Rewire is Wire after a restart: it leaves alone what is right, and says what it made anew.
	Rewire(e Entry) (replaced []string, err error)
	// BringUp lets packets pass again.
	BringUp(index int) error
	// Unwire takes off what Wire made, as far as it is there. The link stays.
	Unwire(e Entry)
	// Remove takes the link down, so that nothing passes any more, then deletes it. It returns when it is gone.
	Remove(ctx context.Context, index int) error
	// PruneWiring removes routes and neighbour entries of ours, on the links of live, for other addresses than theirs.
	PruneWiring(live []Entry) (removed []string, err error)
}

// Pins is what [Step] needs of the pinned programs.
type Pins interface {
	// PrunePins removes programs of former agents. It comes after Restore has replaced those in use.
	PrunePins() (removed []string, err error)
}

// Step is the datapath's [endpointmanager.Step] and [endpointmanager.Pruner]. Attach needs the addresses of ep: it
// comes after ipam.
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

// Attach puts the endpoint behind the host end that ep.Spec names. The link must be there and up: it is not made here,
// and on failure it is left as it was.
func (s *Step) Attach(ctx context.Context, ep endpointmanager.Endpoint) (_ endpointmanager.Endpoint, err error) {
	if err := ctx.Err(); err != nil {
		return ep, err
	}
	e, err := s.entry(ep)
	if err != nil {
		return ep, fmt.Errorf("attach to the datapath: %w", err)
	}
	if err = s.maps.Put(e); err == nil {
		err = s.links.Wire(e)
	}
	if err != nil {
		s.links.Unwire(e)
		return ep, errors.Join(fmt.Errorf("attach %s to the datapath: %w", ep.Spec.Host.Name, err), s.maps.Delete(e.Link, e.ID))
	}
	return ep, nil
}

// Detach takes the endpoint out of the datapath and deletes its veth pair. From its first microseconds no packet
// passes. It returns when the kernel says that the link is gone, which is long before it has forgotten it.
func (s *Step) Detach(ctx context.Context, ep endpointmanager.Endpoint, _ endpointmanager.DeleteConfig) error {
	link, err := s.find(ep)
	if err != nil {
		link.Index = ep.Spec.Host.Index // which may be somebody else's by now: Delete looks at the ID, too
	}
	mapsErr := s.maps.Delete(link.Index, ep.ID)
	switch {
	case err == nil:
		err = s.links.Remove(ctx, link.Index)
	case errors.Is(err, ErrNoLink), errors.Is(err, ErrForeignLink):
		err = nil // its own link went before
	}
	if err := errors.Join(mapsErr, err); err != nil {
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
	e, err := s.entry(ep)
	if errors.Is(err, ErrLinkDown) {
		replaced, err = append(replaced, ep.Spec.Host.Name+": down"), s.links.BringUp(ep.Spec.Host.Index)
		if err == nil {
			e, err = s.entry(ep)
		}
	}
	if err != nil {
		return nil, err
	}
	entries, err := s.maps.Mend(e)
	if replaced = append(replaced, entries...); err != nil {
		return replaced, err
	}
	wiring, err := s.links.Rewire(e)
	return append(replaced, wiring...), err
}

// entry checks what the caller of the API said against the kernel: it must not make us touch another link.
func (s *Step) entry(ep endpointmanager.Endpoint) (Entry, error) {
	link, err := s.find(ep)
	if err != nil {
		return Entry{}, err
	}
	if link.MAC != ep.Spec.Host.MAC {
		return Entry{}, fmt.Errorf("%s has MAC %s, not %s: %w", link.Name, link.MAC, ep.Spec.Host.MAC, ErrForeignLink)
	}
	if !link.Up {
		return Entry{}, fmt.Errorf("%s: %w", link.Name, ErrLinkDown)
	}
	e := entryOf(ep)
	e.Link = link.Index
	return e, e.check()
}

// find returns the attachment's own link. Without an index it is found by its name alone.
func (s *Step) find(ep endpointmanager.Endpoint) (link Link, err error) {
	name := v1.HostInterfaceName(ep.Spec.Attachment.ContainerID, ep.Spec.Attachment.IfName)
	if index := ep.Spec.Host.Index; index != 0 {
		link, err = s.links.Link(index)
	} else {
		link, err = s.links.LinkByName(name)
	}
	if err != nil {
		return Link{}, fmt.Errorf("%s, index %d: %w", name, ep.Spec.Host.Index, err)
	}
	if link.Name != name || link.Kind != "veth" {
		return Link{}, fmt.Errorf("index %d is %s %q, not veth %q: %w", link.Index, link.Kind, link.Name, name, ErrForeignLink)
	}
	return link, nil
}
