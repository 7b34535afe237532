package endpointmanager

// Nothing here holds a lock: a subscriber may read the table.

func (m *manager) tellCreated(w *worker) {
	w.born = true
	for _, s := range m.subscribers {
		s.EndpointCreated(w.ep)
	}
}

// tellDeleted passes over an endpoint whose creation failed: nobody has heard of it.
func (m *manager) tellDeleted(w *worker, cfg DeleteConfig) {
	if !w.born {
		return
	}
	for _, s := range m.subscribers {
		s.EndpointDeleted(w.ep, cfg)
	}
}

func (m *manager) tellRestored(ep Endpoint) {
	for _, s := range m.subscribers {
		s.EndpointRestored(ep)
	}
}

func (m *manager) observe(trace Trace) {
	for _, o := range m.observers {
		o.Observe(trace)
	}
}
