package masquerade

import (
	"porin.dev/porin/cells/endpoint"
)

var _ endpoint.Subscriber = (*driver)(nil)

// EndpointCreated implements endpoint.Subscriber. A pod that keeps its addresses does so from its first packet.
func (d *driver) EndpointCreated(ep endpoint.Endpoint) { d.changed(ep) }

// EndpointRestored implements endpoint.Subscriber: the task applies what is restored.
func (d *driver) EndpointRestored(endpoint.Endpoint) {}

// EndpointUpdated implements endpoint.Subscriber.
func (d *driver) EndpointUpdated(endpoint.Endpoint) {}

// EndpointDeleted implements endpoint.Subscriber.
func (d *driver) EndpointDeleted(ep endpoint.Endpoint, _ endpoint.DeleteConfig) { d.changed(ep) }

// changed applies the present state. [Table.Run] tries failures again.
func (d *driver) changed(ep endpoint.Endpoint) {
	if ep.Spec.NoMasquerade {
		view, _ := d.peers.View()
		_ = d.set(view)
	}
}
