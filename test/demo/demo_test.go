// Package demo tells the story of a node, line by line, and is a test of it: a line that says that something is so
// has checked it. `sudo make demo` shows it, `make test` runs it.
package demo

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.Binaries(), testutil.HostUntouched()) }

// reach bounds how long one packet or connection may take.
const reach = testutil.Patience

func TestDemo(t *testing.T) {
	testutil.Root(t)
	began := time.Now()
	s := &story{T: t, bin: testutil.Build(t)}
	s.chapter("A node: a network namespace of its own, with a BPF file system of its own")
	s.node = testutil.NewNode(t)
	s.say("%s has %s and %s", s.node.Name, s.node.IPv4, s.node.IPv6)

	s.chapter("The agent starts in it")
	s.agent = s.node.StartAgent(t, s.bin)
	s.say("porin-agent is ready after %s, process %d; pods are numbered from %s and %s",
		short(s.agent.Started), s.agent.PID(), s.node.PodIPv4, s.node.PodIPv6)

	s.chapter("Two containers are attached by porin-cni, called through libcni as a container runtime does")
	s.attach("web")
	s.attach("db")
	s.cli("endpoint", "list")
	s.cli("ipam", "list")
	s.phases()

	s.chapter("They reach each other and the node, by ICMP and TCP, over IPv4 and IPv6")
	s.traffic()

	s.chapter("The agent is killed in the middle of a TCP stream, and comes back")
	s.killed()

	s.chapter("Both are detached, and nothing is left")
	s.detached()
	s.say("done in %s", short(time.Since(began)))
}

// story is the demo's cast.
type story struct {
	*testing.T
	bin        string
	node       *testutil.Node
	agent      *testutil.Agent
	containers []*container
}

type container struct {
	*testutil.Container
	name       string
	ipv4, ipv6 netip.Addr
	took       time.Duration
}

func (s *story) chapter(title string) { fmt.Printf("\n== %s\n", title) }

func (s *story) say(format string, args ...any) { fmt.Printf("   "+format+"\n", args...) }

func (s *story) must(err error, doing string) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", doing, err)
	}
}

func short(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

func (s *story) attach(name string) {
	cni := s.node.NewCNI(s, testutil.CNIConfig{Bin: s.bin})
	c := &container{Container: testutil.NewContainer(s), name: name}
	c.Args = [][2]string{{"K8S_POD_NAMESPACE", "demo"}, {"K8S_POD_NAME", name}}
	began := time.Now()
	result := cni.MustAdd(s, c.Container)
	c.took = time.Since(began)
	for _, ip := range result.IPs {
		addr, _ := netip.AddrFromSlice(ip.Address.IP)
		if addr = addr.Unmap(); addr.Is4() {
			c.ipv4 = addr
		} else {
			c.ipv6 = addr
		}
	}
	s.containers = append(s.containers, c)
	s.say("ADD of %s took %s: %s and %s", name, short(c.took), c.ipv4, c.ipv6)
}

// cli runs the operator's command line and shows what it prints.
func (s *story) cli(args ...string) {
	out, err := s.run(args...)
	s.must(err, "porin "+strings.Join(args, " "))
	fmt.Printf("\n   $ porin %s\n%s\n", strings.Join(args, " "), indent(out))
}

func indent(text string) string {
	return "   " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n   ")
}

// phases shows what the agent says that each part of each ADD took.
func (s *story) phases() {
	for _, event := range s.events() {
		if event.Type != v1.EventEndpointCreated {
			continue
		}
		var parts []string
		for _, phase := range event.Phases {
			parts = append(parts, fmt.Sprintf("%s %s", phase.Name, phase.Duration.Round(time.Microsecond)))
		}
		s.say("phases of the ADD of %s: %s", event.Endpoint.Pod.Name, strings.Join(parts, ", "))
	}
}

func (s *story) traffic() {
	web, db := s.containers[0], s.containers[1]
	for _, to := range []netip.Addr{db.ipv4, db.ipv6, s.node.IPv4, s.node.IPv6} {
		s.must(testutil.Ping(web.Namespace, to, reach), "ping")
		s.say("web pings %s", to)
	}
	for _, addr := range []netip.Addr{db.ipv4, db.ipv6} {
		s.must(testutil.RoundTrip(web.Namespace, db.Echo(s, addr), reach), "TCP")
		s.say("web talks TCP to db at %s", addr)
		s.must(testutil.RoundTrip(s.node.Namespace, db.Echo(s, addr), reach), "TCP")
		s.say("the node talks TCP to db at %s", addr)
	}
	for _, addr := range []netip.Addr{s.node.IPv4, s.node.IPv6} {
		s.must(testutil.RoundTrip(web.Namespace, s.node.Echo(s, addr), reach), "TCP")
		s.say("web talks TCP to the node at %s", addr)
	}
}

func (s *story) detached() {
	programs := s.status().Datapath.Programs
	for _, c := range s.containers {
		began := time.Now()
		s.node.NewCNI(s, testutil.CNIConfig{Bin: s.bin}).MustDel(s, c.Container)
		s.say("DEL of %s took %s", c.name, short(time.Since(began)))
	}
	s.cli("endpoint", "list")
	s.nothingLeft()
	s.agent.Stop(s)
	s.say("the agent stopped; its programs stay in the BPF file system, for the next one")
	s.must(os.RemoveAll(s.node.BPFRoot), "remove the pins")
	s.programsGone(programs)
}
