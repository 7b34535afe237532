package endpointmanager_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/datapath/datapathtest"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
)

// simNode is a node without a kernel: what outlives the agent, and the agent that runs. The cells are the real ones.
type simNode struct {
	*scheduler
	dir    string
	kernel *datapathtest.Kernel
	disk   *endpointmanager.Disk
	epoch  time.Time

	mu    sync.Mutex      // guards the fields below
	links []time.Duration // when the ADD of each began, by index
	agent *simAgent       // nil when none runs
	lives int             // of the agent
}

// simAgent is one life of the agent.
type simAgent struct {
	*process
	service   endpointmanager.Service
	table     *endpointmanager.Table
	allocator *allocator.Allocator
	published *publisher
	started   chan struct{} // closed when Start has returned
	serving   bool          // guarded by the node's lock
}

func newSimNode(s *scheduler, dir string) *simNode {
	return &simNode{scheduler: s, dir: dir, kernel: &datapathtest.Kernel{}, disk: endpointmanager.NewDisk(), epoch: time.Now()}
}

// boot is the node's boot clock.
func (n *simNode) boot() time.Duration { return time.Hour + time.Since(n.epoch) }

// start starts an agent, which serves some time later.
func (n *simNode) start() {
	n.mu.Lock()
	n.lives++
	a := &simAgent{process: &process{name: fmt.Sprintf("agent%d", n.lives)}, table: endpointmanager.NewTable(), published: newPublisher(), started: make(chan struct{})}
	n.agent = a
	n.mu.Unlock()
	cfg := ipam.DefaultConfig()
	cfg.PodCIDRs, cfg.Quarantine = []string{"10.0.0.0/27"}, time.Second
	var err error
	if a.allocator, err = ipam.New(cfg, nil); err != nil {
		panic(err)
	}
	config := endpointmanager.DefaultConfig()
	config.StateDir, config.Parallel = n.dir, 4 // whose turn it is would depend on goroutines, were there fewer places than containers

	a.service = endpointmanager.NewOn(endpointmanager.Params{
		Config: config, Log: slog.New(slog.DiscardHandler), Table: a.table,
		Steps:       endpointmanager.Steps{ipam.NewStep(a.allocator), simLinkStep{n, a}, gatedStep{n, a}},
		Subscribers: []endpointmanager.Subscriber{a.published},
	}, n.disk, func(write string) error { return n.pass(a.process, write) }, n.boot)
	go n.run(a)
}

// run is the agent's main function.
func (n *simNode) run(a *simAgent) {
	err := a.service.Start(context.Background())
	close(a.started)
	if err != nil || n.isDead(a.process) {
		return
	}
	n.mu.Lock()
	a.serving = true
	n.mu.Unlock()
	n.say("%s serves", a.name)
	endpointmanager.Serving(a.service)
}

// crash kills the agent. What is left of it as a program ends with errors, and without an effect.
func (n *simNode) crash() {
	a := n.current()
	n.mu.Lock()
	n.agent = nil
	n.mu.Unlock()
	n.kill(a.process)
	go func() {
		<-a.started
		_ = a.service.Stop(context.Background())
	}()
	synctest.Wait() // what it had locked is free before another agent or plugin tries
}

func (n *simNode) current() *simAgent {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.agent
}

// serves returns the agent that answers, or nil.
func (n *simNode) serves() *simAgent {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent == nil || !n.agent.serving {
		return nil
	}
	return n.agent
}

// gatedStep is the datapath's step, each of whose effects on the kernel waits for its turn.
type gatedStep struct {
	node  *simNode
	agent *simAgent
}

func (g gatedStep) of(what string) *datapath.Step {
	gate := func(effect string) error { return g.node.pass(g.agent.process, "kernel."+effect+" "+what) }
	k := g.node.kernel
	return datapath.NewStep(gatedLinks{k, gate}, gatedMaps{k, gate}, k, slog.New(slog.DiscardHandler))
}

func (g gatedStep) Name() string { return "datapath" }

func (g gatedStep) Attach(ctx context.Context, ep endpointmanager.Endpoint, netns *endpointmanager.Namespace) (endpointmanager.Endpoint, error) {
	return g.of(ep.Spec.Attachment.String()).Attach(ctx, ep, netns)
}

func (g gatedStep) Detach(ctx context.Context, ep endpointmanager.Endpoint, cfg endpointmanager.DeleteConfig) error {
	return g.of(ep.Spec.Attachment.String()).Detach(ctx, ep, cfg)
}

func (g gatedStep) Restore(ctx context.Context, ep endpointmanager.Endpoint) ([]string, error) {
	return g.of(ep.Spec.Attachment.String()).Restore(ctx, ep)
}

func (g gatedStep) Prune(ctx context.Context, live []endpointmanager.Endpoint) ([]string, error) {
	if err := g.node.pass(g.agent.process, "kernel.Prune"); err != nil {
		return nil, err
	}
	return datapath.NewStep(g.node.kernel, g.node.kernel, g.node.kernel, slog.New(slog.DiscardHandler)).Prune(ctx, live)
}

type (
	allLinks = datapath.Links // by another name, for it has a method of its own
	allMaps  = datapath.Maps
)

type gatedLinks struct {
	allLinks
	gate func(string) error
}

func (l gatedLinks) Link(index int) (netlink.Link, error) {
	if err := l.gate("Link"); err != nil {
		return nil, err
	}
	return l.allLinks.Link(index)
}

func (l gatedLinks) Wire(e datapath.Entry) error {
	if err := l.gate("Wire"); err != nil {
		return err
	}
	return l.allLinks.Wire(e)
}

func (l gatedLinks) Rewire(e datapath.Entry) ([]string, error) {
	if err := l.gate("Rewire"); err != nil {
		return nil, err
	}
	return l.allLinks.Rewire(e)
}

func (l gatedLinks) Unwire(e datapath.Entry) {
	if err := l.gate("Unwire"); err == nil {
		l.allLinks.Unwire(e)
	}
}

func (l gatedLinks) BringDown(index int) error {
	if err := l.gate("BringDown"); err != nil {
		return err
	}
	return l.allLinks.BringDown(index)
}

type gatedMaps struct {
	allMaps
	gate func(string) error
}

func (m gatedMaps) Put(e datapath.Entry) error {
	if err := m.gate("Put"); err != nil {
		return err
	}
	return m.allMaps.Put(e)
}

func (m gatedMaps) Mend(e datapath.Entry) ([]string, error) {
	if err := m.gate("Mend"); err != nil {
		return nil, err
	}
	return m.allMaps.Mend(e)
}

func (m gatedMaps) Delete(link int, id uint16) error {
	if err := m.gate("Delete"); err != nil {
		return err
	}
	return m.allMaps.Delete(link, id)
}

// publisher publishes endpoints by pod, as a simple subscriber would: it relies on being told in order.
type publisher struct {
	mu    sync.Mutex // guards the field below
	byPod map[string]string
}

func newPublisher() *publisher { return &publisher{byPod: map[string]string{}} }

func (p *publisher) EndpointCreated(ep endpointmanager.Endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byPod[ep.Spec.Pod.UID] = ep.Spec.Attachment.String()
}

func (p *publisher) EndpointRestored(ep endpointmanager.Endpoint) { p.EndpointCreated(ep) }

func (p *publisher) EndpointDeleted(ep endpointmanager.Endpoint, _ endpointmanager.DeleteConfig) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byPod, ep.Spec.Pod.UID)
}
