package endpointmanager

import (
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/endpointmanager/admission"
)

func TestObserverConformance(t *testing.T) {
	for name, newObserver := range map[string]func(*testing.T) endpoint.Observer{
		"traces": func(*testing.T) endpoint.Observer { return newTraces() },
		"metrics": func(*testing.T) endpoint.Observer {
			return newInstruments(NewTable(), admission.NewQueues(1))
		},
	} {
		t.Run(name, func(t *testing.T) { endpointtest.TestObserver(t, newObserver) })
	}
}
