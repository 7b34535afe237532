package endpointmanagertest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/boottime"
)

func testDeleteFails(t *testing.T, n testNode) {
	n.create(t, Spec("c1:eth0"))
	n.datapath.Fail("detach", 1, errKernel)
	_ = n.ipam.Log()
	result := n.Delete(t.Context(), Spec("c1:eth0").Attachment, endpoint.DeleteConfig{})
	if result.Deleted != 0 || len(result.Errors) != 1 || !errors.Is(result.Errors[0], errKernel) {
		t.Errorf("delete: %+v, want %v", result, errKernel)
	}
	wantLog(t, n.ipam, "ipam detach(Incomplete) c1:eth0")
	if ep, err := n.Get(endpoint.ByAttachment(Spec("c1:eth0").Attachment)); err != nil || ep.State != endpoint.Disconnecting {
		t.Errorf("the endpoint is in state %s, %v", ep.State, err)
	}
	if err := n.Repair(t.Context(), Spec("c1:eth0").Attachment); !errors.Is(err, endpointmanager.ErrNotReady) {
		t.Errorf("repair: error %v, want %v", err, endpointmanager.ErrNotReady)
	}
	n.wants(t, "c1:eth0", "created c1:eth0") // but the datapath's part, which the fake keeps
	n.del(t, "c1:eth0", endpoint.DeleteConfig{}, one)
	n.wants(t, "", "created c1:eth0", "deleted c1:eth0")
}

func testDeleteSpares(t *testing.T, n testNode) {
	began := boottime.Now()
	n.create(t, Spec("c1:eth0"))
	n.del(t, "c1:eth0", endpoint.DeleteConfig{Began: began}, endpointmanager.DeleteResult{Skipped: 1})
	n.wants(t, "c1:eth0", "created c1:eth0")
}

func testDeleteContainer(t *testing.T, n testNode) {
	for _, attachment := range []string{"c1:eth0", "c1:eth1", "c2:eth0"} {
		n.create(t, Spec(attachment))
	}
	wantResult(t, "delete c1", n.DeleteContainer(t.Context(), "c1", endpoint.DeleteConfig{}), endpointmanager.DeleteResult{Deleted: 2})
	wantResult(t, "delete c3", n.DeleteContainer(t.Context(), "c3", endpoint.DeleteConfig{}), none)
	if len(n.List()) != 1 {
		t.Errorf("left %v", n.List())
	}
}

// The agent's own endpoints are no container's, whatever their container ID.
func testDeleteContainerReserved(t *testing.T, n testNode) {
	spec := Spec("c1:eth0")
	spec.Kind = endpoint.KindHealth
	n.create(t, spec)
	n.create(t, Spec("c1:eth1"))
	wantResult(t, "delete c1", n.DeleteContainer(t.Context(), "c1", endpoint.DeleteConfig{}), endpointmanager.DeleteResult{Deleted: 1, Skipped: 1})
	n.wants(t, "c1:eth0", "created c1:eth0", "created c1:eth1", "deleted c1:eth1")
	n.del(t, "c1:eth0", endpoint.DeleteConfig{}, one)
}

func testSweep(t *testing.T, n testNode) {
	n.create(t, Spec("c2:eth0"))
	_, _ = n.ipam.Log(), n.datapath.Log()
	n.del(t, "c1:eth0", endpoint.DeleteConfig{Sweep: true, Network: "porin"}, none)
	wantLog(t, n.datapath, "datapath detach c1:eth0")
	wantLog(t, n.ipam, "ipam detach c1:eth0")
	n.wants(t, "c2:eth0", "created c2:eth0")
}

func testRepair(t *testing.T, n testNode) {
	n.create(t, Spec("c1:eth0"))
	n.datapath.Lose("c1:eth0")
	if err := n.Repair(t.Context(), Spec("c1:eth0").Attachment); err != nil {
		t.Error(err)
	}
	n.wants(t, "c1:eth0", "created c1:eth0")
	n.datapath.Fail("restore", 1, errKernel)
	if err := n.Repair(t.Context(), Spec("c1:eth0").Attachment); !errors.Is(err, errKernel) {
		t.Errorf("error %v, want %v", err, errKernel)
	}
	if err := n.Repair(t.Context(), Spec("c2:eth0").Attachment); !errors.Is(err, endpointmanager.ErrNotFound) {
		t.Errorf("error %v, want %v", err, endpointmanager.ErrNotFound)
	}
}

// testCollect takes down so few that every limit of a call allows it.
func testCollect(t *testing.T, n testNode) {
	for i := range 4 {
		n.create(t, Spec(fmt.Sprintf("c%d:eth0", i)))
	}
	other := Spec("c9:eth0")
	other.Network = "other"
	n.create(t, other)
	gc := endpointmanager.GC{Network: "porin", Valid: map[endpoint.Attachment]bool{}, DryRun: true}
	for i := range 3 {
		gc.Valid[Spec(fmt.Sprintf("c%d:eth0", i)).Attachment] = true
	}
	stale := []endpoint.Attachment{Spec("c3:eth0").Attachment}
	if result := n.Collect(t.Context(), gc); !slices.Equal(result.Stale, stale) || result.Deleted != 0 {
		t.Errorf("dry run: %+v", result)
	}
	gc.DryRun = false
	if result := n.Collect(t.Context(), gc); !slices.Equal(result.Stale, stale) || result.Deleted != 1 || len(result.Errors) > 0 {
		t.Errorf("collected %+v", result)
	}
	if len(n.List()) != 4 {
		t.Errorf("left %v", n.List())
	}
}

func testSideBySide(t *testing.T, n testNode) {
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			spec := Spec(fmt.Sprintf("c%d:eth0", i/2)) // two callers for each
			for range 5 {
				_, _ = n.Create(t.Context(), spec, nil)
				n.Delete(t.Context(), spec.Attachment, endpoint.DeleteConfig{})
			}
		})
	}
	wg.Wait()
	n.wants(t, "", n.events.Lines()...)
	for i := range 10 {
		if ep := (endpoint.Endpoint{Spec: Spec(fmt.Sprintf("c%d:eth0", i))}); n.events.Knows(t, ep) {
			t.Errorf("the subscriber has not heard of the end of %s", ep.Spec.Attachment)
		}
	}
}

// By force an endpoint ends although a step fails, and the steps below it are undone in full.
func testDeleteForce(t *testing.T, n testNode) {
	n.create(t, Spec("c1:eth0"))
	n.datapath.Fail("detach", 2, errKernel)
	n.del(t, "c1:eth0", endpoint.DeleteConfig{}, endpointmanager.DeleteResult{Errors: []error{errKernel}})
	result := n.Delete(t.Context(), Spec("c1:eth0").Attachment, endpoint.DeleteConfig{Force: true})
	wantResult(t, "delete by force", result, one)
	if len(result.GivenUp) != 1 || !errors.Is(result.GivenUp[0], errKernel) {
		t.Errorf("given up: %v", result.GivenUp)
	}
	if list, addresses := n.List(), n.ipam.Attached(); len(list)+len(addresses) != 0 {
		t.Errorf("endpoints %v, addresses of %v", list, addresses)
	}
}
