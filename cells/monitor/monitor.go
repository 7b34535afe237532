package monitor

import (
	"context"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/monitor/stream"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
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

func eventOf(trace endpoint.Trace) v1.Event {
	event := v1.Event{
		Type: v1.EventEndpointRestored, Endpoint: new(endpointmanager.ToV1(trace.Endpoint)), Operation: string(trace.Operation),
		Phases: make([]v1.Phase, len(trace.Phases)), Error: fault.Text(trace.Err),
	}
	switch {
	case trace.Err != nil:
		event.Type = v1.EventEndpointFailed
	case trace.Operation == endpoint.OperationAdd:
		event.Type = v1.EventEndpointCreated
	case trace.Operation == endpoint.OperationDel:
		event.Type = v1.EventEndpointDeleted
	}
	for i, p := range trace.Phases {
		event.Phases[i] = v1.Phase{Name: p.Name, Duration: p.Duration, Error: fault.Text(p.Err)}
	}
	return event
}

// Mount is server.Routes.
func (m *Monitor) Mount(r chi.Router) {
	r.Method(http.MethodGet, "/v1/events", httpx.Handler(m.stream))
}

// stream answers with one event a line.
func (m *Monitor) stream(w http.ResponseWriter, r *http.Request) error {
	query, err := stream.ParseQuery(r.URL.Query(), "an event")
	if err != nil {
		return err
	}
	line := func(seq uint64, event *v1.Event) any {
		event.Seq = seq // of the reader's copy
		return event
	}
	m.ring.Serve(w, r, query, stream.Format[v1.Event]{Line: line}, m.stopping)
	return nil
}
