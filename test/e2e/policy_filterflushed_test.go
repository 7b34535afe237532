package e2e

import (
	"fmt"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// TestFilterRestoredAfterFlush: the table for egress policies comes back by itself after a flush of the ruleset.
func TestFilterRestoredAfterFlush(t *testing.T) {
	r := newRig(t, "--doctor-interval=0")
	r.named("demo", "web")
	manifest := "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: test, namespace: demo}\nspec: {podSelector: {}, policyTypes: [Egress]}\n"
	if _, err := r.api.PutPolicies(t.Context(), []byte(manifest)); err != nil {
		t.Fatal(err)
	}
	restored := func() error {
		if text := onNode(t, r.node, "", "nft", "list", "ruleset"); !strings.Contains(text, "denied by an egress policy") {
			return fmt.Errorf("the ruleset is %q", text)
		}
		return nil
	}
	if err := restored(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		onNode(t, r.node, "flush ruleset\n", "nft", "-f", "-")
		testutil.Eventually(t, restored)
	}
}
