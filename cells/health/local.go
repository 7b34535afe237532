package health

import (
	"net/netip"
	"slices"
	"sync/atomic"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/watchable"
)

// Attachment is the name of a node's health endpoint: it is the same on every node, over restarts and boots.
func Attachment() endpoint.Attachment {
	return endpoint.Attachment{ContainerID: "porin-health", IfName: "eth0"}
}

// LocalEndpoint knows the health endpoint of this node, as a subscriber. Its methods may be called concurrently.
type LocalEndpoint struct {
	addresses watchable.Value[[]netip.Addr]
	deleted   atomic.Value // of func(), called at each deletion of the endpoint
}

var _ endpoint.Subscriber = (*LocalEndpoint)(nil)

// NewLocalEndpoint returns a LocalEndpoint without an endpoint.
func NewLocalEndpoint() *LocalEndpoint { return &LocalEndpoint{} }

// Addresses are the endpoint's addresses, at most one of each family; none while there is no endpoint.
func (l *LocalEndpoint) Addresses() []netip.Addr {
	addresses, _ := l.addresses.Get()
	return slices.Clone(addresses)
}

// Changed returns a channel that is closed at the next change of [LocalEndpoint.Addresses].
func (l *LocalEndpoint) Changed() <-chan struct{} {
	_, changed := l.addresses.Get()
	return changed
}

// EndpointCreated implements endpoint.Subscriber.
func (l *LocalEndpoint) EndpointCreated(ep endpoint.Endpoint) { l.update(ep) }

// EndpointRestored implements endpoint.Subscriber.
func (l *LocalEndpoint) EndpointRestored(ep endpoint.Endpoint) { l.update(ep) }

// EndpointUpdated implements [endpoint.Subscriber].
func (l *LocalEndpoint) EndpointUpdated(endpoint.Endpoint) {}

// EndpointDeleted implements endpoint.Subscriber. The keeper makes a new one.
func (l *LocalEndpoint) EndpointDeleted(ep endpoint.Endpoint, _ endpoint.DeleteConfig) {
	if ep.Spec.Attachment != Attachment() {
		return
	}
	l.set(nil)
	if deleted, ok := l.deleted.Load().(func()); ok {
		deleted()
	}
}

func (l *LocalEndpoint) update(ep endpoint.Endpoint) {
	if ep.Spec.Attachment == Attachment() && ep.Spec.Kind == endpoint.KindHealth {
		l.set(ep.Addresses.List())
	}
}

func (l *LocalEndpoint) set(addresses []netip.Addr) {
	if was, _ := l.addresses.Get(); !slices.Equal(was, addresses) {
		l.addresses.Set(addresses)
	}
}
