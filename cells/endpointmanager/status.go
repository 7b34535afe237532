package endpointmanager

import v1 "porin.dev/porin/api/v1"

// reporter is the manager's part of GET /v1/status.
type reporter struct {
	table   *Table
	service Service
	holder  Holder
}

func newReporter(table *Table, service Service, holder Holder) reporter {
	return reporter{table, service, holder}
}

// Report implements server.Reporter.
func (r reporter) Report(status *v1.Status) {
	status.Endpoints = map[string]int{}
	for state, n := range r.table.countByState() {
		if n > 0 {
			status.Endpoints[string(state)] = n
		}
	}
	status.Restored = r.service.Restored().toV1()
	status.Held = heldToV1(r.holder.Held())
}
