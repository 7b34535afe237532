package crash

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/test/nodecheck"
)

const (
	reach  = testutil.Patience // bounds whatever is waited for
	settle = 10 * time.Second  // bounds how long what is going may still be there; a busy machine takes some
)

// scene is a node with an agent and a runtime, both under a tracer, and pods that live all the time.
type scene struct {
	t         *testing.T
	mode      []string               // flags of the agent: where its addresses come from
	pools     *pools                 // of the cluster; nil in another mode
	api       *kubernetestest.Server // of the cluster; nil without Kubernetes
	frontend  *kubernetestest.Frontend
	records   cluster.Backend // at the API server
	peers     func() error    // changes the record of another node there
	others    []nodecheck.OtherNode
	node      *testutil.Node
	agent     *testutil.Agent
	cni       *testutil.CNI
	checker   *nodecheck.Checker
	agents    *tracer
	plugins   *tracer
	hit       *effect // at which the victim of the operation was killed
	live      []nodecheck.Pod
	spare     []*testutil.Namespace // of containers that come and go
	guests    []*testutil.Container // that came for the point
	redirects bool                  // connections from the second pod to the first one go through the proxy
	// guestCaps are what guests ask for besides; nil is nothing.
	guestCaps map[string]any
}

// newScene has a node with CIDRs of its own, and policies.
func newScene(t *testing.T, pods int) *scene {
	t.Helper()
	s := prepareScene(t, testutil.NewFabric)
	s.mode = s.ownCIDRs()
	s.begin()
	s.restrict(ingressPolicies)
	s.settleIn(pods)
	return s
}

// ownCIDRs are the flags of a node with CIDRs of its own.
func (s *scene) ownCIDRs() []string {
	return []string{"--ipam-pod-cidr=" + s.node.PodIPv4.String() + "," + s.node.PodIPv6.String(), "--ipam-quarantine=0s"}
}

func prepareScene(t *testing.T, fabric func(testing.TB) *testutil.Fabric) *scene {
	t.Helper()
	testutil.Root(t)
	s := &scene{t: t, node: fabric(t).NewNode(t), agents: &tracer{}, plugins: &tracer{}}
	t.Cleanup(func() { s.agents.end(); s.plugins.end() })
	s.checker = nodecheck.New(t, s.node)
	s.spare = []*testutil.Namespace{testutil.NetNS(t), testutil.NetNS(t)}
	return s
}

// begin starts the agent, and gives the node a runtime.
func (s *scene) begin() {
	t := s.t
	t.Helper()
	bin := testutil.Build(t)
	s.cni = s.node.NewCNI(t, testutil.CNIConfig{Bin: bin, Wrap: s.plugins.wrapArmed})
	s.agent = s.node.NewAgent(bin, s.flags()...)
	s.agent.Wrap = s.agents.wrap
	t.Cleanup(func() {
		s.agent.End()
		if t.Failed() {
			t.Logf("log of the agent on %s, all its lives:\n%s", s.node.Name, tail(s.agent.Log(), 4000))
		}
	})
	s.agent.Start(t)
}

// settleIn attaches the pods that live all the time.
func (s *scene) settleIn(pods int) {
	s.t.Helper()
	for range pods {
		c := testutil.NewContainer(s.t)
		c.Args = s.podOf(residents, c.ID[:16])
		p, err := s.add(c)
		if err != nil {
			s.t.Fatal(err)
		}
		s.live = append(s.live, p)
	}
}

// flags make the agent give every freed address out again at once, so that the test sees an address that is freed too
// early. The doctor only reports: a repair would hide a leak.
func (s *scene) flags(more ...string) []string {
	return slices.Concat(s.mode, smallMaps, []string{"--doctor-repair=false", "--log-level=warn"}, more)
}

// smallMaps are quicker to make, and to look through.
var smallMaps = []string{"--max-endpoints=512", "--datapath-max-connections=1024"}

func tail(text string, n int) string { return text[max(0, len(text)-n):] }

// fresh is a container with a new ID, in one of the spare namespaces.
func (s *scene) fresh(spare int) *testutil.Container {
	c := &testutil.Container{Namespace: s.spare[spare], ID: testutil.NewContainerID(), IfName: "eth0"}
	c.Args, c.Caps = s.podOf(guests, c.ID[:16]), s.guestCaps
	s.guests = append(s.guests, c)
	return c
}

func (s *scene) add(c *testutil.Container) (nodecheck.Pod, error) {
	result, err := s.cni.Add(c)
	if err != nil {
		return nodecheck.Pod{}, fmt.Errorf("ADD of %.12s: %w", c.ID, err)
	}
	return nodecheck.PodOf(c, result)
}

func (s *scene) del(c *testutil.Container) error {
	if err := s.cni.Del(c); err != nil {
		return fmt.Errorf("DEL of %.12s: %w", c.ID, err)
	}
	return nil
}

// gc tells the network that the live pods alone are valid, as a runtime that has lost its cache does: some runs in a
// row, as one alone may be held back.
func (s *scene) gc() (err error) {
	config := gcConfig(s.node, s.live)
	for range 3 {
		if _, err = s.cni.Exec("GC", nil, config); err == nil || s.agents.wasHit() || s.plugins.wasHit() {
			return err
		}
	}
	return fmt.Errorf("GC: %w", err)
}

// agentDies waits for the end of an agent that was hit. Another is killed now: right after its last effect.
func (s *scene) agentDies() error {
	if s.hit != nil && !s.agent.Ended(reach) {
		return errors.New("the agent lives though it was killed")
	}
	s.agent.End()
	return nil
}

// stop has the agent end in order.
func (s *scene) stop() {
	_ = unix.Kill(s.agent.PID(), unix.SIGTERM)
	s.agent.Ended(reach)
}

// restart starts the next agent, which no test kills.
func (s *scene) restart() error {
	s.agent.End()
	if err := s.agent.TryStart(); err != nil {
		return fmt.Errorf("start the next agent: %w; its log ends with\n%s", err, tail(s.agent.Log(), 1000))
	}
	return nil
}

// check compares ledger and kernel with what the runtime holds: the live pods, and those, and perhaps others.
func (s *scene) check(when string, also []nodecheck.Pod, maybe ...*testutil.Container) error {
	want := nodecheck.Want{Live: append(append([]nodecheck.Pod(nil), s.live...), also...), Others: s.others}
	for _, c := range maybe {
		want.Maybe = append(want.Maybe, nodecheck.AttachmentOf(c))
	}
	findings, err := s.checker.Within(settle, want)
	errs := []error{err}
	for _, f := range findings {
		errs = append(errs, errors.New(f.String()))
	}
	if s.pools != nil {
		errs = append(errs, s.pools.agree())
	}
	errs = append(errs, s.hostPortsAgree(want.Live, len(maybe)), s.redirectsWork())
	for _, p := range want.Live {
		errs = append(errs, testutil.Ping(p.Namespace, s.node.IPv4, reach), testutil.Ping(p.Namespace, s.node.IPv6, reach))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w", when, err)
	}
	return nil
}

// gone checks that the runtime's part is done: DEL succeeds, and nothing of the containers is left anywhere.
func (s *scene) gone(all ...*testutil.Container) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, s.del(c))
	}
	errs = append(errs, s.check("after the runtime's DEL", nil))
	for _, c := range all {
		links, err := c.Links()
		if errs = append(errs, err); len(links) != 1 {
			errs = append(errs, fmt.Errorf("links in the container of %.12s: %v, want lo alone", c.ID, testutil.Names(links)))
		}
	}
	return errors.Join(errs...)
}
