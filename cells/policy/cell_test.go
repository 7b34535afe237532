package policy

import (
	"log/slog"
	"testing"

	"go.uber.org/fx"
)

// TestModule has the program give an Enforcer: the node's addresses and the policies on the disk are in the first
// change.
func TestModule(t *testing.T) {
	dir := t.TempDir()
	before := servingNode(t, dir)
	before.put(t, toWebFrom("client"))
	before.stop(t)

	kernel := newFakeKernel()
	var step *Step
	var policies *Policies
	app := fx.New(Module(Config{Dir: dir, AllowHost: true}), fx.Supply(slog.New(slog.DiscardHandler)), fx.NopLogger,
		fx.Provide(func() (Enforcer, Connections) { return kernel, &fakeConnections{} }),
		fx.Provide(func() (Proxy, RemoteSource, Flows) { return nil, nil, nil }), fx.Populate(&step, &policies))
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := &node{kernel: kernel, queue: policies.queue, policies: policies, step: step}
	n.prune(t)
	if got := n.names(); kernel.times() != 1 || len(got) != 1 {
		t.Errorf("%d changes, policies %q; want one of each", kernel.times(), got)
	}
	web, other := pod(1, "web"), pod(2, "other")
	n.attach(t, web)
	n.attach(t, other)
	n.wants(t, other, web, false, "with the module")
	if err := app.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
