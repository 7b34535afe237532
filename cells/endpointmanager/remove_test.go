package endpointmanager

import (
	"net/http"
	"runtime"
	"strings"
	"testing"

	"porin.dev/porin/cells/endpoint"
)

// TestDeletePath names the three functions of a deletion: both calls of the API end in removeEndpoint, which waits, and reconcile
// tells EndpointDeleted.
func TestDeletePath(t *testing.T) {
	for _, row := range []struct{ path, body string }{
		{"/v1/endpoint", `{"containerID":"c1"}`},
		{"/v1/endpoint/c1:eth0", ""},
	} {
		teller, all := "", ""
		p := &probe{deleted: func(endpoint.Endpoint) {
			stack := make([]byte, 1<<20)
			teller = string(stack[:runtime.Stack(stack, false)])
			all = string(stack[:runtime.Stack(stack, true)])
		}}
		m := started(t, t.TempDir(), p)
		if _, err := m.Create(t.Context(), specOf("c1:eth0"), nil); err != nil {
			t.Fatal(err)
		}
		if code, body := call(t, m)(http.MethodDelete, row.path, row.body); code != http.StatusOK {
			t.Fatalf("DELETE %s: %d %s", row.path, code, body)
		}
		if !strings.Contains(teller, "(*managed).reconcile(") {
			t.Errorf("DELETE %s: EndpointDeleted is told by\n%s\nwant reconcile", row.path, teller)
		}
		if !strings.Contains(all, "(*manager).removeEndpoint(") {
			t.Errorf("DELETE %s: removeEndpoint does not wait meanwhile:\n%s", row.path, all)
		}
	}
}
