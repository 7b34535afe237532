package endpointmanager

// A newer container that is on record as whole has superseded the older ones of its pod. Of these the ledger may hold
// more: their deletion failed, or could not be written, or a version of the agent wrote them that let both live.

// reasonSuperseded is why an endpoint is not brought back.
const reasonSuperseded = "a newer container of its pod has its place"

// findElders notes who has superseded whom. It expects the lock.
func findElders(list []*revived) {
	newest := map[podInterface]*worker{}
	for _, one := range list {
		place, ok := podInterfaceOf(one.worker.spec)
		if !ok || one.record.Phase != committed {
			continue
		}
		if now := newest[place]; now == nil || now.beganAt() < one.worker.beganAt() {
			newest[place] = one.worker
		}
	}
	for _, one := range list {
		place, _ := podInterfaceOf(one.worker.spec)
		if newer := newest[place]; newer != nil && newer.beganAt() > one.worker.beganAt() {
			one.newer, one.worker.superseded = newer, true
		}
	}
}

// tellOfElders tells of the end of who was superseded before anybody hears of the newer containers: again, perhaps, for
// what was told may not be on record.
func (m *manager) tellOfElders(list []*revived) {
	for _, one := range list {
		if one.newer != nil {
			m.tellEarly(one.worker, one.config())
		}
	}
}

// config is that of the deletion of who is not brought back because it was deleted or superseded.
func (r *revived) config() DeleteConfig {
	if r.record.Phase == committed && r.newer != nil {
		return DeleteConfig{Began: r.newer.beganAt()}
	}
	cfg := r.record.Config
	if cfg.Began > 0 { // perhaps that of a deletion before this life, whose undo was not whole
		cfg.Began = max(cfg.Began, r.worker.beganAt())
	}
	return cfg
}
