package monitor

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/go-chi/chi/v5"

	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// Mount is server.Routes.
func (m *Monitor) Mount(r chi.Router) {
	r.Method(http.MethodGet, "/v1/events", httpx.Handler(m.stream))
}

// stream answers with one event a line: what the ring holds and, if asked, what comes. What ends it early is that the
// client has left, so there is nobody to tell.
func (m *Monitor) stream(w http.ResponseWriter, r *http.Request) error {
	since, follow, err := parseQuery(r.URL.Query())
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	out, events := newLines(w), m.ring.newReader(since)
	if !follow {
		last := m.ring.newest()
		for out.write(events.upTo(last)) {
		}
		return nil
	}
	defer out.unhurried(m.stopping)()
	for out.flush() && out.write(events.next(r.Context())) {
	}
	return nil
}

func parseQuery(query url.Values) (since uint64, follow bool, err error) {
	if text := query.Get("since"); text != "" {
		if since, err = strconv.ParseUint(text, 10, 64); err != nil {
			return 0, false, fault.New(fault.Invalid, fmt.Sprintf("since=%.32q: want the seq of an event", text))
		}
	}
	if text := query.Get("follow"); text != "" {
		if follow, err = strconv.ParseBool(text); err != nil {
			return 0, false, fault.New(fault.Invalid, fmt.Sprintf("follow=%.32q: want true or false", text))
		}
	}
	return since, follow, nil
}
