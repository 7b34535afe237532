package datapath

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"porin.dev/porin/cells/endpointmanager"
)

// pruneAtOnce is how many links are removed side by side. The deleter takes what is there together.
const pruneAtOnce = 64

// Prune removes links, routes, neighbour entries, map entries and pins that bear Porin's mark and belong to none of
// live.
func (s *Step) Prune(ctx context.Context, live []endpointmanager.Endpoint) (removed []string, err error) {
	entries := make([]Entry, len(live))
	for i, ep := range live {
		entries[i] = entryOf(ep)
	}
	stale, mapsErr := s.maps.Prune(entries)
	wiring, wiringErr := s.links.PruneWiring(entries)
	links, linksErr := s.pruneLinks(ctx, entries)
	pins, pinsErr := s.pins.PrunePins()
	removed = slices.Concat(stale, wiring, links, pins)
	if len(removed) > 0 {
		s.log.Info("datapath pruned", "entries", len(stale), "wiring", len(wiring), "links", len(links), "pins", len(pins))
	}
	if err := errors.Join(mapsErr, wiringErr, linksErr, pinsErr); err != nil {
		return removed, fmt.Errorf("prune the datapath: %w", err)
	}
	return removed, nil
}

func (s *Step) pruneLinks(ctx context.Context, live []Entry) (removed []string, err error) {
	links, err := s.links.Links()
	if err != nil {
		return nil, err
	}
	keep := make(map[int]bool, len(live))
	for _, e := range live {
		keep[e.Link] = true
	}
	links = slices.DeleteFunc(links, func(l Link) bool { return keep[l.Index] })
	removed = make([]string, len(links))
	var group errgroup.Group
	group.SetLimit(pruneAtOnce)
	for i, link := range links {
		group.Go(func() error {
			err := s.links.Remove(ctx, link.Index)
			if err == nil {
				removed[i] = link.String()
			}
			return err
		})
	}
	err = group.Wait()
	return slices.DeleteFunc(removed, func(text string) bool { return text == "" }), err
}
