package v1

import "time"

// Event is one line of the stream of GET /v1/events.
type Event struct {
	Seq      uint64    `json:"seq"` // grows by one; a gap means that this client was too slow
	Time     time.Time `json:"time"`
	Type     string    `json:"type"`
	Endpoint *Endpoint `json:"endpoint,omitempty"`
	// Operation is "add", "del" or "restore" for an event that ended one.
	Operation string  `json:"operation,omitempty"`
	Phases    []Phase `json:"phases,omitempty"`
	Message   string  `json:"message,omitempty"`
	Error     string  `json:"error,omitempty"`
}

// The types of events.
const (
	EventAgentReady       = "agent-ready"
	EventAgentStopping    = "agent-stopping"
	EventEndpointCreated  = "endpoint-created"
	EventEndpointDeleted  = "endpoint-deleted"
	EventEndpointRestored = "endpoint-restored"
	EventEndpointFailed   = "endpoint-failed"
)

// Phase is one part of an operation.
type Phase struct {
	Name     string        `json:"name"`
	Duration time.Duration `json:"duration"` // nanoseconds
	Error    string        `json:"error,omitempty"`
}
