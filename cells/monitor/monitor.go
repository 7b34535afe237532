package monitor

import (
	"context"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/monitor/stream"
)

// Publisher takes events from other cells.
type Publisher interface {
	// Publish adds the event to the stream and never blocks. Seq is set here, and Time when it is zero. The caller
	// must not change what the event points to afterwards.
	Publish(event v1.Event)
}

// Monitor is the cell itself: a [Publisher] that observes endpoints, watches the server, and streams to clients.
type Monitor struct {
	ring     *stream.Ring[v1.Event]
	stopping context.Context // ends when the agent begins to stop
	stop     context.CancelFunc
}

var (
	_ Publisher         = (*Monitor)(nil)
	_ endpoint.Observer = (*Monitor)(nil)
)

// New builds a monitor that has seen nothing yet.
func New(cfg Config) (*Monitor, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Monitor{ring: stream.NewRing[v1.Event](cfg.Events)}
	m.stopping, m.stop = context.WithCancel(context.Background())
	return m, nil
}

// Publish is [Publisher].
func (m *Monitor) Publish(event v1.Event) {
	if event.Time.IsZero() {
		event.Time = time.Now()
	}
	m.ring.Add(event)
}

// Observe is endpoint.Observer.
func (m *Monitor) Observe(trace endpoint.Trace) { m.Publish(eventOf(trace)) }

// Serving is server.Watcher.
func (m *Monitor) Serving() { m.Publish(v1.Event{Type: v1.EventAgentReady}) }

// Stopping is server.Watcher. Its event is the last that streams carry; they end.
func (m *Monitor) Stopping() {
	m.Publish(v1.Event{Type: v1.EventAgentStopping})
	m.ring.Close()
	m.stop()
}
