package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// requests measures what is asked of the API.
type requests struct{ *prometheus.HistogramVec }

func newRequests() *requests {
	return &requests{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "porin_api_request_duration_seconds",
		Help:    "How long requests of the API took, by method, route and HTTP status.",
		Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 10, 60},
	}, []string{"method", "route", "status"})}
}

// measure counts a request that no route takes under method and route "other": a caller must not choose how many time
// series there are.
func (q *requests) measure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		defer func() {
			method, route := r.Method, routeOf(r)
			if route == "" {
				method, route = "other", "other"
			}
			status := strconv.Itoa(w.(*recorder).answered())
			q.WithLabelValues(method, route, status).Observe(time.Since(began).Seconds())
		}()
		next.ServeHTTP(w, r)
	})
}
