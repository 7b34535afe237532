package bpf_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/oracle"
	"porin.dev/porin/cells/policy/policymap"
	"porin.dev/porin/internal/testutil"
)

var (
	seed  = flag.Uint64("seed", 0, "seed of the random policies and packets; 0: another one in each run")
	cases = flag.Int("cases", 0, "number of packets of random policies; 0: 100,000 with FULL=1, else 20,000")
)

// TestPolicyOracle compares what the programs do with packets with what the slow evaluator says about them, under
// random policies that change.
func TestPolicyOracle(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Uint64()
	}
	t.Logf("-seed=%d", first)
	packets := *cases
	if packets == 0 {
		packets = 20_000
		if testutil.Full() {
			packets = 100_000
		}
	}
	c := newCluster(t)
	seen := map[string]int{}
	for n := uint64(0); c.asked < packets && !t.Failed(); n++ {
		c.compare(t, first+n, seen)
	}
	for what, least := range map[string]int{"shortcut": 1000, "through the stack": 1000, "to the uplink": 1000, "from outside": 1000, "from the node": 10_000} {
		for _, verdict := range []string{"allowed", "denied", "redirected"} {
			if verdict == "redirected" && what == "from the node" {
				continue // only where policies apply to the node, too
			}
			if n := seen[what+", "+verdict]; n < packets/least {
				t.Errorf("-seed=%d: %d packets %s were %s: too few", first, n, what, verdict)
			}
		}
	}
}

// cluster is the programs with links for as many pods as there are random endpoints, and one uplink.
type cluster struct {
	*fixture
	links    []party // by number, less one
	uplink   party
	requests map[*ebpf.Program]*ebpf.Program // the programs behind the program that sets tc_index
	writer   *policymap.Writer
	numbers  map[string]uint16 // of local pods
	asked    int
}

func newCluster(t *testing.T, switches ...string) *cluster {
	c := &cluster{fixture: load(t, switches...), requests: map[*ebpf.Program]*ebpf.Program{}}
	for _, addr := range []netip.Addr{c.alice.ip4, c.alice.ip6, c.bob.ip4, c.bob.ip6} {
		if err := c.objects.Endpoints.Delete(addr.As16()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 16 {
		p := party{id: uint16(i + 1), mac: mac(byte(0x40 + i)), hostMAC: mac(byte(0x60 + i))}
		p.index = addLink(t, c.netns, 3+i, &p)
		c.links = append(c.links, p)
	}
	c.maxID = uint16(len(c.links))
	c.uplink = party{mac: mac(0x80), hostMAC: mac(0x81)}
	c.uplink.index = addLink(t, c.netns, 20, &c.uplink)
	proxy := party{mac: mac(0x82), hostMAC: mac(0x83)}
	if err := c.objects.ProxyLink.Put(uint32(0), uint32(addLink(t, c.netns, 21, &proxy))); err != nil {
		t.Fatal(err)
	}
	for _, prog := range []*ebpf.Program{c.objects.ToPod, c.objects.ToUplink} {
		c.requests[prog] = asRequest(t, prog)
	}
	return c
}

// asRequest returns a program that takes tc_index, which a test run does not set, from the mark, and goes on with prog.
func asRequest(t *testing.T, prog *ebpf.Program) *ebpf.Program {
	t.Helper()
	calls, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { calls.Close() })
	const mark, tcIndex = 8, 44 // in struct __sk_buff
	wrapper, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, mark, asm.Word),
		asm.StoreMem(asm.R1, tcIndex, asm.R2, asm.Word),
		asm.LoadMapPtr(asm.R2, calls.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, 99),
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { wrapper.Close() })
	if err := calls.Put(uint32(0), prog); err != nil {
		t.Fatal(err)
	}
	return wrapper
}

func (c *cluster) newWriter() *policymap.Writer {
	o := &c.objects
	return policymap.New(policymap.Maps{
		Policies: o.Policies, ActiveCopy: o.ActiveCopy, Addresses: o.Addresses, Prefixes: o.Prefixes, Tables: o.Tables, Rows: o.Rows,
	})
}

// compare makes random changes to a world, and sends packets after each.
func (c *cluster) compare(t *testing.T, seed uint64, seen map[string]int) {
	t.Helper()
	r := oracle.NewRandom(seed)
	world := oracle.World{HostPolicy: r.IntN(4) == 0, AllowUnmanaged: r.IntN(2) == 0}
	e := engine.New(engine.Config{HostPolicy: world.HostPolicy, AllowUnmanaged: world.AllowUnmanaged})
	c.writer, c.numbers = c.newWriter(), map[string]uint16{}
	for range 1 + r.IntN(6) {
		u := randomUpdate(r, &world)
		change := e.Apply(u)
		c.registerPods(t, world)
		if r.IntN(8) == 0 {
			c.writer = c.newWriter() // the agent is restarted
		}
		if err := c.writer.Apply(e, &change, c.numbers); err != nil {
			t.Fatalf("-seed=%d: %v", seed, err)
		}
		for range 20 {
			if fault := c.send(t, world, r.Connection(world), uint16(1+r.IntN(60000)), seen); fault != "" {
				t.Errorf("-seed=%d: %s", seed, fault)
				return
			}
		}
	}
}

