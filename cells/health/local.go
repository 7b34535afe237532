package health

import (
	"net/netip"
	"slices"
	"sync"

	"porin.dev/porin/cells/endpoint"
)

// Attachment is the name of a node's health endpoint: it is the same on every node, over restarts and boots.
func Attachment() endpoint.Attachment {
	return endpoint.Attachment{ContainerID: "porin-health", IfName: "eth0"}
}

// LocalEndpoint knows the health endpoint of this node, as a subscriber. Its methods may be called concurrently.
type LocalEndpoint struct {
	mu        sync.Mutex // guards the fields below
	addresses []netip.Addr
	changed   chan struct{} // closed at the next change
	deleted   func()
}

var _ endpoint.Subscriber = (*LocalEndpoint)(nil)

// NewLocalEndpoint returns a LocalEndpoint without an endpoint.
func NewLocalEndpoint() *LocalEndpoint {
	return &LocalEndpoint{changed: make(chan struct{}), deleted: func() {}}
}

// Addresses are the endpoint's addresses, at most one of each family; none while there is no endpoint.
func (l *LocalEndpoint) Addresses() []netip.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.addresses)
}

// Changed returns a channel that is closed at the next change of [LocalEndpoint.Addresses].
func (l *LocalEndpoint) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
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
	l.mu.Lock()
	deleted := l.deleted
	l.mu.Unlock()
	deleted()
}

func (l *LocalEndpoint) update(ep endpoint.Endpoint) {
	if ep.Spec.Attachment == Attachment() && ep.Spec.Kind == endpoint.KindHealth {
		l.set(ep.Addresses.List())
	}
}

func (l *LocalEndpoint) set(addresses []netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.addresses, addresses) {
		l.addresses = addresses
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// onDelete registers f, which is called at each deletion of the endpoint. It does not block.
func (l *LocalEndpoint) onDelete(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deleted = f
}
