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
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/endpointmanager/ledger/ledgertest"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/policy"
)

// simNode is a node without a kernel: what outlives the agent, and the agent that runs. The cells are the real ones.
type simNode struct {
	*scheduler
	dir    string
	fault  simFault
	kernel *datapathtest.Kernel
	disk   *ledgertest.Disk
	epoch  time.Time

	policies simPolicies

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
	policies  *policy.Queue
	manifests *policy.Policies
	published *publisher
	started   chan struct{} // closed when Start has returned
	serving   bool          // guarded by the node's lock

	proxyHangs bool
	mu         sync.Mutex      // guards the field below
	prepared   map[uint32]bool // numbers of layer 7 rules that the proxy has
}

func newSimNode(s *scheduler, dir string, fault simFault) *simNode {
	return &simNode{scheduler: s, dir: dir, fault: fault, kernel: &datapathtest.Kernel{}, disk: ledgertest.NewDisk(), epoch: time.Now(), policies: simPolicies{of: map[uint16]string{}}}
}

// boot is the node's boot clock.
func (n *simNode) boot() time.Duration { return time.Hour + time.Since(n.epoch) }

// start starts an agent, which serves some time later.
func (n *simNode) start() {
	n.mu.Lock()
	n.lives++
	a := &simAgent{process: &process{name: fmt.Sprintf("agent%d", n.lives)}, table: endpointmanager.NewTable(), published: newPublisher(n.say), started: make(chan struct{}), prepared: map[uint32]bool{}}
	a.proxyHangs = n.rng.IntN(5) == 0
	n.agent = a
	n.mu.Unlock()
	cfg := ipam.DefaultConfig()
	cfg.PodCIDRs, cfg.Quarantine = []string{"10.0.0.0/27"}, time.Second
	var err error
	if a.allocator, err = ipam.New(cfg, nil); err != nil {
		panic(err)
	}
	a.policies = n.policyQueue(a)
	a.manifests = policy.New(policy.Config{}, a.policies, slog.New(slog.DiscardHandler))
	a.policies.Start(nil)
	config := endpointmanager.DefaultConfig()
	config.MaxEndpoints = 5                     // numbers come round again
	config.StateDir, config.Parallel = n.dir, 4 // whose turn it is would depend on goroutines, were there fewer places than containers

	a.service = endpointmanager.NewOn(endpointmanager.Params{
		Config: config, Log: slog.New(slog.DiscardHandler), Table: a.table,
		Steps:       endpoint.Steps{ipam.NewStep(ipam.NewSource(cfg, a.allocator, nil)), simLinkStep{n, a}, gatedPolicyStep{policy.NewStep(a.policies), n, a}, n.datapathStep(a)},
		Subscribers: []endpoint.Subscriber{n.subscriberOf(a)},
	}, n.disk, func(write string) error {
		if n.fault.toldEarly {
			n.tellEarly(a, write)
		}
		return n.pass(a.process, write)
	}, n.boot)
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

// crash kills the agent. Its goroutines end with errors, and without an effect.
func (n *simNode) crash() {
	a := n.current()
	n.mu.Lock()
	n.agent = nil
	n.mu.Unlock()
	endpointmanager.Dying(a.service)
	n.kill(a.process)
	go func() {
		<-a.started
		_ = a.service.Stop(context.Background())
		_ = a.policies.Stop(context.Background())
	}()
	synctest.Wait() // its locks are free before another agent or plugin tries
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

func (n *simNode) datapathStep(a *simAgent) endpoint.Step {
	step := gatedStep{n, a}
	if n.fault.datapath != nil {
		return n.fault.datapath(step)
	}
	return step
}

func (g gatedStep) of(what string) *datapath.Step {
	gate := func(effect string) error { return g.node.pass(g.agent.process, "kernel."+effect+" "+what) }
	k := g.node.kernel
	return datapath.NewStep(gatedLinks{k.Links(), gate}, gatedMaps{k.Maps(), gate}, k, slog.New(slog.DiscardHandler))
}

func (g gatedStep) Name() string { return "datapath" }

func (g gatedStep) Attach(ctx context.Context, ep endpoint.Endpoint, netns *endpoint.Namespace) (endpoint.Endpoint, error) {
	return g.of(ep.Spec.Attachment.String()).Attach(ctx, ep, netns)
}

func (g gatedStep) Detach(ctx context.Context, ep endpoint.Endpoint, cfg endpoint.DeleteConfig) error {
	return g.of(ep.Spec.Attachment.String()).Detach(ctx, ep, cfg)
}

func (g gatedStep) Restore(ctx context.Context, ep endpoint.Endpoint) ([]string, error) {
	return g.of(ep.Spec.Attachment.String()).Restore(ctx, ep)
}

func (g gatedStep) Prune(ctx context.Context, live []endpoint.Endpoint) ([]string, error) {
	if err := g.node.pass(g.agent.process, "kernel.Prune"); err != nil {
		return nil, err
	}
	k := g.node.kernel
	return datapath.NewStep(k.Links(), k.Maps(), k, slog.New(slog.DiscardHandler)).Prune(ctx, live)
}

type gatedLinks struct {
	datapath.Links
	gate func(string) error
}

func (l gatedLinks) Link(index int) (netlink.Link, error) {
	if err := l.gate("Link"); err != nil {
		return nil, err
	}
	return l.Links.Link(index)
}

func (l gatedLinks) Update(e datapath.Entry) error {
	if err := l.gate("Links.Update"); err != nil {
		return err
	}
	return l.Links.Update(e)
}

func (l gatedLinks) Compare(e datapath.Entry) ([]datapath.Difference, error) {
	if err := l.gate("Links.Compare"); err != nil {
		return nil, err
	}
	return l.Links.Compare(e)
}

func (l gatedLinks) Delete(e datapath.Entry) error {
	if err := l.gate("Links.Delete"); err != nil {
		return err
	}
	return l.Links.Delete(e)
}

func (l gatedLinks) BringDown(index int) error {
	if err := l.gate("BringDown"); err != nil {
		return err
	}
	return l.Links.BringDown(index)
}

type gatedMaps struct {
	datapath.Maps
	gate func(string) error
}

func (m gatedMaps) Update(e datapath.Entry) error {
	if err := m.gate("Maps.Update"); err != nil {
		return err
	}
	return m.Maps.Update(e)
}

func (m gatedMaps) Compare(e datapath.Entry) ([]datapath.Difference, error) {
	if err := m.gate("Maps.Compare"); err != nil {
		return nil, err
	}
	return m.Maps.Compare(e)
}

func (m gatedMaps) Delete(e datapath.Entry) error {
	if err := m.gate("Maps.Delete"); err != nil {
		return err
	}
	return m.Maps.Delete(e)
}

// publisher publishes endpoints by pod, as a simple subscriber would: it relies on being told in order, and once.
type publisher struct {
	say func(format string, args ...any)

	mu    sync.Mutex // guards the fields below
	byPod map[string]string
	ended map[string]bool
	lives map[string]time.Time // of attachments: when the latest life that was told began
}

func newPublisher(say func(string, ...any)) *publisher {
	return &publisher{say: say, byPod: map[string]string{}, ended: map[string]bool{}, lives: map[string]time.Time{}}
}

func (p *publisher) EndpointCreated(ep endpoint.Endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byPod[ep.Spec.Pod.UID] = ep.Spec.Attachment.String()
	delete(p.ended, ep.Spec.Attachment.String())
	p.lives[ep.Spec.Attachment.String()] = ep.Created
}

func (p *publisher) EndpointRestored(ep endpoint.Endpoint) { p.EndpointCreated(ep) }

func (p *publisher) EndpointUpdated(endpoint.Endpoint) {}

func (p *publisher) EndpointDeleted(ep endpoint.Endpoint, _ endpoint.DeleteConfig) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byPod, ep.Spec.Pod.UID)
	if a := ep.Spec.Attachment.String(); p.ended[a] {
		p.say("the agent breaks a promise: subscribers are told twice of the end of %s", a)
	} else {
		p.ended[a] = true
	}
}

func (p *publisher) knows(ep endpoint.Endpoint) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lives[ep.Spec.Attachment.String()].Equal(ep.Created)
}
