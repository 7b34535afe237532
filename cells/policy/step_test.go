package policy

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
)

func TestStepConformance(t *testing.T) {
	endpointtest.TestStep(t, func(t *testing.T) endpointtest.Subject {
		n := servingNode(t, "")
		return endpointtest.Subject{
			Step: n.step,
			Has: func(_ testing.TB, ep endpoint.Endpoint) bool {
				return n.kernel.id(ep.Spec.Attachment.String()) != 0
			},
			Prepare: func(_ testing.TB, ep endpoint.Endpoint) (endpoint.Endpoint, *endpoint.Namespace) {
				ep.Addresses.IPv4 = netip.AddrFrom4([4]byte{10, 0, byte(ep.ID >> 8), byte(ep.ID)})
				return ep, nil
			},
		}
	})
}

func TestAttachEnforcesPolicyFirst(t *testing.T) {
	n := servingNode(t, "")
	n.put(t, toWebFrom("client"))
	web, client, other := pod(1, "web"), pod(2, "client"), pod(3, "")
	for _, ep := range []endpoint.Endpoint{web, client, other} {
		n.attach(t, ep)
	}
	n.wants(t, client, web, true, "after Attach")
	n.wants(t, other, web, false, "after Attach")
	n.wants(t, web, other, true, "after Attach")
	if id := n.kernel.id("c1:eth0"); id != 1 {
		t.Errorf("the kernel has ID %d for endpoint 1", id)
	}
	if err := n.step.Detach(t.Context(), client, endpoint.DeleteConfig{}); err != nil {
		t.Fatal(err)
	}
	next := pod(4, "")
	next.Addresses = client.Addresses
	n.attach(t, next)
	n.wants(t, next, web, false, "with the address of a client that is gone")
}

func TestUpdateOfLabels(t *testing.T) {
	n := servingNode(t, "")
	n.put(t, toWebFrom("client"))
	web, other := pod(1, "web"), pod(2, "other")
	n.attach(t, web)
	n.attach(t, other)
	n.wants(t, other, web, false, "before")
	client := pod(2, "client")
	if err := n.step.Update(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	n.wants(t, client, web, true, "after Update")

	n.kernel.refuseWith(errKernel)
	if err := n.step.Update(t.Context(), other); !errors.Is(err, errKernel) || fault.KindOf(err) != fault.Unavailable {
		t.Errorf("error %v, want %v as unavailable", err, errKernel)
	}
	n.wants(t, client, web, true, "after an Update that failed")
}

// TestPruneWritesOnce: until everything is restored the kernel keeps what it has, and then it gets all at once.
func TestPruneWritesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods = 250
		n := startNode(t, "", newFakeKernel())
		var live []endpoint.Endpoint
		for i := range pods {
			ep := pod(i+1, []string{"web", "client", ""}[i%3])
			live = append(live, ep)
			if i == 7 {
				if err := n.step.Occupy(ep); err != nil { // a start holds it
					t.Fatal(err)
				}
				continue
			}
			if replaced, err := n.step.Restore(t.Context(), ep); err != nil || len(replaced) > 0 {
				t.Fatalf("restore replaced %q, %v", replaced, err)
			}
		}
		gone := pod(pods+1, "web") // restored, and taken down before the end
		if _, err := n.step.Restore(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		if err := n.step.Detach(t.Context(), gone, endpoint.DeleteConfig{}); err != nil {
			t.Fatal(err)
		}
		created := pod(pods+2, "web")
		attached := make(chan error, 1)
		go func() {
			_, err := n.step.Attach(t.Context(), created, nil)
			attached <- err
		}()
		synctest.Wait()
		if n.kernel.times() != 0 || len(attached) != 0 {
			t.Errorf("%d changes were written and %d endpoints created before all are restored", n.kernel.times(), len(attached))
		}
		if _, _, err := n.policies.Put(t.Context(), []byte(toWebFrom("client"))); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("put before all are restored: %v, want unavailable", err)
		}
		n.prune(t, append(live, created)...)
		if err := <-attached; err != nil {
			t.Errorf("attach during the restore: %v", err)
		}
		if times := n.kernel.times(); times > 2 {
			t.Errorf("%d changes were written, want one for what is restored and one at the most for what is created", times)
		}
		for _, ep := range append(live, created) {
			if id := n.kernel.id(ep.Spec.Attachment.String()); id != ep.ID {
				t.Errorf("the kernel has ID %d for endpoint %d", id, ep.ID)
			}
		}
		if n.kernel.id(gone.Spec.Attachment.String()) != 0 {
			t.Error("the kernel has an endpoint that is gone")
		}
		n.put(t, toWebFrom("client"))
		n.wants(t, live[1], live[0], true, "after the restore")
		n.wants(t, live[2], live[0], false, "after the restore")
		n.wants(t, live[2], created, false, "after the restore")
	})
}

