package endpointmanager

import (
	"time"

	"go.uber.org/fx"
)

// Subscriber hears of endpoints after the fact: without the manager's lock, one event at a time for one attachment, the
// end of a life before the beginning of the next, in no order relative to other subscribers. It is on the path of the
// caller's answer, so slow work goes to a loop of its own. It may read ([Lookup]) and must not write ([Manager]).
type Subscriber interface {
	EndpointCreated(Endpoint)
	EndpointDeleted(Endpoint, DeleteConfig)
	EndpointRestored(Endpoint)
}

// Subscribe contributes the [Subscriber] that newSubscriber builds: endpointmanager.Subscribe(newProber).
func Subscribe(newSubscriber any) fx.Option {
	return fx.Provide(fx.Annotate(newSubscriber, fx.As(new(Subscriber)), fx.ResultTags(`group:"endpoint.subscribers"`)))
}

// Observer is told of each finished operation, failed ones too, and what its phases took. The rules of [Subscriber]
// hold.
type Observer interface{ Observe(Trace) }

// Observe contributes the [Observer] that newObserver builds: endpointmanager.Observe(newHistograms).
func Observe(newObserver any) fx.Option {
	return fx.Provide(fx.Annotate(newObserver, fx.As(new(Observer)), fx.ResultTags(`group:"endpoint.observers"`)))
}

// Operation is what was done to an endpoint.
type Operation string

// The operations there are.
const (
	Add     Operation = "add"
	Del     Operation = "del"
	Restore Operation = "restore"
	Repair  Operation = "repair"
)

// Trace is one operation on one endpoint. The phases are, in order and as far as it came: "plugin" (from the
// caller's Began until the request was read), "queue", "admission", "ledger-intent", each step by its name,
// "ledger-commit", and "undo" after a failure. Err says which of them took the time.
type Trace struct {
	Operation Operation
	Endpoint  Endpoint // as it was at the end
	Began     time.Time
	Duration  time.Duration // without the phase "plugin"
	Phases    []Phase
	Err       error
}

// Phase is one part of an operation.
type Phase struct {
	Name     string
	Duration time.Duration
	Err      error
}
