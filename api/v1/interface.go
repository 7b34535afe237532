package v1

// Interface is one end of a veth pair.
type Interface struct {
	Name  string `json:"name"`
	Index int    `json:"index,omitempty"` // in its own network namespace
	MAC   MAC    `json:"mac,omitzero"`
}