// TestPruneFails: the agent serves, with the previous agent's entries in force, and lets no new pod in until the kernel
// takes it.
func TestPruneFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, "", newFakeKernel())
		n.kernel.refuseWith(errKernel)
		web := pod(1, "web")
		if _, err := n.step.Restore(t.Context(), web); err != nil {
			t.Fatal(err)
		}
		if _, err := n.step.Prune(t.Context(), []endpoint.Endpoint{web}); !errors.Is(err, errKernel) {
			t.Errorf("prune: %v, want %v", err, errKernel)
		}
		if _, err := n.step.Attach(t.Context(), pod(2, ""), nil); !errors.Is(err, errKernel) {
			t.Errorf("attach: %v, want %v", err, errKernel)
		}
		if err := n.step.Detach(t.Context(), pod(2, ""), endpoint.DeleteConfig{}); !errors.Is(err, errKernel) {
			t.Errorf("detach: %v, want %v", err, errKernel)
		}
		n.kernel.refuseWith(nil)
		synctest.Wait()
		<-after(lastRetry)
		if n.kernel.id("c1:eth0") != 1 || n.kernel.id("c2:eth0") != 0 {
			t.Errorf("the kernel has %d and %d, want endpoint 1 alone", n.kernel.id("c1:eth0"), n.kernel.id("c2:eth0"))
		}
	})
}

// TestAttachFails: what cannot be written of an endpoint is taken back by its Detach, and others go on.
func TestAttachFails(t *testing.T) {
	n := servingNode(t, "")
	n.put(t, toWebFrom("client"))
	n.kernel.mu.Lock()
	n.kernel.refuse = func(locals map[string]Local) error {
		if _, ok := locals["c100:eth0"]; ok {
			return fault.Wrap(fault.Exhausted, errKernel)
		}
		return nil
	}
	n.kernel.mu.Unlock()
	bad := pod(100, "web")
	if _, err := n.step.Attach(t.Context(), bad, nil); !errors.Is(err, errKernel) || fault.KindOf(err) != fault.Exhausted {
		t.Errorf("attach: %v, want %v as exhausted", err, errKernel)
	}
	if err := n.step.Detach(t.Context(), bad, endpoint.DeleteConfig{}); err != nil {
		t.Errorf("detach: %v", err)
	}
	var wg sync.WaitGroup
	for i := range 99 {
		wg.Go(func() {
			if _, err := n.step.Attach(t.Context(), pod(i+1, "web"), nil); err != nil {
				t.Errorf("endpoint %d: %v", i+1, err)
			}
		})
	}
	wg.Wait()
	if ids := n.queue.view.localEndpoints(); len(ids) != 99 || slices.Contains(ids, "c100:eth0") || n.queue.view.Applied().Err != nil {
		t.Errorf("%d endpoints are in force, error %v; want all but one, and none", len(ids), n.queue.view.Applied().Err)
	}
}

func TestAttachAfterStop(t *testing.T) {
	n := servingNode(t, "")
	n.stop(t)
	if _, err := n.step.Attach(context.Background(), pod(1, ""), nil); !errors.Is(err, errStopped) {
		t.Errorf("error %v, want %v", err, errStopped)
	}
}

// TestDetachFails: the endpoint's part is still in the datapath, so its address must not be another's.
func TestDetachFails(t *testing.T) {
	n := servingNode(t, "")
	web := pod(1, "web")
	n.attach(t, web)
	n.kernel.refuseWith(errKernel)
	if err := n.step.Detach(t.Context(), web, endpoint.DeleteConfig{}); !errors.Is(err, errKernel) {
		t.Errorf("error %v, want %v", err, errKernel)
	}
	n.kernel.refuseWith(nil)
	if err := n.step.Detach(t.Context(), web, endpoint.DeleteConfig{}); err != nil || n.kernel.id("c1:eth0") != 0 {
		t.Errorf("again: %v, and the kernel has ID %d", err, n.kernel.id("c1:eth0"))
	}
}

func TestRestoreWithDamagedLabels(t *testing.T) {
	n := startNode(t, "", newFakeKernel())
	ep := pod(1, "")
	ep.Metadata = "{"
	if _, err := n.step.Restore(t.Context(), ep); err == nil {
		t.Error("no error")
	}
}

