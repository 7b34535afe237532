package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

func TestOpenAPIDocument(t *testing.T) {
	r := newRig(t, "--ipam-mode=multi-pool", "--ipam-pod-cidr=", "--ipam-default-pool=10.64.0.0/16") // which has all calls
	status, body := rawRequest(t, r.node.Socket, http.MethodGet, "/v1/openapi.json", "")
	var document struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]map[string]any
	}
	if err := json.Unmarshal([]byte(body), &document); err != nil || status != http.StatusOK || !strings.HasPrefix(document.OpenAPI, "3.") {
		t.Fatalf("%d, %v: %.200s", status, err, body)
	}
	for path, methods := range document.Paths {
		for method := range methods {
			if method == "parameters" { // of all of them
				continue
			}
			method = strings.ToUpper(method)
			// No endpoint has the number 1, and a body that is empty is refused: nothing is done.
			status, body := rawRequest(t, r.node.Socket, method, strings.ReplaceAll(path, "{id}", "1"), "")
			if status == http.StatusMethodNotAllowed || strings.Contains(body, "no such call") {
				t.Errorf("%s %s is in the document, and the agent says %d: %s", method, path, status, body)
			}
		}
	}
	if len(document.Paths) < 6 {
		t.Errorf("the document has %d paths", len(document.Paths))
	}
}
