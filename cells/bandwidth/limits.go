package bandwidth

import (
	"context"
	"errors"
	"fmt"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"os"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/reconcile"
)

// limits is what endpoints have in the kernel, as a [reconcile.Part].
type limits struct {
	kernel
	namespace *os.File // of kernel
	remover   link.Remover
}

// Update implements [reconcile.Part].
func (l limits) Update(ep endpoint.Endpoint) error {
	if ep.Spec.Bandwidth.IngressRate != 0 {
		if err := l.setBucket(ep.Host.Index, ingressOf(ep)); err != nil {
			return err
		}
	}
	if ep.Spec.Bandwidth.EgressRate == 0 {
		return nil
	}
	device, err := l.makeDevice(ep)
	if err != nil {
		return err
	}
	if err := l.startDevice(device, egressOf(ep)); err != nil {
		return err
	}
	return l.redirect(ep.Host.Index, device)
}

func ingressOf(ep endpoint.Endpoint) bucket {
	return bucketOf(ep.Spec.Bandwidth.IngressRate, ep.Spec.Bandwidth.IngressBurst, ep.MTU)
}

func egressOf(ep endpoint.Endpoint) bucket {
	return bucketOf(ep.Spec.Bandwidth.EgressRate, ep.Spec.Bandwidth.EgressBurst, ep.MTU)
}

func (l limits) remove(ctx context.Context, name string) error {
	device, err := l.find(name)
	if errors.Is(err, ErrForeign) || err == nil && device == nil {
		return nil
	}
	if err != nil {
		return err
	}
	return l.remover.Remove(ctx, device.Attrs().Index)
}

// Compare implements [reconcile.Part]. It returns nothing for an endpoint whose host end is gone: the datapath reports
// that.
func (l limits) Compare(ep endpoint.Endpoint) (differences []reconcile.Difference, err error) {
	if _, err := l.LinkByIndex(ep.Host.Index); nl.IsNoLink(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get link %d: %w", ep.Host.Index, err)
	}
	if ep.Spec.Bandwidth.IngressRate != 0 {
		if differences, err = l.compareBucket(ep.Host.Index, "token bucket of "+ep.Host.Name, ingressOf(ep)); err != nil {
			return nil, err
		}
	}
	if ep.Spec.Bandwidth.EgressRate == 0 {
		return differences, nil
	}
	egress, err := l.compareDevice(ep)
	return append(differences, egress...), err
}

func (l limits) compareBucket(link int, subject string, want bucket) ([]reconcile.Difference, error) {
	found, ok, err := l.bucketAt(link)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return []reconcile.Difference{{Kind: limitMissing, Subject: subject, Detail: reconcile.Missing}}, nil
	case found != want:
		detail := fmt.Sprintf("%+v instead of %+v", found, want)
		return []reconcile.Difference{{Kind: limitDiffers, Subject: subject, Detail: detail}}, nil
	}
	return nil, nil
}

func (l limits) compareDevice(ep endpoint.Endpoint) (differences []reconcile.Difference, err error) {
	name := nameOf(ep.Spec.Attachment)
	device, err := l.find(name)
	if err != nil {
		return nil, err
	}
	if device == nil {
		return []reconcile.Difference{{Kind: limitMissing, Subject: "device " + name, Detail: reconcile.Missing}}, nil
	}
	attrs := device.Attrs()
	if differences, err = l.compareBucket(attrs.Index, "token bucket of "+name, egressOf(ep)); err != nil {
		return nil, err
	}
	if attrs.RawFlags&unix.IFF_UP == 0 {
		differences = append(differences, reconcile.Difference{Kind: limitDiffers, Subject: "device " + name, Detail: "down"})
	}
	redirect := reconcile.Difference{Subject: "redirect of " + ep.Host.Name}
	to, there, err := l.redirectedTo(ep.Host.Index)
	switch {
	case err != nil:
		return nil, err
	case !there:
		redirect.Kind, redirect.Detail = limitMissing, reconcile.Missing
	case to != attrs.Index:
		redirect.Kind, redirect.Detail = limitDiffers, fmt.Sprintf("to link %d instead of %d", to, attrs.Index)
	default:
		return differences, nil
	}
	return append(differences, redirect), nil
}

// Orphans implements [reconcile.Part].
func (l limits) Orphans(owners func() []endpoint.Endpoint) (orphans []reconcile.Orphan[endpoint.Endpoint], err error) {
	devices, err := l.devices()
	wanted := devicesOf(owners())
	for _, device := range devices {
		attrs := device.Attrs()
		if wanted[attrs.Name] {
			continue
		}
		orphans = append(orphans, reconcile.Orphan[endpoint.Endpoint]{
			Difference: reconcile.Difference{
				Kind: limitOrphan, Detail: "it belongs to no endpoint",
				Subject: fmt.Sprintf("device %s, index %d", attrs.Name, attrs.Index),
			},
			Remove: func(owners func() []endpoint.Endpoint) error { return l.removeOrphan(attrs, owners) },
		})
	}
	return orphans, err
}

// removeOrphan leaves a later device of the same name alone.
func (l limits) removeOrphan(attrs *netlink.LinkAttrs, owners func() []endpoint.Endpoint) error {
	device, err := l.find(attrs.Name)
	switch {
	case errors.Is(err, ErrForeign), err == nil && device == nil:
		return nil
	case err != nil:
		return err
	case device.Attrs().Index != attrs.Index, devicesOf(owners())[attrs.Name]:
		return nil
	}
	return l.remover.Remove(context.Background(), attrs.Index)
}

// devicesOf are the names of the devices that endpoints should have.
func devicesOf(endpoints []endpoint.Endpoint) map[string]bool {
	names := map[string]bool{}
	for _, ep := range endpoints {
		if ep.Spec.Bandwidth.EgressRate != 0 {
			names[nameOf(ep.Spec.Attachment)] = true
		}
	}
	return names
}
