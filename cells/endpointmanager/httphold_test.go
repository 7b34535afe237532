package endpointmanager

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
)

// TestHeldUnnamedShown: of a link whose container is not known, answers, findings and the log have what is known,
// and no made up name.
func TestHeldUnnamedShown(t *testing.T) {
	links := append(hostEnds(1), endpoint.Endpoint{
		ID: 48, Spec: endpoint.Spec{Attachment: endpoint.Unnamed("link/48")}, Host: endpoint.Interface{Index: 48}, Container: endpoint.Interface{Name: "/unknown"},
	})
	for i := range 4 {
		links = append(links, hostEnds(6)[i+2])
	}
	var log strings.Builder
	m := unstarted(t.TempDir(), &probe{})
	m.steps = endpoint.Steps{&finding{probe: &probe{}, links: links}}
	m.log = slog.New(slog.NewTextHandler(&log, nil))
	start(t, m)
	router := chi.NewRouter()
	routes{Manager: m, Holder: m, Lookup: m.table, Traces: newTraces()}.Mount(router)
	w := httptest.NewRecorder()
	router.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/endpoint/48", nil))
	const want = `{"id":48,"containerID":"","ifname":"","state":"held","host":{"name":"","index":48},"container":{"name":""},"addresses":{},"gateways":{}}`
	if got := strings.TrimSpace(w.Body.String()); got != want {
		t.Errorf("the endpoint is shown as %s, want %s", got, want)
	}
	findings, err := newChecker(m).Examine(t.Context(), "")
	if err != nil || !slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Subject == "link/48" && f.Endpoint == "" }) {
		t.Errorf("the doctor finds %+v, %v", findings, err)
	}
	var status v1.Status
	newReporter(m.table, m, m).Report(&status)
	if held := status.Held.Endpoints; held[len(held)-2].Endpoint != "link/48" {
		t.Errorf("held are %+v", held)
	}
	if strings.Contains(log.String(), "unknown") || !strings.Contains(log.String(), "link=link/48") {
		t.Errorf("the log is\n%s", log.String())
	}
}

// TestRestoreAndAcceptLogged: the log says what a start made of the ledger, and what was accepted as gone.
func TestRestoreAndAcceptLogged(t *testing.T) {
	dir := t.TempDir()
	leaveOne(t, dir)
	var log strings.Builder
	m := unstarted(dir, &probe{})
	m.steps = endpoint.Steps{&finding{probe: &probe{}, links: hostEnds(7)[1:]}}
	m.log = slog.New(slog.NewTextHandler(&log, nil))
	start(t, m)
	if result := m.Accept(t.Context(), endpoint.Attachment{ContainerID: "c2", IfName: "eth0"}); len(result.Errors) > 0 {
		t.Fatal(result.Errors)
	}
	if result := m.Accept(t.Context(), endpoint.Attachment{}); len(result.Errors) > 0 {
		t.Fatal(result.Errors)
	}
	for _, want := range []string{
		`msg="endpoints restored" adopted=1 replaced=0 undone=0 held=6 removed=0 duration=`,
		`msg="held attachments are accepted as gone" asked=c2:eth0 held=1 removed=1 failed=0 left=5`,
		`msg="held attachments are accepted as gone" asked=all held=5 removed=5 failed=0 left=0`,
	} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("want one line with %s in\n%s", want, log.String())
		}
	}
}

// TestAcceptByShortName accepts held attachments by what porin status prints of them.
func TestAcceptByShortName(t *testing.T) {
	unnamed := hostEnds(1)
	links := unnamed
	for i, id := range []string{"238e954f92c2aa", "238e954f92c2bb", "238e954f92c3", "c1", "c10", "c11"} {
		a := endpoint.Attachment{ContainerID: id, IfName: "eth0"}
		links = append(links, endpoint.Endpoint{ID: uint16(i + 2), Spec: endpoint.Spec{Attachment: a}, Host: endpoint.Interface{Name: a.HostEnd(), Index: i + 20}})
	}
	links = append(links, endpoint.Endpoint{ID: 48, Spec: endpoint.Spec{Attachment: endpoint.Unnamed("link/48")}, Host: endpoint.Interface{Index: 48}})
	m := withSteps(t, t.TempDir(), &finding{probe: &probe{}, links: links})
	router := chi.NewRouter()
	routes{Manager: m, Holder: m, Lookup: m.table, Traces: newTraces()}.Mount(router)
	accept := func(name string) (code int, body string) {
		text, _ := json.Marshal(v1.AcceptRequest{Endpoint: name})
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/restore/accept", strings.NewReader(string(text))))
		return w.Code, w.Body.String()
	}
	for _, c := range []struct {
		name   string
		status int
		text   string
		left   int
	}{
		{"link/48", http.StatusOK, `"deleted":1`, 7},
		{"238e954f92c2:eth0", http.StatusConflict, "it fits 2 of what the agent holds, such as 238e954f92c2aa:eth0, 238e954f92c2bb:eth0", 7},
		{"238e", http.StatusConflict, "it fits 3 of what the agent holds", 7},
		{"238e954f92c3:eth1", http.StatusNotFound, "holds no such attachment", 7},
		{":eth0", http.StatusBadRequest, "", 7},
		{"238e954f92c2a:eth0", http.StatusOK, `"deleted":1`, 6},
		{"238e954f92c2:eth0", http.StatusOK, `"deleted":1`, 5},
		{"238e954f92c3", http.StatusOK, `"deleted":1`, 4},
		{"c1", http.StatusConflict, "it fits 3 of what the agent holds, such as c10:eth0, c11:eth0, c1:eth0", 4},
		{"c1:eth0", http.StatusOK, `"deleted":1`, 3},
		{unnamed[0].Host.Name[:12], http.StatusOK, `"deleted":1`, 2},
		{"d", http.StatusNotFound, "holds no such attachment", 2},
	} {
		code, body := accept(c.name)
		if code != c.status || !strings.Contains(body, c.text) || len(m.Held()) != c.left {
			t.Errorf("accept %s: %d %s, %d held, want %d with %q and %d held", c.name, code, body, len(m.Held()), c.status, c.text, c.left)
		}
	}
}
