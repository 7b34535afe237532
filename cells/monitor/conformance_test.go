package monitor_test

import (
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
)

// TestObserverConformance has a client connected that reads nothing.
func TestObserverConformance(t *testing.T) {
	endpointtest.TestObserver(t, func(t *testing.T) endpoint.Observer {
		m := newMonitor(t, 10)
		connect(t, m)
		return m
	})
}
