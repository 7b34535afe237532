package endpointmanager

import (
	"net/http"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/endpoint"
)

// TestDeletePath names the three functions of a deletion: both calls of the API end in removeEndpoint, which waits, and
// reconcile tells EndpointDeleted.
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

// TestSweepKept: the DEL of an unknown attachment fails. A later deletion by the API, without Sweep, still detaches by
// all names.
func TestSweepKept(t *testing.T) {
	p := &probe{detach: func() error { return unix.EBUSY }}
	m := started(t, t.TempDir(), p)
	a := specOf("c1:eth0").Attachment
	m.Delete(t.Context(), a, endpoint.DeleteConfig{Sweep: true})
	m.Delete(t.Context(), a, endpoint.DeleteConfig{})
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.configs) < 2 {
		t.Fatalf("%d times detached", len(p.configs))
	}
	for i, config := range p.configs {
		if !config.Sweep {
			t.Errorf("Detach %d is without Sweep", i+1)
		}
	}
}

// TestSkippedRemoval: a removal that began before the endpoint's latest ADD changes nothing of the endpoint.
func TestSkippedRemoval(t *testing.T) {
	m := started(t, t.TempDir(), &probe{})
	spec := specOf("c1:eth0")
	spec.Began = 1
	if _, err := m.Create(t.Context(), spec, nil); err != nil {
		t.Fatal(err)
	}
	m.registry.rememberDeletionRecord(spec.Attachment, 5)
	var e *managed
	m.registry.withLock(func() { e = m.registry.byAttachment[spec.Attachment] })
	e.ask(t.Context(), message{verb: verbRenew, spec: endpoint.Spec{Attachment: spec.Attachment, Began: 10}})
	newer := specOf("c2:eth0")
	newer.Began = 5
	if err := m.makeRoom(t.Context(), newer, []*managed{e}); err != nil {
		t.Fatal(err)
	}
	m.registry.withLock(func() {
		if e.superseded || e.named {
			t.Errorf("superseded %t, named by a deletion record %t", e.superseded, e.named)
		}
	})
}
