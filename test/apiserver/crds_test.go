package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	v1 "porin.dev/porin/api/v1"
	kinds "porin.dev/porin/cells/kubernetes/records"
	"porin.dev/porin/internal/testutil"
)

// TestDefinitionsMissing: an agent that starts without Porin's CRDs says so, and writes its records when they come.
func TestDefinitionsMissing(t *testing.T) {
	n := newMachine(t)
	for _, name := range kinds.Definitions() {
		n.admin.Delete(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+name)
	}
	n.startAgent("", "--store=kubernetes")
	found := func() string {
		var report v1.Doctor
		if err := n.agent.Get("/v1/doctor", &report); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(report)
	}
	testutil.Eventually(t, func() error {
		if report := found(); !strings.Contains(report, "custom-resource-definitions-missing") {
			return fmt.Errorf("the doctor says %s", report)
		}
		return nil
	})
	n.admin.ApplyFile(t, manifest)
	testutil.Eventually(t, func() error {
		var list struct{ Items []any }
		if err := n.admin.Do(t.Context(), http.MethodGet, group+"porinnetworks", nil, &list); err != nil || len(list.Items) != 1 {
			return fmt.Errorf("%d records of networks, %v", len(list.Items), err)
		}
		if report := found(); strings.Contains(report, "custom-resource-definitions-missing") {
			return fmt.Errorf("the doctor says %s", report)
		}
		return nil
	})
}
