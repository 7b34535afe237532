package endpointmanager

import "slices"

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

// actor is who asks for a transition.
type actor string

const (
	outside actor = "outside" // the API and the restore
	builder actor = "builder" // the endpoint's own regeneration
)

// transitions says which next states each actor may choose. What is not here is refused. Disconnected and Invalid are
// terminal.
var transitions = map[actor]map[State][]State{
	outside: {
		"":            {Waiting, Restoring, Disconnecting},
		Waiting:       {Queued, Disconnecting, Invalid},
		Queued:        {Disconnecting},
		Regenerating:  {Disconnecting},
		Ready:         {Waiting, Queued, Disconnecting},
		Restoring:     {Disconnecting},
		Disconnecting: {Disconnected},
	},
	builder: {
		Queued:       {Regenerating},
		Restoring:    {Regenerating},
		Regenerating: {Queued, Ready, Restoring},
	},
}

func mayBecome(who actor, from, to State) bool { return slices.Contains(transitions[who][from], to) }
