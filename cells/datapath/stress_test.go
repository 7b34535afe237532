package datapath_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/internal/testutil"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func endpoints(pods ...*pod) (list []endpoint.Endpoint) {
	for _, p := range pods {
		list = append(list, p.endpoint)
	}
	return list
}

func TestAttachDetachConcurrently(t *testing.T) {
	n := newNode(t)
	const workers, rounds = 16, 4
	containers := make([]*endpoint.Namespace, workers)
	for i := range containers {
		containers[i] = endpointmanagertest.OpenNamespace(t, testutil.NetNS(t).Path())
	}
	var group sync.WaitGroup
	for i, container := range containers {
		group.Go(func() {
			for round := range rounds {
				ep := endpointOf(t, 1+i+round*workers)
				if err := n.comeAndGo(container, ep); err != nil {
					t.Errorf("%s: %v", ep.Spec.Attachment, err)
				}
			}
		})
	}
	group.Wait()
	w := &realKernel{node: n}
	wantState(t, w, attached(0))
}

// comeAndGo attaches and detaches an endpoint.
func (n *node) comeAndGo(container *endpoint.Namespace, ep endpoint.Endpoint) error {
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
	defer cancel()
	ep, err := n.links.Attach(ctx, ep, container)
	if err == nil {
		_, err = n.step.Attach(ctx, ep, container)
	}
	return errors.Join(err, n.detachOne(ctx, ep))
}

func TestFileDescriptors(t *testing.T) {
	testutil.Root(t)
	life := func(t *testing.T) {
		n := newNode(t)
		a := n.newPod(t, 1)
		n.attach(t, a)
		n.detach(t, a)
		n.stop(t)
		n.start(t) // adopts
		n.stop(t)
		n.cfg.MaxEndpoints++
		n.start(t) // resizes
		n.stop(t)
		plantOldLayout(t, n)
		if err := n.tryStart(t, func(*datapath.Datapath) {}); err == nil {
			t.Error("maps of another layout were accepted")
		}
	}
	t.Run("first", life) // the runtime and the libraries open these once
	before := testutil.OpenFiles(t)
	t.Run("second", life)
	if after := testutil.OpenFiles(t); after > before {
		t.Errorf("%d file descriptors are open, %d were", after, before)
	}
}