// registerPods gives local pods numbers and links.
func (c *cluster) registerPods(t *testing.T, world oracle.World) {
	t.Helper()
	clear(c.numbers)
	for _, p := range c.links {
		for _, addr := range []netip.Addr{p.ip4, p.ip6} {
			if addr.IsValid() {
				_ = c.objects.Endpoints.Delete(addr.As16())
			}
		}
		_ = c.objects.Links.Delete(uint32(p.index))
	}
	for _, ep := range world.Endpoints {
		if !ep.Local || ep.Kind != model.Pod && ep.Kind != model.Init {
			continue
		}
		var i int
		fmt.Sscanf(ep.Key, "e%d", &i)
		c.numbers[ep.Key] = uint16(i + 1)
		p := &c.links[i]
		p.ip4, p.ip6 = netip.Addr{}, netip.Addr{}
		for _, addr := range ep.Addresses {
			if addr.Is4() {
				p.ip4 = addr
			} else {
				p.ip6 = addr
			}
		}
		c.register(t, *p)
	}
}

// send has the programs decide about a packet that opens a connection, and compares.
func (c *cluster) send(t *testing.T, world oracle.World, what oracle.Connection, source uint16, seen map[string]int) string {
	t.Helper()
	if what.From.Is4() != what.To.Is4() || what.From == what.To ||
		what.Protocol == model.ICMP && !what.From.Is4() || what.Protocol == model.ICMPv6 && what.From.Is4() {
		return ""
	}
	from, to := c.owner(world, what.From), c.owner(world, what.To)
	fromPod, toPod := c.podOf(from), c.podOf(to)
	if from != nil && to != nil && from.Key == to.Key || fromPod == nil && toPod == nil {
		return ""
	}
	egress, ingress := world.Evaluate(what)
	want := "allowed"
	switch {
	case fromPod != nil && !egress.Allowed || toPod != nil && !ingress.Allowed:
		want = "denied"
	case fromPod != nil && egress.Layer7 != "" || toPod != nil && ingress.Layer7 != "":
		want = "redirected"
	}
	check := func(path string, verdict uint32, names map[uint32]string) string {
		got := cmp.Or(names[verdict], fmt.Sprint("verdict ", verdict))
		c.asked++
		seen[path+", "+got]++
		if got == want {
			return ""
		}
		return fmt.Sprintf("%s -> %s %s %d, %s: the oracle says %s: egress %+v, ingress %+v; the programs say %s", what.From, what.To, what.Protocol, what.Port, path,
			want, egress, ingress, got)
	}
	// A packet for the proxy takes no shortcut: to_pod or to_uplink redirects it.
	fromPodSays := map[uint32]string{deliver: "allowed", dropped: "denied", toStack: "redirected"}
	toPodSays := map[uint32]string{toStack: "allowed", dropped: "denied", deliver: "redirected"}
	toUplinkSays := map[uint32]string{toNext: "allowed", dropped: "denied", deliver: "redirected"}
	defer c.forgetConnections(t)
	if fromPod != nil {
		if err := c.objects.DeniedCounts.Put(uint32(fromPod.id), [2]uint32{}); err != nil {
			t.Fatal(err)
		}
	}
	switch {
	case fromPod != nil && toPod != nil:
		verdict, _ := c.run(t, c.objects.FromPod, *fromPod, opening(fromPod.mac, fromPod.hostMAC, what, source))
		undecided := verdict == toStack && !what.Protocol.HasPorts() // such a protocol takes no shortcut
		if !undecided {
			fault := check("shortcut", verdict, fromPodSays)
			if fault != "" {
				return fault
			}
		}
		c.forgetConnections(t)
		return check("through the stack", c.request(t, c.objects.ToPod, *toPod, fromPod, opening(toPod.hostMAC, toPod.mac, what, source)), toPodSays)
	case fromPod != nil:
		verdict, _ := c.run(t, c.objects.FromPod, *fromPod, opening(fromPod.mac, fromPod.hostMAC, what, source))
		if verdict != toStack {
			return fmt.Sprintf("%s -> %s: verdict %d of from_pod, want the stack", what.From, what.To, verdict)
		}
		return check("to the uplink", c.request(t, c.objects.ToUplink, c.uplink, fromPod, opening(c.uplink.hostMAC, c.uplink.mac, what, source)), toUplinkSays)
	case from != nil && from.Kind == model.Host:
		verdict, _ := c.run(t, c.objects.ToPod, *toPod, opening(toPod.hostMAC, toPod.mac, what, source))
		return check("from the node", verdict, toPodSays)
	}
	verdict := c.runFrom(t, c.objects.ToPod, *toPod, skBuff{IngressIfindex: uint32(c.uplink.index)}, opening(toPod.hostMAC, toPod.mac, what, source))
	return check("from outside", verdict, toPodSays)
}

