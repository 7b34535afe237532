package datapath

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"porin.dev/porin/cells/endpointmanager"
)

// pruneAtOnce is how many links are removed side by side. The deleter takes what is there together.
const pruneAtOnce = 64

// Prune removes links, routes, map entries and pins that bear Porin's mark and belong to none of live.
func (s *Step) Prune(ctx context.Context, live []endpointmanager.Endpoint) error {
	entries := make([]Entry, len(live))
	for i, ep := range live {
		entries[i] = Entry{ID: ep.ID, Link: ep.Spec.Host.Index, Addresses: ep.Addresses}
	}
	stale, mapsErr := s.maps.Prune(entries)
	routes, routesErr := s.links.PruneRoutes(entries)
	links, linksErr := s.pruneLinks(ctx, entries)
	if stale+routes+links > 0 {
		s.log.Info("datapath pruned", "entries", stale, "routes", routes, "links", links)
	}
	if err := errors.Join(mapsErr, routesErr, linksErr, s.pins.PrunePins()); err != nil {
		return fmt.Errorf("prune the datapath: %w", err)
	}
	return nil
}

func (s *Step) pruneLinks(ctx context.Context, live []Entry) (removed int, err error) {
	links, err := s.links.Links()
	if err != nil {
		return 0, err
	}
	keep := make(map[int]bool, len(live))
	for _, e := range live {
		keep[e.Link] = true
	}
	var group errgroup.Group
	group.SetLimit(pruneAtOnce)
	for _, link := range links {
		if keep[link.Index] {
			continue
		}
		removed++
		group.Go(func() error { return s.links.Remove(ctx, link.Index) })
	}
	return removed, group.Wait()
}
