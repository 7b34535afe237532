package bandwidth

import (
	"fmt"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/endpoint"
)

// difference is one thing in the kernel that does not limit as it should.
type difference struct {
	kind, subject, detail string
}

func (d difference) String() string { return d.subject + ": " + d.detail }

// compare returns what of the endpoint's limits is missing or differs. Without the host end nothing is: its link is
// lost.
func (k kernel) compare(ep endpoint.Endpoint) (differences []difference, err error) {
	if ep.Spec.Bandwidth.IngressRate != 0 {
		if differences, err = k.compareBucket(ep.Host.Index, "token bucket of "+ep.Host.Name, ingressOf(ep)); err != nil {
			return nil, err
		}
	}
	if ep.Spec.Bandwidth.EgressRate == 0 {
		return differences, nil
	}
	egress, err := k.compareDevice(ep)
	return append(differences, egress...), err
}

func (k kernel) compareBucket(link int, subject string, want bucket) ([]difference, error) {
	found, ok, err := k.bucketAt(link)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return []difference{{limitMissing, subject, "missing"}}, nil
	case found != want:
		return []difference{{limitDiffers, subject, fmt.Sprintf("%+v instead of %+v", found, want)}}, nil
	}
	return nil, nil
}

func (k kernel) compareDevice(ep endpoint.Endpoint) (differences []difference, err error) {
	name := nameOf(ep.Spec.Attachment)
	device, err := k.find(name)
	if err != nil {
		return nil, err
	}
	if device == nil {
		return []difference{{limitMissing, "device " + name, "missing"}}, nil
	}
	attrs := device.Attrs()
	if differences, err = k.compareBucket(attrs.Index, "token bucket of "+name, egressOf(ep)); err != nil {
		return nil, err
	}
	if attrs.RawFlags&unix.IFF_UP == 0 {
		differences = append(differences, difference{limitDiffers, "device " + name, "down"})
	}
	to, there, err := k.redirectedTo(ep.Host.Index)
	switch {
	case err != nil:
		return nil, err
	case !there:
		differences = append(differences, difference{limitMissing, "redirect of " + ep.Host.Name, "missing"})
	case to != attrs.Index:
		differences = append(differences, difference{limitDiffers, "redirect of " + ep.Host.Name, fmt.Sprintf("to link %d instead of %d", to, attrs.Index)})
	}
	return differences, nil
}
