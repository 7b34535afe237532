package datapath_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/spf13/pflag"
	"go.uber.org/fx"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/datapath/datapathtest"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/cells/server"
)

// parts is what the cell gives to others.
type parts struct {
	fx.In
	Step       *datapath.Step
	Describers []endpointmanager.Describer `group:"endpoint.describers"`
	Reporters  []server.StatusReporter     `group:"server.reporters"`
	Collectors []prometheus.Collector      `group:"metrics.collectors"`
	Sources    []capacity.Source           `group:"capacity.sources"`
}

// build makes the cell with the fake in place of the kernel, and starts nothing.
func build(t *testing.T, kernel *datapathtest.Kernel) (p parts) {
	t.Helper()
	app := fx.New(
		fx.NopLogger,
		fx.Supply(slog.New(slog.DiscardHandler)),
		link.Module(),
		fx.Provide(func() link.MTU { return nil }),
		datapath.Module(datapath.DefaultConfig()),
		fx.Decorate(func() datapath.Links { return kernel.Links() }, func() datapath.Maps { return kernel.Maps() },
			func() datapath.Counters { return kernel }, func() datapath.Pins { return kernel }),
		fx.Invoke(func(got parts) { p = got }),
	)
	must(t, app.Err())
	return p
}

func TestCellReportsTraffic(t *testing.T) {
	kernel := &datapathtest.Kernel{}
	p := build(t, kernel)
	w := &fakeKernel{kernel: kernel}
	ep := newEndpoint(t, w, 1)
	_, err := p.Step.Attach(context.Background(), ep, nil)
	must(t, err)
	counted := abi.Traffic{FromPod: abi.Counter{Packets: 3, Bytes: 300}, ToPod: abi.Counter{Packets: 2, Bytes: 200}}
	counted.Drops[abi.DropARP] = 7
	kernel.Count(1, counted)

	var got v1.Endpoint
	for _, d := range p.Describers {
		d.Describe(ep, &got)
	}
	want := &v1.Traffic{
		FromPod: v1.Counter{Packets: 3, Bytes: 300}, ToPod: v1.Counter{Packets: 2, Bytes: 200},
		Drops: map[string]uint64{"arp": 7},
	}
	if diff := cmp.Diff(want, got.Traffic); diff != "" {
		t.Errorf("description (-want +got):\n%s", diff)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p.Collectors...) // they come in any order
	if err := promtest.GatherAndCompare(registry, strings.NewReader(`
# HELP porin_datapath_packets_total Packets from and to pods that passed.
# TYPE porin_datapath_packets_total counter
porin_datapath_packets_total{direction="from-pod"} 3
porin_datapath_packets_total{direction="to-pod"} 2
`), "porin_datapath_packets_total"); err != nil {
		t.Error(err)
	}
	if problems, err := promtest.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

func TestDescribeWithoutCounters(t *testing.T) {
	p := build(t, &datapathtest.Kernel{})
	var got v1.Endpoint
	p.Describers[0].Describe(endpointOf(t, 1), &got)
	if got.Traffic != nil {
		t.Errorf("traffic = %+v, want none", got.Traffic)
	}
}

func TestStatusBeforeStart(t *testing.T) {
	var status v1.Status
	build(t, &datapathtest.Kernel{}).Reporters[0].Report(&status)
	if diff := cmp.Diff(v1.Datapath{BPFRoot: datapath.DefaultConfig().BPFRoot}, status.Datapath); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestConfigValidate(t *testing.T) {
	cfg := datapath.DefaultConfig()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	cfg.Flags(fs)
	must(t, cfg.Validate())
	must(t, fs.Parse([]string{"--bpf-root", "relative/../path", "--datapath-max-connections", "7"}))
	cfg.MaxEndpoints = 0
	err := cfg.Validate()
	for _, want := range []string{"bpf-root", "max-endpoints", "datapath-max-connections"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to name %s", err, want)
		}
	}
	if _, err := datapath.New(cfg, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("New accepts what Validate refuses")
	}
}

func TestTotalsAfterDetach(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	must(t, ping(a.Namespace, b.endpoint.Addresses.IPv4))
	before, err := n.datapath.Counters().Totals()
	must(t, err)
	n.detach(t, a, b)
	after, err := n.datapath.Counters().Totals()
	must(t, err)
	if after.FromPod.Packets < before.FromPod.Packets || before.FromPod.Packets == 0 {
		t.Errorf("totals fell from %+v to %+v", before, after)
	}
}
