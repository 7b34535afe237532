package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/rtnl"
)

// judgement is what is wrong with one endpoint.
type judgement struct {
	endpoint endpointmanager.Endpoint
	sight    sight
	flaws    []flaw
}

// examine looks at those of the endpoints that are ready.
func (d *Datapath) examine(endpoints []endpointmanager.Endpoint) (judged []judgement, err error) {
	var entries []Entry
	for _, ep := range endpoints {
		if ep.State == endpointmanager.Ready {
			judged, entries = append(judged, judgement{endpoint: ep}), append(entries, entryOf(ep))
		}
	}
	if d.links.eyes == nil {
		return nil, ErrNotStarted
	}
	sights, err := d.links.look(d.links.eyes, entries...)
	if err != nil {
		return nil, fmt.Errorf("look at the endpoints' links: %w", err)
	}
	for i := range judged {
		judged[i].sight = sights[i]
		flaws, err := d.flaws(judged[i].endpoint, entries[i], sights[i])
		if err != nil {
			return nil, fmt.Errorf("examine endpoint %s: %w", judged[i].endpoint.Spec.Attachment, err)
		}
		judged[i].flaws = flaws
	}
	return judged, nil
}

func (d *Datapath) flaws(ep endpointmanager.Endpoint, e Entry, s sight) ([]flaw, error) {
	flaws, whole := linkFlaws(ep, s.link)
	if whole { // else the rest went with it
		wiring, err := d.links.flaws(d.links.eyes, e, s)
		if err != nil {
			return nil, err
		}
		flaws = append(append(flaws, wiring...), namespaceFlaw(ep)...)
	}
	err := d.maps.use(func(m *pinnedMaps) error {
		entries, err := m.flaws(e)
		flaws = append(flaws, entries...)
		return err
	})
	return flaws, err
}

// linkFlaws is not whole when the link is not the endpoint's at all.
func linkFlaws(ep endpointmanager.Endpoint, link rtnl.Link) (flaws []flaw, whole bool) {
	name := v1.HostInterfaceName(ep.Spec.Attachment.ContainerID, ep.Spec.Attachment.IfName)
	what := fmt.Sprintf("link %s", name)
	switch {
	case link.Index == 0:
		return []flaw{{linkMissing, what, missing}}, false
	case link.Name != name || link.Kind != "veth" || endpointmanager.MAC(link.MAC) != ep.Spec.Host.MAC:
		detail := fmt.Sprintf("%s %s with MAC %s instead of veth %s with MAC %s", link.Kind, link.Name, link.MAC, name, ep.Spec.Host.MAC)
		return []flaw{{linkDiffers, what, detail}}, false
	case !link.Up():
		return []flaw{{linkDown, what, "down"}}, true
	}
	return nil, true
}

// namespaceFlaw believes that a path is gone only when its folder can be seen: the agent may have another view of files
// than the runtime, and a process that ended has taken its folder of /proc with it.
func namespaceFlaw(ep endpointmanager.Endpoint) []flaw {
	path := ep.Spec.NetNS
	if path == "" || !filepath.IsAbs(path) {
		return nil
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.ReadDir(filepath.Dir(path)); err != nil {
		return nil
	}
	return []flaw{{namespaceMissing, "network namespace " + path, missing}}
}