// TestOccupyWithoutRecord holds an attachment that only the kernel knows: without its labels no policy would select it,
// and it would be free.
func TestOccupyWithoutRecord(t *testing.T) {
	n := servingNode(t, "")
	unknown := pod(7, "")
	unknown.Spec.Pod, unknown.Metadata = endpoint.Pod{}, ""
	if err := n.step.Occupy(unknown); err != nil {
		t.Fatal(err)
	}
	if err := n.step.Occupy(pod(8, "web")); err != nil {
		t.Fatal(err)
	}
	if _, err := n.step.Attach(t.Context(), pod(9, "web"), nil); err != nil { // comes after both
		t.Fatal(err)
	}
	if n.kernel.id("c7:eth0") != 0 || n.kernel.id("c8:eth0") != 8 {
		t.Errorf("the kernel has %d and %d, want nothing of the unknown one", n.kernel.id("c7:eth0"), n.kernel.id("c8:eth0"))
	}
}

// TestDetachForgets: an endpoint that a previous agent attached, and that goes before the first write, leaves nothing
// in the kernel.
func TestDetachForgets(t *testing.T) {
	n := startNode(t, "", newFakeKernel())
	if err := n.step.Detach(t.Context(), pod(7, "web"), endpoint.DeleteConfig{}); err != nil {
		t.Fatal(err)
	}
	n.prune(t)
	if !slices.Equal(n.kernel.forgotten, []uint16{7}) {
		t.Errorf("the kernel was to forget %v, want ID 7", n.kernel.forgotten)
	}
}

// No policy selects a node's health endpoint, and pods' policies know its address as a health endpoint's.
func TestHealthEndpointIsNotSelected(t *testing.T) {
	n := servingNode(t, "")
	n.put(t, `apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: deny}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}}
  ingress: [{action: Deny, from: [{namespaces: {}}]}]
  egress: [{action: Deny, to: [{networks: [0.0.0.0/0]}]}]
`)
	web, health := pod(1, "web"), pod(2, "")
	health.Spec = endpoint.Spec{Attachment: endpoint.Attachment{ContainerID: "porin-health", IfName: "eth0"}, Kind: endpoint.KindHealth}
	health.Metadata = ""
	n.attach(t, web)
	n.attach(t, health)
	if v := n.queue.View().Evaluate(health.Addresses.IPv4, netip.MustParseAddr("192.0.2.1"), model.TCP, 80); !v.Allowed || v.From.Kind != model.Health {
		t.Errorf("from the health endpoint: %+v", v)
	}
	if v := n.queue.View().Evaluate(netip.MustParseAddr("192.0.2.1"), health.Addresses.IPv4, model.TCP, 4240); !v.Allowed || v.To.Kind != model.Health {
		t.Errorf("to the health endpoint: %+v", v)
	}
	if v := n.queue.View().Evaluate(web.Addresses.IPv4, health.Addresses.IPv4, model.TCP, 4240); v.Allowed {
		t.Errorf("from a pod that may send nothing: %+v", v)
	}
	if differences, err := n.queue.View().compare(t.Context()); err != nil || len(differences) > 0 {
		t.Errorf("the kernel differs: %+v, %v", differences, err)
	}
	if err := n.step.Detach(t.Context(), health, endpoint.DeleteConfig{}); err != nil {
		t.Fatal(err)
	}
	if v := n.queue.View().Evaluate(health.Addresses.IPv4, netip.MustParseAddr("192.0.2.1"), model.TCP, 80); v.From.Kind != model.World {
		t.Errorf("after its end: %+v", v)
	}
}

// The agent's start holds it, with all that is on record of it.
func TestHeldHealthEndpointIsNotSelected(t *testing.T) {
	n := startNode(t, "", newFakeKernel())
	health := pod(2, "")
	health.Spec, health.Metadata = endpoint.Spec{Attachment: endpoint.Attachment{ContainerID: "porin-health", IfName: "eth0"}, Kind: endpoint.KindHealth}, ""
	if err := n.step.Occupy(health); err != nil {
		t.Fatal(err)
	}
	n.prune(t, health)
	if v := n.queue.View().Evaluate(netip.MustParseAddr("192.0.2.1"), health.Addresses.IPv4, model.TCP, 4240); v.To.Kind != model.Health {
		t.Errorf("to the health endpoint: %+v", v)
	}
}
