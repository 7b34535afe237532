package connectivity

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// deadKubelet is an API server with the namespace of a test. One of its pods is bound to a node whose kubelet does not
// say that it has ended, so it stays, and its namespace with it.
type deadKubelet struct {
	API
	namespace corev1.Namespace
	podGone   bool
}

func (d *deadKubelet) Request(_ context.Context, method, path string, body, into any) error {
	now := metav1.Now()
	switch {
	case path == "/api/v1/namespaces/"+Namespace+"/pods" && method == "DELETE":
		grace := body.(*metav1.DeleteOptions).GracePeriodSeconds
		d.podGone = grace != nil && *grace == 0
	case method == "DELETE":
		d.namespace.DeletionTimestamp = &now
	case d.podGone:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, Namespace)
	default:
		*into.(*corev1.Namespace) = d.namespace
	}
	return nil
}

// TestCleanupDeadKubelet: nothing stays of a test, so that another one can run.
func TestCleanupDeadKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, began := &deadKubelet{namespace: *namespace("test")}, time.Now()
		if err := Cleanup(t.Context(), server); err != nil || !server.podGone {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
