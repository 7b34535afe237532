package monitor

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/monitor/stream"
	"porin.dev/porin/internal/httpx"
)

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
	m.ring.Serve(w, r, query, stream.Format[v1.Event]{Line: numbered}, m.stopping)
	return nil
}

func numbered(seq uint64, event *v1.Event) any {
	event.Seq = seq // of the reader's copy
	return event
}
