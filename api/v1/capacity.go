package v1

// Resource is something that an ADD needs and that can run out.
type Resource struct {
	Name     string `json:"name"` // "addresses/default/ipv4"
	Used     int64  `json:"used"`
	Capacity int64  `json:"capacity"` // 0: it is there or not, and is not counted
	// Quarantined are addresses that were released a short while ago: not in use, and not there for the next ADD.
	Quarantined int64 `json:"quarantined,omitempty"`
	// Available is false when the next ADD would fail, or too little is left; Reason says why. The CNI verb STATUS fails
	// only for a resource that does not come back by waiting, such as a ledger that cannot be written.
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"`
}