func (c *cluster) owner(world oracle.World, addr netip.Addr) *model.Endpoint {
	for i, ep := range slices.Backward(world.Endpoints) {
		if slices.Contains(ep.Addresses, addr) {
			return &world.Endpoints[i]
		}
	}
	return nil
}

// podOf is the link of a local pod.
func (c *cluster) podOf(ep *model.Endpoint) *party {
	if ep == nil || !ep.Local || ep.Kind != model.Pod && ep.Kind != model.Init {
		return nil
	}
	return &c.links[c.numbers[ep.Key]-1]
}

// request runs a program on a packet that a pod has sent through the stack.
func (c *cluster) request(t *testing.T, prog *ebpf.Program, link party, sender *party, frame []byte) uint32 {
	t.Helper()
	return c.runFrom(t, c.requests[prog], link, skBuff{Mark: uint32(sender.id), IngressIfindex: uint32(sender.index)}, frame)
}

// opening is a packet that opens a connection.
func opening(srcMAC, dstMAC []byte, what oracle.Connection, source uint16) []byte {
	src, dst := netip.AddrPortFrom(what.From, source), netip.AddrPortFrom(what.To, what.Port)
	network, typ := network(what.From, what.To, layers.IPProtocol(what.Protocol))
	var transport gopacket.Payload
	switch what.Protocol {
	case model.TCP:
		return segment(srcMAC, dstMAC, src, dst, syn)
	case model.UDP:
		return udpSegment(srcMAC, dstMAC, src, dst)
	case model.ICMP:
		transport = gopacket.Payload{8, 0, 0, 0, byte(source >> 8), byte(source), 0, 1}
	case model.ICMPv6:
		transport = gopacket.Payload{128, 0, 0, 0, byte(source >> 8), byte(source), 0, 1}
	case model.SCTP:
		init := make([]byte, 32)
		init[0], init[1], init[2], init[3], init[12] = byte(source>>8), byte(source), byte(what.Port>>8), byte(what.Port), 1
		transport = gopacket.Payload(init)
	default:
		transport = gopacket.Payload(make([]byte, 16))
	}
	return frame(ether(srcMAC, dstMAC, typ), network, transport)
}

// randomUpdate makes a few changes. An endpoint has at most one address of a family, as pods have.
func randomUpdate(r oracle.Random, w *oracle.World) (u engine.Update) {
	if len(w.Policies) > 0 && r.IntN(2) == 0 {
		i := r.IntN(len(w.Policies))
		u.RemovePolicies = append(u.RemovePolicies, w.Policies[i].ID)
		w.Policies = slices.Delete(w.Policies, i, i+1)
	}
	if len(w.Endpoints) > 0 && r.IntN(2) == 0 {
		i := r.IntN(len(w.Endpoints))
		u.RemoveEndpoints = append(u.RemoveEndpoints, w.Endpoints[i].Key)
		w.Endpoints = slices.Delete(w.Endpoints, i, i+1)
	}
	for range r.IntN(5) {
		p := r.Policy()
		u.SetPolicies = append(u.SetPolicies, p)
		w.Policies = append(slices.DeleteFunc(w.Policies, func(old model.Policy) bool { return old.ID == p.ID }), p)
	}
	for range 1 + r.IntN(8) {
		ep := r.Endpoint()
		taken := map[bool]bool{}
		ep.Addresses = slices.DeleteFunc(ep.Addresses, func(a netip.Addr) bool {
			again := taken[a.Is4()]
			taken[a.Is4()] = true
			return again
		})
		u.SetEndpoints = append(u.SetEndpoints, ep)
		w.Endpoints = slices.DeleteFunc(w.Endpoints, func(old model.Endpoint) bool { return old.Key == ep.Key })
		for i, old := range w.Endpoints {
			w.Endpoints[i].Addresses = slices.DeleteFunc(slices.Clone(old.Addresses), func(a netip.Addr) bool { return slices.Contains(ep.Addresses, a) })
		}
		w.Endpoints = append(w.Endpoints, ep)
	}
	for _, cidr := range r.Unmanaged() {
		if i := slices.Index(w.Unmanaged, cidr); i >= 0 {
			u.RemoveUnmanaged = append(u.RemoveUnmanaged, cidr)
			w.Unmanaged = slices.Delete(w.Unmanaged, i, i+1)
		} else {
			u.SetUnmanaged = append(u.SetUnmanaged, cidr)
			w.Unmanaged = append(w.Unmanaged, cidr)
		}
	}
	return u
}
