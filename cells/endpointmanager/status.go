package endpointmanager

import v1 "porin.dev/porin/api/v1"

// reporter is the manager's part of GET /v1/status.
type reporter struct {
	table   *Table
	service Service
}

func newReporter(table *Table, service Service) reporter { return reporter{table, service} }

// Report implements server.Reporter.
func (r reporter) Report(status *v1.Status) {
	status.Endpoints = map[string]int{}
	for state, n := range r.table.countByState() {
		if n > 0 {
			status.Endpoints[string(state)] = n
		}
	}
	status.Restored = r.service.Restored().toV1()
}
