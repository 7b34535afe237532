package endpointmanager

import (
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
)

// entry is an endpoint as the ledger, the table and the subscribers have it. Only the endpoint's goroutine uses it.
type entry struct {
	m     *manager
	ep    endpoint.Endpoint
	phase ledger.Phase // of the last record that was written; "" without one
	told  bool         // subscribers know the endpoint, in this life of the agent or an earlier one
}

// record writes the record of the endpoint as it is now.
func (e *entry) record(phase ledger.Phase, config endpoint.DeleteConfig) error {
	write := e.m.ledger.Put
	if phase == ledger.Tombstone {
		write = e.m.ledger.PutTombstone
	}
	err := write(e.recordOf(phase, config))
	if err == nil {
		e.phase = phase
	}
	return err
}

// recordOf returns a record. The record of a deletion has the start time of the latest DEL, whichever DEL does the
// work.
func (e *entry) recordOf(phase ledger.Phase, config endpoint.DeleteConfig) ledger.Record {
	if phase == ledger.Deleting || phase == ledger.Tombstone {
		config.Began = max(config.Began, e.m.registry.deletedAt(e.ep.Spec.Attachment))
	}
	return ledger.Record{Phase: phase, Endpoint: e.ep, Config: config, At: wallTime(), Boot: e.m.clock.boot(), Told: e.told}
}

// become changes the state of the endpoint, and shows it. A forbidden transition is refused, logged and counted.
func (e *entry) become(who actor, to endpoint.State) {
	if !e.m.table.transition(&e.ep, who, to) {
		e.m.log.Error("state transition refused", attrs(e.ep), "from", e.ep.State, "to", to, "actor", who)
	}
}

// show makes ep the endpoint, unless another endpoint has its addresses.
func (e *entry) show(ep endpoint.Endpoint) error {
	if ep == e.ep {
		return nil
	}
	if err := e.m.table.put(ep); err != nil {
		return err
	}
	e.ep = ep
	return nil
}

// tell tells the subscribers of an event, for example endpoint.Subscriber.EndpointCreated.
func (e *entry) tell(event func(endpoint.Subscriber, endpoint.Endpoint)) {
	e.told = true
	for _, s := range e.m.subscribers {
		event(s, e.ep)
	}
}

// tellDeleted tells the subscribers of the end, unless they do not know the endpoint: its creation failed, or they were
// told early.
func (e *entry) tellDeleted(config endpoint.DeleteConfig) {
	if !e.told {
		return
	}
	for _, s := range e.m.subscribers {
		s.EndpointDeleted(e.ep, config)
	}
}

// announce tells the subscribers of the end of an endpoint whose removal goes on, and records that they know.
func (e *entry) announce(config endpoint.DeleteConfig) {
	e.tellDeleted(config)
	e.told = false
	if err := e.record(ledger.Deleting, config); err != nil {
		e.m.log.Warn("subscribers may hear twice of the end of an endpoint", attrs(e.ep), "error", err)
	}
}

// observe gives the trace of an operation to the observers, and returns its error with the slowest phase.
func (e *entry) observe(watch *stopwatch, err error) error {
	trace := watch.finish(e.ep, err)
	for _, o := range e.m.observers {
		o.Observe(trace)
	}
	return trace.Err
}

// wallTime is the time for people. The value is the same after it was written to the ledger and read again.
func wallTime() time.Time { return time.Now().Round(0).UTC() }
