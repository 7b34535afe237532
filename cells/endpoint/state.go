package endpoint

// State is where an endpoint is in its life.
type State string

// The states, in the order of a life.
const (
	Waiting       State = "waiting-for-identity"
	Queued        State = "waiting-to-regenerate"
	Regenerating  State = "regenerating"
	Ready         State = "ready"
	Restoring     State = "restoring"
	Disconnecting State = "disconnecting"
	Disconnected  State = "disconnected"
	Invalid       State = "invalid"
)
