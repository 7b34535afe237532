package endpoint

// State is where an endpoint is in its life.
type State string

// The states, in the order of a life. An endpoint passes through Waiting and Queued at once.
const (
	Waiting       State = "waiting-for-identity"
	Queued        State = "waiting-to-regenerate"
	Regenerating  State = "regenerating"
	Ready         State = "ready"
	Restoring     State = "restoring"
	Held          State = "held" // a start left it as it was: neither restored nor removed
	Disconnecting State = "disconnecting"
	Disconnected  State = "disconnected"
	Invalid       State = "invalid"
)
