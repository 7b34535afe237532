package flow

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/endpoint"
)

// Deleted endpoints are remembered for a while: their last flows are read after their end.
const (
	departedTime  = 10 * time.Second
	departedCount = 1024
)

// directory knows who had an address or a number when a packet passed. It is an endpoint.Subscriber.
type directory struct {
	endpoints Endpoints
	now       func() time.Duration // since boot

	mu       sync.Mutex // guards the fields below
	pods     map[uint16]known
	created  map[uint16]time.Duration // since boot, of endpoints that this agent has created
	departed []departure              // oldest first
}

// known is what the endpoint was when its pod was made of it.
type known struct {
	endpoint endpoint.Endpoint
	pod      *Pod
}

type departure struct {
	at        time.Duration
	pod       *Pod
	addresses []netip.Addr
}

func newDirectory(endpoints Endpoints, now func() time.Duration) *directory {
	return &directory{endpoints: endpoints, now: now, pods: map[uint16]known{}, created: map[uint16]time.Duration{}}
}

// byID returns the pod that had the number at that time, or nil.
func (d *directory) byID(id uint16, at time.Duration) *Pod {
	if id == 0 {
		return nil
	}
	return d.find(endpoint.ByID(id), at, func(gone departure) bool { return gone.pod.ID == id })
}

// byAddress returns the pod that had the address at that time, or nil.
func (d *directory) byAddress(addr netip.Addr, at time.Duration) *Pod {
	if !addr.IsValid() {
		return nil
	}
	return d.find(endpoint.ByAddress(addr), at, func(gone departure) bool { return slices.Contains(gone.addresses, addr) })
}

func (d *directory) find(ref endpoint.Ref, at time.Duration, was func(departure) bool) *Pod {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, gone := range d.departed {
		if gone.at >= at && was(gone) {
			return gone.pod
		}
	}
	ep, err := d.endpoints.Get(ref)
	if err != nil || at < d.created[ep.ID] {
		return nil
	}
	return d.podOfLocked(ep)
}

// Flows of one endpoint share the pod.
func (d *directory) podOfLocked(ep endpoint.Endpoint) *Pod {
	if k, ok := d.pods[ep.ID]; ok && k.endpoint == ep {
		return k.pod
	}
	metadata, _ := endpoint.DecodeMetadata(ep.Metadata) // without labels, if that fails
	pod := &Pod{
		ID: ep.ID, Attachment: ep.Spec.Attachment.String(), Namespace: ep.Spec.Pod.Namespace, Name: ep.Spec.Pod.Name, Labels: metadata.Labels,
	}
	d.pods[ep.ID] = known{ep, pod}
	return pod
}

// EndpointCreated implements endpoint.Subscriber.
func (d *directory) EndpointCreated(ep endpoint.Endpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.created[ep.ID] = d.now()
}

// EndpointRestored implements endpoint.Subscriber.
func (d *directory) EndpointRestored(endpoint.Endpoint) {}

// EndpointUpdated implements endpoint.Subscriber.
func (d *directory) EndpointUpdated(endpoint.Endpoint) {}

// EndpointDeleted implements endpoint.Subscriber. Whoever gets the number or an address next, gets it later.
func (d *directory) EndpointDeleted(ep endpoint.Endpoint, _ endpoint.DeleteConfig) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	d.departed = slices.DeleteFunc(d.departed, func(gone departure) bool { return now-gone.at > departedTime })
	if len(d.departed) == departedCount {
		d.departed = slices.Delete(d.departed, 0, 1)
	}
	d.departed = append(d.departed, departure{now, d.podOfLocked(ep), ep.Addresses.List()})
	delete(d.pods, ep.ID)
	delete(d.created, ep.ID)
}
