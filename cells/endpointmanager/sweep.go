package endpointmanager

// launchSweep makes a worker for an attachment that the agent has no endpoint of, so that a deletion of it and an ADD that
// comes meanwhile take their turn. It is not ok when the node has no number left, or the manager has stopped. It
// expects the lock.
func (m *manager) launchSweep(a Attachment, cfg DeleteConfig) (w *worker, ok bool) {
	if m.closed {
		return nil, false
	}
	id, err := m.ids.allocate()
	if err != nil {
		return nil, false
	}
	w = newWorker(Spec{
		Attachment: a, Network: cfg.Network, NetNS: cfg.NetNS, IPAM: cfg.IPAM, ExternalIPAM: cfg.IPAM != (IPAMPlugin{}), Began: cfg.Began,
	}, id)
	w.ran = len(m.steps)
	w.recorded.Store(m.stopped) // before the agent serves nobody asks but a deletion record
	m.launch(w)
	return w, true
}

// withoutSweep is the deletion of an endpoint that is known.
func (cfg DeleteConfig) withoutSweep() DeleteConfig {
	cfg.Sweep, cfg.Network, cfg.NetNS, cfg.IPAM = false, "", "", IPAMPlugin{}
	return cfg
}
