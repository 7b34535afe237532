package v1

// GCRequest is the body of POST /v1/gc, the CNI verb GC: delete what is not valid.
type GCRequest struct {
	// Network is the name of the CNI network configuration. Attachments of others are not touched.
	Network string `json:"network"`
	// Valid are the attachments that are to stay, as containerID:ifname.
	Valid []string `json:"valid"`
	// Began is as in [EndpointRequest]. An attachment that began later is not touched.
	Began int64 `json:"began,omitempty"`
	// DryRun only lists what would be deleted.
	DryRun bool `json:"dryRun,omitempty"`
}

// GCResult answers a GCRequest.
type GCResult struct {
	Stale   []string `json:"stale"`   // attachments that are not valid, as containerID:ifname
	Deleted int      `json:"deleted"` // of these
	Errors  int      `json:"errors"`  // parts of them that could not be taken down yet
	Details []string `json:"details,omitempty"`
	// Withheld says why nothing was deleted: too many of the live attachments are not valid for one call. A second call
	// in a row deletes what both hold for stale.
	Withheld string `json:"withheld,omitempty"`
}
