package endpointmanager_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/internal/fault"
)

// node starts a manager of the steps ipam and datapath.
func node(t *testing.T) (endpointmanager.Service, *endpointmanager.Table, []*endpointmanagertest.Step) {
	t.Helper()
	cfg := endpointmanager.DefaultConfig()
	cfg.StateDir = t.TempDir()
	steps := []*endpointmanagertest.Step{endpointmanagertest.NewStep("ipam"), endpointmanagertest.NewStep("datapath")}
	table := endpointmanager.NewTable()
	service := endpointmanager.New(endpointmanager.Params{
		Config: cfg, Log: slog.New(slog.DiscardHandler), Table: table, Steps: endpoint.Steps{steps[0], steps[1]},
	})
	if err := service.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := service.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return service, table, steps
}

func attachedTo(steps []*endpointmanagertest.Step) string {
	var all []string
	for _, s := range steps {
		all = append(all, s.Attached()...)
	}
	return strings.Join(all, " ")
}

func TestCreateCanceled(t *testing.T) {
	service, table, steps := node(t)
	defer steps[1].Hold()()
	ctx, leave := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	go func() {
		_, err := service.Create(ctx, endpointmanagertest.Spec("c1:eth0"), nil)
		errs <- err
	}()
	waitFor(t, func() bool { return len(steps[0].Attached()) == 1 })
	leave()
	if err := <-errs; fault.KindOf(err) != fault.Deadline {
		t.Errorf("error %v, want one of kind deadline", err)
	}
	if got := attachedTo(steps); got != "" || len(table.List()) != 0 {
		t.Errorf("left: %q, %v", got, table.List())
	}
}

func TestDeleteCancelsCreate(t *testing.T) {
	service, table, steps := node(t)
	defer steps[1].Hold()()
	spec := endpointmanagertest.Spec("c1:eth0")
	errs := make(chan error, 1)
	go func() {
		_, err := service.Create(context.Background(), spec, nil)
		errs <- err
	}()
	waitFor(t, func() bool { return len(steps[0].Attached()) == 1 })
	result := service.Delete(t.Context(), spec.Attachment, endpoint.DeleteConfig{})
	if len(result.Errors) > 0 {
		t.Errorf("delete: %v", result.Errors)
	}
	if err := <-errs; err == nil {
		t.Error("the creation succeeded")
	}
	if got := attachedTo(steps); got != "" || len(table.List()) != 0 {
		t.Errorf("left: %q, %v", got, table.List())
	}
}

func TestCreateAndDeleteConcurrently(t *testing.T) {
	service, table, steps := node(t)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			spec := endpointmanagertest.Spec(fmt.Sprintf("c%d:eth0", i))
			for range 5 {
				if _, err := service.Create(t.Context(), spec, nil); err != nil {
					t.Error(err)
				}
				if result := service.Delete(t.Context(), spec.Attachment, endpoint.DeleteConfig{}); result.Deleted != 1 {
					t.Errorf("delete: %+v", result)
				}
			}
		})
	}
	wg.Wait()
	if got := attachedTo(steps); got != "" || len(table.List()) != 0 {
		t.Errorf("left: %q, %v", got, table.List())
	}
}

// TestSameAttachmentConcurrently has many callers create and delete the same attachment: whatever the order,
// steps and table agree in the end.
func TestSameAttachmentConcurrently(t *testing.T) {
	service, table, steps := node(t)
	spec := endpointmanagertest.Spec("c1:eth0")
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			if i%3 == 0 {
				service.Delete(t.Context(), spec.Attachment, endpoint.DeleteConfig{})
				return
			}
			ep, err := service.Create(t.Context(), spec, nil)
			if err == nil && ep.State != endpoint.Ready {
				t.Errorf("created in state %s", ep.State)
			}
		})
	}
	wg.Wait()
	if _, err := service.Create(t.Context(), spec, nil); err != nil {
		t.Fatal(err)
	}
	if got := attachedTo(steps); got != "c1:eth0 c1:eth0" || len(table.List()) != 1 {
		t.Errorf("steps have %q, the table %v", got, table.List())
	}
}

func TestCreateInvalidAllFaults(t *testing.T) {
	service, _, steps := node(t)
	spec := endpointmanagertest.Spec("c1:eth0")
	spec.Attachment.IfName = "../eth0"
	spec.MTU = 68
	spec.Pod.Name = "a\x00b"
	_, err := service.Create(t.Context(), spec, nil)
	if fault.KindOf(err) != fault.Invalid {
		t.Fatalf("error %v, want one of kind invalid", err)
	}
	for _, part := range []string{"interface name", "mtu 68", "cannot be printed"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not speak of %q", err, part)
		}
	}
	if got := attachedTo(steps); got != "" {
		t.Errorf("attached: %q", got)
	}
}

func TestCreateAfterStop(t *testing.T) {
	service, _, _ := node(t)
	if err := service.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := service.Create(t.Context(), endpointmanagertest.Spec("c1:eth0"), nil); !errors.Is(err, endpointmanager.ErrStopped) {
		t.Errorf("error %v, want ErrStopped", err)
	}
}
