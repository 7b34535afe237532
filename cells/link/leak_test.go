package link_test

import (
	"context"
	"os"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/testutil"
)

// Whether a call succeeds or fails, it leaves no thread in the container's namespace and no descriptor.
func TestLeaks(t *testing.T) {
	n, c, disabled := newNode(t), newContainer(t), newContainer(t)
	life := func() {
		ep := n.attach(t, c, endpointOf("eth0", 1))
		second := n.attach(t, c, endpointOf("net1", 2))
		_, inspectErr := n.step.Inspect(t.Context(), ep, c.netns)
		must(t, inspectErr)
		_, takenErr := n.step.Attach(t.Context(), endpoint.Endpoint{Spec: endpoint.Spec{
			Attachment: endpoint.Attachment{ContainerID: "c2", IfName: "eth0"},
		}}, c.netns)
		if takenErr == nil {
			t.Error("attached in the place of a foreign interface")
		}
		n.detach(t, second)
		n.detach(t, ep)
		must(t, disabled.Do(func() error {
			return os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
		}))
		n.detach(t, n.attach(t, disabled, endpointOf("eth0", 1)))
		must(t, n.step.Stop(context.Background()))
		must(t, n.Do(func() error { return n.step.Start(context.Background()) }))
	}
	life() // opens what the runtime and the library keep
	files := testutil.OpenFiles(t)
	for range 10 {
		life()
	}
	testutil.NoThreadsAway(t)
	if left := testutil.OpenFiles(t); left != files {
		t.Errorf("%d files are open, %d before", left, files)
	}
}
