package datapath_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/datapath/datapathtest"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/testutil"
)

var (
	_ endpoint.Step   = (*datapath.Step)(nil)
	_ endpoint.Pruner = (*datapath.Step)(nil)
)

func TestAttachDetach(t *testing.T) {
	onBothKernels(t, func(t *testing.T, w testKernel) {
		a, b := newEndpoint(t, w, 1), newEndpoint(t, w, 2)
		attach(t, w, a, b)
		attach(t, w, a) // idempotent
		if link, err := w.links().Link(a.Host.Index); err != nil || !testutil.IsUp(link) {
			t.Errorf("link %+v, error %v, want it up", link, err)
		}
		wantState(t, w, attached(2))
		for range 2 { // the second time there is nothing to do
			if err := w.step().Detach(context.Background(), a, endpoint.DeleteConfig{}); err != nil {
				t.Fatal(err)
			}
			want := attached(1)
			want.Attached = 2 // until the link is deleted, which is another step's part
			wantState(t, w, want)
			if link, err := w.links().Link(a.Host.Index); err != nil || testutil.IsUp(link) {
				t.Errorf("link %+v, error %v, want it down", link, err)
			}
		}
		w.removeLink(t, a)
		wantState(t, w, attached(1))
		if err := w.step().Detach(context.Background(), a, endpoint.DeleteConfig{}); err != nil {
			t.Errorf("detach without a link: %v", err)
		}
	})
}

func TestAttachRefuses(t *testing.T) {
	rows := []struct {
		name   string
		change func(t *testing.T, w testKernel, ep *endpoint.Endpoint)
		want   error
		kind   fault.Kind
	}{
		{"a link that is not there", func(_ *testing.T, _ testKernel, ep *endpoint.Endpoint) {
			ep.Host.Index = 4711
		}, datapath.ErrNoLink, fault.NotFound},
		{"the uplink", func(t *testing.T, w testKernel, ep *endpoint.Endpoint) {
			ep.Host.Index = w.addOther(t, "eth0")
		}, datapath.ErrForeignLink, fault.Invalid},
		{"another attachment's link", func(_ *testing.T, _ testKernel, ep *endpoint.Endpoint) {
			ep.Spec.Attachment.IfName = "eth1"
		}, datapath.ErrForeignLink, fault.Invalid},
		{"another MAC than the link has", func(_ *testing.T, _ testKernel, ep *endpoint.Endpoint) {
			ep.Host.MAC[5]++
		}, datapath.ErrForeignLink, fault.Invalid},
		{"no address", func(_ *testing.T, _ testKernel, ep *endpoint.Endpoint) {
			ep.Addresses = endpoint.Addresses{}
		}, datapath.ErrAddress, fault.Invalid},
		{"a loopback address", func(_ *testing.T, _ testKernel, ep *endpoint.Endpoint) {
			ep.Addresses.IPv4 = netip.MustParseAddr("127.0.0.1")
		}, datapath.ErrAddress, fault.Invalid},
		{"the gateway's address", func(_ *testing.T, _ testKernel, ep *endpoint.Endpoint) {
			ep.Addresses.IPv6 = netip.MustParseAddr("fe80::1")
		}, datapath.ErrAddress, fault.Invalid},
		{"an IPv4 address as IPv6", func(_ *testing.T, _ testKernel, ep *endpoint.Endpoint) {
			ep.Addresses.IPv6 = netip.MustParseAddr("::ffff:10.0.0.9")
		}, datapath.ErrAddress, fault.Invalid},
		{"the address of another endpoint", func(t *testing.T, _ testKernel, ep *endpoint.Endpoint) {
			ep.Addresses.IPv6 = endpointOf(t, 1).Addresses.IPv6
		}, datapath.ErrAddressInUse, fault.Conflict},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			onBothKernels(t, func(t *testing.T, w testKernel) {
				attach(t, w, newEndpoint(t, w, 1))
				ep := newEndpoint(t, w, 2)
				row.change(t, w, &ep)
				_, err := w.step().Attach(context.Background(), ep, nil)
				if !errors.Is(err, row.want) || fault.KindOf(err) != row.kind {
					t.Errorf("error %v (%s), want %v (%s)", err, fault.KindOf(err), row.want, row.kind)
				}
				wantState(t, w, attached(1))
			})
		})
	}
}

