package link

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
)

// Restore fails when the host end is gone. Objects in the container belong to it: they are not looked at. A host end
// that an agent was about to delete when it died goes back to the group of host ends that stay.
func (s *Step) Restore(_ context.Context, ep endpoint.Endpoint) (replaced []string, err error) {
	node, err := s.handle()
	if err != nil {
		return nil, err
	}
	l, err := findHostEnd(node, ep)
	if err != nil || l.Attrs().Group != deleteGroup {
		return nil, err
	}
	if err := node.LinkSetGroup(l, 0); err != nil {
		return nil, fmt.Errorf("set group 0 on %s: %w", l.Attrs().Name, err)
	}
	return []string{"group of " + l.Attrs().Name}, nil
}

// Survey returns the endpoints that have lost their link: it lists all links once, and checks each that is missing in
// the list again.
func (s *Step) Survey(ctx context.Context, eps []endpoint.Endpoint) (lost map[endpoint.Attachment]error, err error) {
	node, err := s.handle()
	if err != nil {
		return nil, err
	}
	ends, err := HostEnds(node)
	if err != nil { // then each is looked for by itself
		s.log.Warn("links are looked for one by one", "error", err)
	}
	there := make(map[int]string, len(ends))
	for _, l := range ends {
		there[l.Attrs().Index] = l.Attrs().Name
	}
	lost = map[endpoint.Attachment]error{}
	var errs []error
	for _, ep := range eps {
		if there[ep.Host.Index] == ep.Spec.Attachment.HostEnd() {
			continue
		}
		_, err := findHostEnd(node, ep)
		switch {
		case errors.Is(err, ErrNoLink), errors.Is(err, ErrForeign):
			lost[ep.Spec.Attachment] = err
		case err != nil: // which says nothing about the link
			errs = append(errs, err)
		}
	}
	return lost, errors.Join(append(errs, ctx.Err())...)
}

func (s *Step) hostEnds() ([]netlink.Link, error) {
	node, err := s.handle()
	if err != nil {
		return nil, err
	}
	return HostEnds(node)
}

// Find adds an endpoint for each host end that there is: with what its alias and the kernel say of it.
func (s *Step) Find(_ context.Context, found []endpoint.Endpoint) ([]endpoint.Endpoint, error) {
	ends, err := s.hostEnds()
	if err != nil {
		return nil, err
	}
	for _, end := range ends {
		attrs := end.Attrs()
		ep := endpoint.Endpoint{MTU: attrs.MTU}
		ep.Spec.Attachment, ep.Spec.Began = parseAlias(attrs.Name, attrs.Alias)
		mac, _ := v1.ParseMAC(attrs.HardwareAddr.String())
		ep.Host = endpoint.Interface{Name: attrs.Name, Index: attrs.Index, MAC: mac}
		found = append(found, ep)
	}
	return found, nil
}

// pruneAtOnce is how many links are removed side by side. The deleter takes what is there together.
const pruneAtOnce = 64

// Prune removes the host ends that belong to none of live.
func (s *Step) Prune(ctx context.Context, live []endpoint.Endpoint) (removed []string, err error) {
	ends, err := s.hostEnds()
	if err != nil {
		return nil, err
	}
	keep := make(map[int]bool, len(live))
	for _, ep := range live {
		keep[ep.Host.Index] = true
	}
	var mu sync.Mutex // guards removed
	var group errgroup.Group
	group.SetLimit(pruneAtOnce)
	for _, end := range ends {
		if keep[end.Attrs().Index] {
			continue
		}
		group.Go(func() error {
			if err := s.Remove(ctx, end.Attrs().Index); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			removed = append(removed, fmt.Sprintf("link %s, index %d", end.Attrs().Name, end.Attrs().Index))
			return nil
		})
	}
	err = group.Wait()
	return removed, err
}
