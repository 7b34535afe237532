package endpointmanagertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/fault"
)

func testCreate(t *testing.T, n testNode) {
	ep := n.create(t, Spec("c1:eth0"))
	if ep.State != endpoint.Ready || ep.ID == 0 || !ep.Addresses.IPv4.IsValid() || ep.Spec.Began == 0 {
		t.Errorf("created %+v", ep)
	}
	for _, ref := range append(ep.Refs(), endpoint.ByID(ep.ID)) {
		if got, err := n.Get(ref); err != nil || got != ep {
			t.Errorf("Get(%s) = %+v, %v", ref, got, err)
		}
	}
	n.wants(t, "c1:eth0", "created c1:eth0")
	n.del(t, "c1:eth0", endpoint.DeleteConfig{}, one)
	n.del(t, "c1:eth0", endpoint.DeleteConfig{}, none)
	n.wants(t, "", "created c1:eth0", "deleted c1:eth0")
	if _, err := n.Get(endpoint.ByID(ep.ID)); !errors.Is(err, endpointmanager.ErrNotFound) {
		t.Errorf("Get of what is deleted: error %v", err)
	}
	wantLog(t, n.ipam, "ipam attach c1:eth0", "ipam detach c1:eth0")
	second := Spec("c2:eth1")
	n.create(t, Spec("c2:eth0"))
	second.Pod.UID = ""
	n.create(t, second)
	if _, err := n.Get(endpoint.ByContainerID("c2")); !errors.Is(err, endpointmanager.ErrAmbiguous) {
		t.Errorf("Get of a container with two interfaces: error %v", err)
	}
}

func testCreateAgain(t *testing.T, n testNode) {
	first := n.create(t, Spec("c1:eth0"))
	again := n.create(t, Spec("c1:eth0"))
	if !again.Renewed || again.ID != first.ID || again.Addresses != first.Addresses || again.Spec.Began <= first.Spec.Began {
		t.Errorf("created again %+v, want %+v renewed", again, first)
	}
	n.wants(t, "c1:eth0", "created c1:eth0")
	wantLog(t, n.ipam, "ipam attach c1:eth0")
}

func testCreateOther(t *testing.T, n testNode) {
	first := n.create(t, Spec("c1:eth0"))
	spec := Spec("c1:eth0")
	spec.MTU = 1400
	if second := n.create(t, spec); second.ID == first.ID || second.Spec.MTU != 1400 {
		t.Errorf("created %+v in place of %+v", second, first)
	}
	n.wants(t, "c1:eth0", "created c1:eth0", "deleted c1:eth0", "created c1:eth0")
	n.datapath.Fail("detach", 1, errKernel)
	if _, err := n.Create(t.Context(), Spec("c1:eth0"), nil); fault.KindOf(err) != fault.Unavailable || !errors.Is(err, errKernel) {
		t.Errorf("what was before does not go: error %v", err)
	}
}

func testCreateInvalid(t *testing.T, n testNode) {
	spec := Spec("c1:eth0")
	spec.Attachment.IfName = "../eth0"
	if _, err := n.Create(t.Context(), spec, nil); fault.KindOf(err) != fault.Invalid {
		t.Errorf("error %v, want one of kind invalid", err)
	}
	n.wants(t, "")
}

func testCreateFails(t *testing.T, n testNode) {
	n.datapath.Fail("attach", 1, errKernel)
	n.refused(t, Spec("c1:eth0"), errKernel)
	n.wants(t, "")
	wantLog(t, n.datapath, "datapath attach c1:eth0", "datapath detach c1:eth0")
	wantLog(t, n.ipam, "ipam attach c1:eth0", "ipam detach c1:eth0")
}

// begin starts a creation that waits in the second step, and returns its end.
func (n testNode) begin(ctx context.Context, t *testing.T, spec endpoint.Spec) (end <-chan error, release func()) {
	t.Helper()
	release = n.datapath.Hold()
	ended := make(chan error, 1)
	go func() {
		_, err := n.Create(ctx, spec, nil)
		ended <- err
	}()
	for end := time.Now().Add(10 * time.Second); len(n.ipam.Attached()) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the creation does not begin")
		}
	}
	return ended, release
}

func testCreateCallerLeaves(t *testing.T, n testNode) {
	ctx, leave := context.WithCancel(t.Context())
	ended, release := n.begin(ctx, t, Spec("c1:eth0"))
	defer release()
	leave()
	if err := <-ended; fault.KindOf(err) != fault.Deadline {
		t.Errorf("error %v, want one of kind deadline", err)
	}
	n.wants(t, "")
}

func testCreateDeleted(t *testing.T, n testNode) {
	ended, release := n.begin(context.Background(), t, Spec("c1:eth0"))
	defer release()
	if result := n.Delete(t.Context(), Spec("c1:eth0").Attachment, endpoint.DeleteConfig{}); len(result.Errors) > 0 {
		t.Errorf("delete: %+v", result)
	}
	if err := <-ended; !errors.Is(err, endpointmanager.ErrDeleted) {
		t.Errorf("error %v, want %v", err, endpointmanager.ErrDeleted)
	}
	n.wants(t, "")
}

func testLateCreate(t *testing.T, n testNode) {
	late := Spec("c1:eth0")
	late.Began = boottime.Now()
	n.del(t, "c1:eth0", endpoint.DeleteConfig{}, none)
	n.refused(t, late, endpointmanager.ErrDeleted)
	late.Attachment.ContainerID, late.Pod.UID = "c2", ""
	wantResult(t, "delete container", n.DeleteContainer(t.Context(), "c2", endpoint.DeleteConfig{}), none)
	n.refused(t, late, endpointmanager.ErrDeleted)
	late = Spec("c3:eth0")
	late.Began, late.MTU = boottime.Now(), 1400
	n.create(t, Spec("c3:eth0"))
	n.refused(t, late, endpointmanager.ErrSuperseded)
	n.create(t, Spec("c1:eth0"))
	n.wants(t, "c1:eth0 c3:eth0", "created c3:eth0", "created c1:eth0")
}

func testNewerContainer(t *testing.T, n testNode) {
	older, newer := Spec("c1:eth0"), Spec("c2:eth0")
	newer.Pod = older.Pod
	older.Began = boottime.Now()
	n.create(t, older)
	n.create(t, newer)
	n.wants(t, "c2:eth0", "created c1:eth0", "deleted c1:eth0", "created c2:eth0")
	late := older
	late.Attachment.ContainerID = "c0"
	n.refused(t, late, endpointmanager.ErrSuperseded)
}

func testAddressInUse(t *testing.T, n testNode) {
	first := n.create(t, Spec("c1:eth0"))
	n.ipam.Give(first.Addresses)
	n.refused(t, Spec("c2:eth0"), endpointmanager.ErrInUse)
	n.wants(t, "c1:eth0", "created c1:eth0")
}