func TestDetachForeignLink(t *testing.T) {
	onBothKernels(t, func(t *testing.T, w testKernel) {
		a, b := newEndpoint(t, w, 1), newEndpoint(t, w, 2)
		uplink := w.addOther(t, "eth0")
		attach(t, w, a, b)
		for _, index := range []int{uplink, a.Host.Index, 4711} {
			liar := b
			liar.Host.Index = index
			liar.ID = 77
			if err := w.step().Detach(context.Background(), liar, endpoint.DeleteConfig{}); err != nil {
				t.Errorf("detach with index %d: %v", index, err)
			}
		}
		wantState(t, w, attached(2))
		if _, err := w.links().Link(uplink); err != nil {
			t.Errorf("the uplink: %v", err)
		}
	})
}

func TestDetachByName(t *testing.T) {
	onBothKernels(t, func(t *testing.T, w testKernel) {
		a := newEndpoint(t, w, 1)
		attach(t, w, a)
		index := a.Host.Index
		a.Host.Index, a.Addresses = 0, endpoint.Addresses{} // as an agent knows it that died early
		if err := w.step().Detach(context.Background(), a, endpoint.DeleteConfig{}); err != nil {
			t.Fatal(err)
		}
		wantState(t, w, datapathtest.State{Attached: 1})
		if link, err := w.links().Link(index); err != nil || testutil.IsUp(link) {
			t.Errorf("link %+v, error %v, want it down", link, err)
		}
	})
}

func TestRestore(t *testing.T) {
	onBothKernels(t, func(t *testing.T, w testKernel) {
		a, b := newEndpoint(t, w, 1), newEndpoint(t, w, 2)
		attach(t, w, a)
		restore := func(ep endpoint.Endpoint) (replaced []string) {
			t.Helper()
			replaced, err := w.step().Restore(context.Background(), ep)
			must(t, err)
			return replaced
		}
		if got := restore(a); got != nil {
			t.Errorf("nothing was wrong, and %q was replaced", got)
		}
		if got := restore(b); len(got) == 0 { // it was never attached
			t.Error("nothing was replaced of what was not there")
		}
		wantState(t, w, attached(2))
		w.setDown(t, a)
		if got := restore(a); len(got) == 0 || got[0] != "link "+a.Host.Name+": down" {
			t.Errorf("replaced %q of a link that was down", got)
		}
		if link, err := w.links().Link(a.Host.Index); err != nil || !testutil.IsUp(link) {
			t.Errorf("link %+v, error %v, want it up", link, err)
		}
		if got := restore(a); got != nil {
			t.Errorf("nothing was wrong, and %q was replaced", got)
		}
		w.removeLink(t, b)
		if _, err := w.step().Restore(context.Background(), b); !errors.Is(err, datapath.ErrNoLink) {
			t.Errorf("restore without a link: error %v, want %v", err, datapath.ErrNoLink)
		}
	})
}

func TestPrune(t *testing.T) {
	onBothKernels(t, func(t *testing.T, w testKernel) {
		a, b := newEndpoint(t, w, 1), newEndpoint(t, w, 2)
		attach(t, w, a, b)
		w.removeLink(t, b) // by the step link
		if _, err := w.step().Prune(context.Background(), []endpoint.Endpoint{a}); err != nil {
			t.Fatal(err)
		}
		wantState(t, w, attached(1))
	})
}

func TestAttachFails(t *testing.T) {
	broken := errors.New("broken")
	for _, method := range []string{"Links.Link", "Links.Forward", "Maps.Update", "Links.Update", "Links.WaitForCarrier"} {
		t.Run(method, func(t *testing.T) {
			w := &fakeKernel{kernel: &datapathtest.Kernel{}}
			ep := newEndpoint(t, w, 1)
			w.kernel.Fail = func(m string) error {
				if m == method {
					return broken
				}
				return nil
			}
			if _, err := w.step().Attach(context.Background(), ep, nil); !errors.Is(err, broken) {
				t.Errorf("error %v, want %v", err, broken)
			}
			wantState(t, w, attached(0))
			if link := w.kernel.HostEnds()[0]; testutil.IsUp(link) {
				t.Errorf("link %+v is up", link)
			}
		})
	}
}

func TestStepBeforeStart(t *testing.T) {
	d, err := datapath.New(datapath.DefaultConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	step := datapath.NewStep(d.Links(), d.Maps(), d.Pins(), slog.New(slog.DiscardHandler))
	ctx, ep := context.Background(), endpointOf(t, 1)
	_, attachErr := step.Attach(ctx, ep, nil)
	_, restoreErr := step.Restore(ctx, ep)
	_, pruneErr := step.Prune(ctx, nil)
	for name, err := range map[string]error{
		"attach": attachErr, "detach": step.Detach(ctx, ep, endpoint.DeleteConfig{}),
		"restore": restoreErr, "prune": pruneErr,
	} {
		if !errors.Is(err, datapath.ErrNotStarted) {
			t.Errorf("%s: error %v, want %v", name, err, datapath.ErrNotStarted)
		}
	}
}
