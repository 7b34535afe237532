package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/testutil"
)

// TestManyReferences: one policy can name thousands of Services. The agent does not keep as many watches open.
func TestManyReferences(t *testing.T) {
	var open, most atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprint(w, `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`)
			return
		}
		n := open.Add(1)
		defer open.Add(-1)
		for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(web.Close)
	client, err := NewClient(Config{Kubeconfig: kubernetestest.Kubeconfig(t, web.URL)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	got := &referenceSink{changed: make(chan struct{}), resolved: map[model.Reference]model.Resolution{}}
	var references []model.Reference
	for i := range 1000 {
		references = append(references, model.Reference{Kind: model.Service, Namespace: "shop", Name: fmt.Sprintf("s%d", i)})
	}
	got.want(references...)
	r := newReferenceWatch(Config{}, client, got, &policyWatch{}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.run(ctx) }()
	defer func() { cancel(); <-ended }()
	testutil.Eventually(t, func() error {
		if n := open.Load(); n < maxFollowed {
			return fmt.Errorf("%d watches, want %d", n, maxFollowed)
		}
		return nil
	})
	time.Sleep(500 * time.Millisecond) // without a limit more watches open in this time
	if n := most.Load(); n > maxFollowed {
		t.Errorf("%d watches at once, want at most %d", n, maxFollowed)
	}
}
