package kubernetes

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// counted counts the requests that go through a transport.
type counted struct {
	requests *prometheus.CounterVec
	next     http.RoundTripper
}

func newRequests() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "porin_kubernetes_requests_total", Help: "Requests to the Kubernetes API server, by verb, kind and the answer's code (\"none\" without an answer).",
	}, []string{"verb", "kind", "code"})
}

// RoundTrip implements http.RoundTripper.
func (c counted) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	code := "none"
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
	}
	verb, kind := verbAndKind(request)
	c.requests.WithLabelValues(verb, kind, code).Inc()
	return response, err
}

// verbAndKind are the API's names of what a request does, and of the resource that it is about: "watch" and "pods".
func verbAndKind(request *http.Request) (verb, kind string) {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	switch { // /api/VERSION or /apis/GROUP/VERSION
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return strings.ToLower(request.Method), "other"
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	named := len(parts) > 1
	switch {
	case request.Method == http.MethodGet && request.URL.Query().Get("watch") == "true":
		verb = "watch"
	case request.Method == http.MethodGet && !named:
		verb = "list"
	case request.Method == http.MethodPost:
		verb = "create"
	case request.Method == http.MethodPut:
		verb = "update"
	default:
		verb = strings.ToLower(request.Method)
	}
	return verb, parts[0]
}
