package endpointmanager

import (
	"net/http"
	"strings"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/httpx"
)

func (s routes) traces(w http.ResponseWriter, r *http.Request) error {
	wanted, err := traceFilter(r.URL.Query().Get("ref"))
	if err != nil {
		return err
	}
	list := []v1.Trace{}
	for _, trace := range s.Traces.latest(wanted) {
		list = append(list, trace.toV1())
	}
	return httpx.JSON(w, http.StatusOK, list)
}

// traceFilter reads a reference to endpoints that may be gone: what [ParseRef] reads, or a pod as namespace/name, or a
// container's ID or its beginning.
func traceFilter(text string) (func(Endpoint) bool, error) {
	if text == "" {
		return func(Endpoint) bool { return true }, nil
	}
	if ref, err := ParseRef(text); err == nil {
		return func(ep Endpoint) bool { return ref.fits(ep) }, nil
	}
	if namespace, name, ok := strings.Cut(text, "/"); ok {
		return func(ep Endpoint) bool { return ep.Spec.Pod.Namespace == namespace && ep.Spec.Pod.Name == name }, nil
	}
	if err := ValidateContainerID(text); err != nil {
		return nil, badRef(text, "want a container ID, a pod as NAMESPACE/NAME, or a reference to an endpoint")
	}
	return func(ep Endpoint) bool { return strings.HasPrefix(ep.Spec.Attachment.ContainerID, text) }, nil
}
