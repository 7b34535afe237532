package datapath

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"porin.dev/porin/cells/endpointmanager"
)

// Prune removes routes, neighbour entries, map entries and pins that bear Porin's mark and belong to none of
// live.
func (s *Step) Prune(_ context.Context, live []endpointmanager.Endpoint) (removed []string, err error) {
	entries := make([]Entry, len(live))
	for i, ep := range live {
		entries[i] = entryOf(ep)
	}
	stale, mapsErr := s.maps.Prune(entries)
	wiring, wiringErr := s.links.PruneWiring(entries)
	pins, pinsErr := s.pins.PrunePins()
	removed = slices.Concat(stale, wiring, pins)
	if len(removed) > 0 {
		s.log.Info("datapath pruned", "entries", len(stale), "wiring", len(wiring), "pins", len(pins))
	}
	if err := errors.Join(mapsErr, wiringErr, pinsErr); err != nil {
		return removed, fmt.Errorf("prune the datapath: %w", err)
	}
	return removed, nil
}
