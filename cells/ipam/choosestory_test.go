package ipam_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/pflag"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/internal/testutil/story"
)

// TestChoosingStories runs testdata/choosing: an agent of mode multi-pool, with an endpoint manager.
//
//	pool NAME BLOCK [NAMESPACE,...] is there from the next start of the agent on, for pods of these namespaces
//	agent [FLAG...]                 starts it, after the end of the previous one, with these settings
//	attach NAME [KEY=VALUE...]      an ADD: of pool, namespace, ip, reserved (who reserved it), token; shows pool and address
//	detach NAME                     its DEL
//	broken                          the next ADD fails in the datapath
//	reserve OWNER POOL              reserves an address
//	show                            lists pools and what is in use
func TestChoosingStories(t *testing.T) {
	type command = func(*chooserWorld, *testscript.TestScript, []string) error
	verbs := story.Verbs{}
	for name, run := range map[string]command{
		"pool": (*chooserWorld).pool, "agent": (*chooserWorld).agent, "attach": (*chooserWorld).attach,
		"detach": (*chooserWorld).detach, "broken": (*chooserWorld).broken, "reserve": (*chooserWorld).reserve,
		"show": (*chooserWorld).show,
	} {
		verbs[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			err := run(ts.Value("chooser").(*chooserWorld), ts, args)
			if err != nil {
				_, _ = fmt.Fprintln(ts.Stderr(), err)
			}
			if (err != nil) != neg {
				ts.Fatalf("error %v, want one: %v", err, neg)
			}
		}
	}
	testscript.Run(t, testscript.Params{Dir: "testdata/choosing", Cmds: verbs.Checked(t), Setup: func(env *testscript.Env) error {
		w := &chooserWorld{
			dir: filepath.Join(env.WorkDir, "state"), blocks: map[string]netip.Prefix{}, namespaces: map[string][]string{},
			datapath: endpointmanagertest.NewStep("datapath"), tokens: map[string]string{},
		}
		env.Defer(func() { _ = w.end() })
		env.Values["chooser"] = w
		return nil
	}})
}

// chooserWorld is a node. The datapath stands for its kernel, and outlives the agent.
type chooserWorld struct {
	dir    string
	blocks map[string]netip.Prefix // by pool

	namespaces map[string][]string // that may have addresses of a pool
	datapath   *endpointmanagertest.Step
	tokens     map[string]string // by who reserved

	node    *allocator.Allocator
	service endpointmanager.Service
}

func (w *chooserWorld) pool(_ *testscript.TestScript, args []string) (err error) {
	w.blocks[args[0]], err = netip.ParsePrefix(args[1])
	delete(w.namespaces, args[0])
	if len(args) > 2 {
		w.namespaces[args[0]] = strings.Split(args[2], ",")
	}
	return err
}

func (w *chooserWorld) agent(_ *testscript.TestScript, args []string) (err error) {
	if err := w.end(); err != nil {
		return err
	}
	cfg := ipam.DefaultConfig()
	fs := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	cfg.Flags(fs)
	if err := fs.Parse(append([]string{"--ipam-mode=multi-pool"}, args...)); err != nil {
		return err
	}
	if w.node, err = ipam.New(cfg, nil); err != nil {
		return err
	}
	for name, block := range w.blocks {
		w.node.Pools().Configure(name, allocator.Settings{IPv4: true, AllowedNamespaces: w.namespaces[name]})
		err = errors.Join(err, w.node.Pools().Add(name, block))
	}
	manager := endpointmanager.DefaultConfig()
	manager.StateDir = w.dir
	w.service = endpointmanager.New(endpointmanager.Params{
		Config: manager, Log: slog.New(slog.DiscardHandler), Table: endpointmanager.NewTable(),
		Steps: endpoint.Steps{ipam.NewStep(allocator.NewSource(w.node, nil), ipam.NewPoolSources(cfg)...), w.datapath},
	})
	return errors.Join(err, w.service.Start(context.Background()))
}

func (w *chooserWorld) end() error {
	if w.service == nil {
		return nil
	}
	return w.service.Stop(context.Background())
}

func (w *chooserWorld) attach(ts *testscript.TestScript, args []string) error {
	spec := endpointmanagertest.Spec(args[0] + ":eth0")
	for _, option := range args[1:] {
		switch key, value, _ := strings.Cut(option, "="); key {
		case "pool":
			spec.Pool = value
		case "network":
			spec.NetworkPool = value
		case "namespace":
			spec.Pod.Namespace = value
		case "ip":
			spec.Requested.IPv4 = netip.MustParseAddr(value)
		case "reserved":
			spec.Reservation = w.tokens[value]
		case "token":
			spec.Reservation = value
		default:
			ts.Fatalf("attach: unknown option %q", option)
		}
	}
	ep, err := w.service.Create(context.Background(), spec, nil)
	if err == nil {
		_, _ = fmt.Fprintln(ts.Stdout(), endpointmanager.ToV1(ep).Pool, ep.Addresses.IPv4)
	}
	return err
}

func (w *chooserWorld) detach(_ *testscript.TestScript, args []string) error {
	attachment := endpointmanagertest.Spec(args[0] + ":eth0").Attachment
	return errors.Join(w.service.Delete(context.Background(), attachment, endpoint.DeleteConfig{}).Errors...)
}

func (w *chooserWorld) broken(*testscript.TestScript, []string) error {
	w.datapath.Fail("attach", 1, errKernel)
	return nil
}

func (w *chooserWorld) reserve(ts *testscript.TestScript, args []string) error {
	got, err := allocator.NewSource(w.node, nil).Reserve(context.Background(), allocator.Request{Owner: allocator.Handle(args[0]), Pool: args[1]}, 0)
	if err == nil {
		w.tokens[args[0]] = got.Token
		_, _ = fmt.Fprintln(ts.Stdout(), got.Addresses.IPv4)
	}
	return err
}

func (w *chooserWorld) show(ts *testscript.TestScript, _ []string) error {
	usage := w.node.Usage()
	for _, pool := range usage.Pools {
		for _, b := range pool.Blocks {
			_, _ = fmt.Fprintf(ts.Stdout(), "%s %s: %d used\n", pool.Name, b.Prefix, b.Used)
		}
	}
	slices.SortFunc(usage.Allocations, func(x, y allocator.Allocation) int { return x.Addresses.IPv4.Compare(y.Addresses.IPv4) })
	for _, x := range usage.Allocations {
		_, _ = fmt.Fprintln(ts.Stdout(), x.Addresses.IPv4, x.Pool, x.ShownOwner())
	}
	return nil
}
