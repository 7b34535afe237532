package records_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/kubernetes"
	"porin.dev/porin/cells/kubernetes/kubernetestest"
)

// TestNoHotLoop: an API server that refuses each request in the same way is not asked without a pause.
func TestNoHotLoop(t *testing.T) {
	var requests atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		answer := func(code int, body any) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(body)
		}
		status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure}
		switch {
		case r.Method == http.MethodDelete: // as of a webhook
			status.Code, status.Reason, status.Message = http.StatusConflict, metav1.StatusReasonConflict, "no deletions today"
			answer(http.StatusConflict, status)
		case strings.HasSuffix(r.URL.Path, "porinblocks/10-0-1-0-26"):
			answer(http.StatusOK, map[string]any{
				"apiVersion": "porin.dev/v1alpha1", "kind": "PorinBlock", "metadata": map[string]any{"name": "10-0-1-0-26", "uid": "u", "resourceVersion": "7"},
				"spec": map[string]any{"cidr": "10.0.1.0/26", "pool": "default", "poolUID": "u", "owner": map[string]any{"name": "node1", "key": "aaaaaaaaaa"}, "claim": "c", "created": "2026-01-01T00:00:00Z"},
			})
		case strings.HasSuffix(r.URL.Path, "porinsessions/node1.aaaaaaaaaa"):
			answer(http.StatusOK, map[string]any{
				"apiVersion": "porin.dev/v1alpha1", "kind": "PorinSession", "metadata": map[string]any{"name": "node1.aaaaaaaaaa", "uid": "u", "resourceVersion": "7"},
				"spec": map[string]any{"node": map[string]any{"name": "node1", "key": "aaaaaaaaaa"}, "id": "s", "boot": "b", "contact": "2026-01-01T00:00:00Z"},
			})
		default: // of lists
			status.Code, status.Reason, status.Message, status.Continue = http.StatusGone, metav1.StatusReasonExpired, "expired", "again"
			answer(http.StatusGone, status)
		}
	}))
	t.Cleanup(web.Close)
	client, err := kubernetes.NewClient(kubernetes.Config{Mode: kubernetes.ModeAuto, Kubeconfig: kubernetestest.Kubeconfig(t, web.URL)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	b, err := kubernetes.NewBackend(client, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	id := cluster.NodeID{Name: "node1", Key: "aaaaaaaaaa"}
	for what, does := range map[string]func(context.Context) error{
		"delete a block": func(ctx context.Context) error {
			return b.Blocks.Delete(ctx, netip.MustParsePrefix("10.0.1.0/26"), "c")
		},
		"delete a session": func(ctx context.Context) error { return b.Sessions.Delete(ctx, id) },
		"list nodes": func(ctx context.Context) error {
			for _, err := range b.Nodes.All(ctx) {
				return err
			}
			return nil
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		requests.Store(0)
		err := does(ctx)
		cancel()
		if n := requests.Load(); err == nil || n > 20 {
			t.Errorf("%s: %v after %d requests in two seconds, want an error after a few", what, err, n)
		}
	}
}
