package datapath

import (
	"context"
	"errors"
	"fmt"

	"porin.dev/porin/cells/endpointmanager"
)

var _ endpointmanager.Surveyor = (*Step)(nil)

// Survey tells which endpoints have lost their link: with one list of all, and a second look at each that is not in it,
// for a list that changes while it is read may lack what is there.
func (s *Step) Survey(ctx context.Context, eps []endpointmanager.Endpoint) (lost map[endpointmanager.Attachment]error, err error) {
	links, err := s.links.Links()
	if err != nil {
		return nil, fmt.Errorf("survey the links: %w", err)
	}
	there := make(map[string]int, len(links))
	for _, link := range links {
		there[link.Name] = link.Index
	}
	lost = map[endpointmanager.Attachment]error{}
	for _, ep := range eps {
		if there[ep.Spec.Host.Name] == ep.Spec.Host.Index {
			continue
		}
		_, err := s.find(ep)
		if errors.Is(err, ErrNoLink) || errors.Is(err, ErrForeignLink) {
			lost[ep.Spec.Attachment] = err
		}
	}
	return lost, ctx.Err()
}
