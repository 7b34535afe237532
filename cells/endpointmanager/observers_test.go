package endpointmanager

import (
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
)

func TestObserverConformance(t *testing.T) {
	for name, newObserver := range map[string]func(*testing.T) endpoint.Observer{
		"traces": func(*testing.T) endpoint.Observer { return newTraces() },
		"metrics": func(*testing.T) endpoint.Observer {
			waits := newWaits()
			return newInstruments(NewTable(), newQueues(DefaultConfig(), waits), waits)
		},
	} {
		t.Run(name, func(t *testing.T) { endpointtest.TestObserver(t, newObserver) })
	}
}
