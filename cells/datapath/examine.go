package datapath

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpointmanager"
)

// judgement is what is wrong with one endpoint.
type judgement struct {
	endpoint endpointmanager.Endpoint
	observed observed
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
	if d.links.lists == nil {
		return nil, ErrNotStarted
	}
	for i := range judged {
		var flaws []flaw
		judged[i].observed, err = d.links.observe(d.links.lists, entries[i])
		if err == nil {
			flaws, err = d.flaws(judged[i].endpoint, entries[i], judged[i].observed)
		}
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			continue // not evidence of anything: the next look may see more
		}
		if err != nil {
			return nil, fmt.Errorf("examine endpoint %s: %w", judged[i].endpoint.Spec.Attachment, err)
		}
		judged[i].flaws = flaws
	}
	return judged, nil
}

func (d *Datapath) flaws(ep endpointmanager.Endpoint, e Entry, o observed) ([]flaw, error) {
	flaws, whole := linkFlaws(ep, o.link)
	if whole { // else the rest went with it
		wiring, err := d.links.flaws(d.links.lists, e, o)
		if err != nil {
			return nil, err
		}
		flaws = append(flaws, wiring...)
	}
	err := d.maps.use(func(m *pinnedMaps) error {
		entries, err := m.flaws(e)
		flaws = append(flaws, entries...)
		return err
	})
	return flaws, err
}

// linkFlaws is not whole when the link is not the endpoint's at all.
func linkFlaws(ep endpointmanager.Endpoint, l netlink.Link) (flaws []flaw, whole bool) {
	name := v1.HostInterfaceName(ep.Spec.Attachment.ContainerID, ep.Spec.Attachment.IfName)
	what := fmt.Sprintf("link %s", name)
	switch {
	case l == nil:
		return []flaw{{linkMissing, what, missing}}, false
	case l.Attrs().Name != name || l.Type() != "veth" || l.Attrs().HardwareAddr.String() != ep.Host.MAC.String():
		detail := fmt.Sprintf("%s %s with MAC %s instead of veth %s with MAC %s", l.Type(), l.Attrs().Name, l.Attrs().HardwareAddr, name, ep.Host.MAC)
		return []flaw{{linkDiffers, what, detail}}, false
	case !isUp(l):
		return []flaw{{linkDown, what, "down"}}, true
	}
	return nil, true
}
