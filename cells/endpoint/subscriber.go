package endpoint

// Subscriber hears of endpoints after the fact: without the manager's lock, one event at a time for one attachment, the
// end of a life before the beginning of the next, in no order relative to other subscribers. It is on the path of the
// caller's answer, so slow work goes to a loop of its own. It may read (endpointmanager.Lookup) and must not write
// (endpointmanager.Manager).
type Subscriber interface {
	EndpointCreated(Endpoint)
	EndpointDeleted(Endpoint, DeleteConfig)
	EndpointRestored(Endpoint)
	// EndpointUpdated is called when the endpoint has other metadata than before.
	EndpointUpdated(Endpoint)
}

// Observer is notified of each finished operation, failed ones too, and what its phases took. The rules of [Subscriber]
// hold.
type Observer interface{ Observe(Trace) }
