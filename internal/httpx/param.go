package httpx

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"

	"porin.dev/porin/internal/fault"
)

// Param is the value of a parameter in the route's pattern. chi matches the path as it was sent when it holds an
// escape that matters, as "%2F" in "pod-name:default%2Fweb", and then the value is still escaped: so handlers ask
// here, not there.
func Param(r *http.Request, name string) (string, error) {
	value := chi.URLParam(r, name)
	if r.URL.RawPath == "" {
		return value, nil
	}
	plain, err := url.PathUnescape(value)
	if err != nil {
		return "", fault.Wrap(fault.Invalid, fmt.Errorf("read %s in the path: %w", name, err))
	}
	return plain, nil
}
