package kubernetes

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/kubernetes/watch"
)

// TestFindings: an API server that is away is one finding, and so is a right that the agent lacks.
func TestFindings(t *testing.T) {
	refused := errors.New("connect: connection refused")
	away := func(kind string) error {
		return fmt.Errorf("watch %s: %w", kind, &url.Error{Op: "Get", URL: "https://api/" + kind, Err: &net.OpError{Op: "read", Net: kind, Err: refused}})
	}
	forbidden := fmt.Errorf("list events: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no right")))
	got := findingsOf("https://api", []watch.State{{Kind: "pods", Err: away("pods")}, {Kind: "nodes"}, {Kind: "namespaces", Err: away("namespaces")}, {Kind: "events", Err: forbidden}})
	want := [][2]string{{"https://api", refused.Error()}, {"events", remedy(errors.Unwrap(forbidden))}}
	if !slices.EqualFunc(got, want, func(f doctor.Finding, w [2]string) bool { return [2]string{f.Subject, f.Detail} == w }) {
		t.Errorf("findings %+v, want %v", got, want)
	}
}
