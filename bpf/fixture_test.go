package bpf_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/testutil"
)

// party is a pod and the host end of its link, or a host outside.
type party struct {
	id           uint16
	index        int // of the host end
	mac, hostMAC net.HardwareAddr
	ip4, ip6     netip.Addr
}

// The cast. The programs run on the links of alice and of eve.
var (
	alice     = party{id: 1, mac: mac(0xa), hostMAC: mac(0x1a), ip4: addr("10.0.0.1"), ip6: addr("fd00::1")}
	bob       = party{id: 2, mac: mac(0xb), hostMAC: mac(0x1b), ip4: addr("10.0.0.2"), ip6: addr("fd00::2")}
	eve       = party{id: 0, mac: mac(0xe), hostMAC: mac(0x1e), ip4: addr("10.0.0.3"), ip6: addr("fd00::3")} // not registered
	outside   = party{ip4: addr("198.51.100.1"), ip6: addr("2001:db8::1")}
	everybody = party{ip4: addr("255.255.255.255"), ip6: addr("ff02::1")} // on one link
	gateway   = party{ip4: addr("169.254.1.1"), ip6: addr("fe80::1")}
)

func mac(last byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, last} }
func addr(text string) netip.Addr    { return netip.MustParseAddr(text) }

// fixture is the loaded programs, with alice and bob registered.
type fixture struct {
	netns   *testutil.Namespace
	objects struct {
		FromPod   *ebpf.Program `ebpf:"from_pod"`
		ToPod     *ebpf.Program `ebpf:"to_pod"`
		Endpoints *ebpf.Map     `ebpf:"endpoints"`
		Links     *ebpf.Map     `ebpf:"links"`
		Passed    *ebpf.Map     `ebpf:"passed"`
		Drops     *ebpf.Map     `ebpf:"drops"`

		Sweep       *ebpf.Program `ebpf:"sweep"`
		Connections *ebpf.Map     `ebpf:"connections"`
		Slots       *ebpf.Map     `ebpf:"slots"`
		Usage       *ebpf.Map     `ebpf:"usage"`
		Limits      *ebpf.Map     `ebpf:"limits"`

		ToUplink     *ebpf.Program `ebpf:"to_uplink"`
		FromUplink   *ebpf.Program `ebpf:"from_uplink"`
		RemoteBlocks *ebpf.Map     `ebpf:"remote_blocks"`
		Policies     *ebpf.Map     `ebpf:"policies"`
		ActiveCopy   *ebpf.Map     `ebpf:"active_copy"`
		Addresses    *ebpf.Map     `ebpf:"addresses"`
		Prefixes     *ebpf.Map     `ebpf:"prefixes"`
		Tables       *ebpf.Map     `ebpf:"tables"`
		Rows         *ebpf.Map     `ebpf:"rows"`
		Unmanaged    *ebpf.Map     `ebpf:"unmanaged"`
		ProxyLink    *ebpf.Map     `ebpf:"proxy_link"`
		Redirects    *ebpf.Map     `ebpf:"redirected"`

		FlowEvents   *ebpf.Map `ebpf:"flow_events"`
		EventBudgets *ebpf.Map `ebpf:"event_budgets"`
		DeniedCounts *ebpf.Map `ebpf:"denied_counts"`
		KeyQueue     *ebpf.Map `ebpf:"key_queue"`
		Expirer      *ebpf.Map `ebpf:"expirer"`
	}
	cpus            int
	maxID           uint16 // of the pods
	alice, bob, eve party  // with their links
}

func load(t testing.TB, switches ...string) *fixture {
	t.Helper()
	return loadSized(t, 256, switches...)
}

// loadSized loads the programs with room for so many connections, a power of two, and with these variables set to 1.
func loadSized(t testing.TB, connections uint32, switches ...string) *fixture {
	t.Helper()
	f := &fixture{netns: testutil.NetNS(t), maxID: bob.id, alice: alice, bob: bob, eve: eve}
	loadConntrack(t, f.netns)
	spec := specWith(t, gateway.ip4)
	spec.Maps[bpf.Connections].MaxEntries, spec.Maps[bpf.KeyQueue].MaxEntries = connections, connections
	if err := spec.Variables[bpf.KeyQueueMask].Set(connections - 1); err != nil {
		t.Fatal(err)
	}
	for _, name := range switches {
		if err := spec.Variables[name].Set(uint8(1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := spec.LoadAndAssign(&f.objects, nil); err != nil {
		t.Fatalf("load: %+v", err)
	}
	o := &f.objects
	t.Cleanup(func() {
		for _, one := range []io.Closer{
			o.FromPod, o.ToPod, o.Sweep, o.Endpoints, o.Links, o.Passed, o.Drops, o.Connections, o.Slots, o.Usage, o.Limits, o.KeyQueue, o.Expirer,
			o.ToUplink, o.FromUplink, o.RemoteBlocks, o.Policies, o.ActiveCopy, o.Addresses, o.Prefixes, o.Tables, o.Rows, o.Unmanaged, o.ProxyLink, o.Redirects, o.FlowEvents, o.EventBudgets, o.DeniedCounts,
		} {
			one.Close()
		}
	})
	f.cpus, _ = ebpf.PossibleCPU()
	if err := o.Limits.Put(uint32(0), abi.Limits{Common: 16}); err != nil {
		t.Fatal(err)
	}
	for i, p := range []*party{&f.alice, &f.bob, &f.eve} {
		p.index = addLink(t, f.netns, i, p)
	}
	f.register(t, f.alice)
	f.register(t, f.bob)
	return f
}

// loadConntrack has the kernel load its connection tracking, where that is a module.
func loadConntrack(t testing.TB, netns *testutil.Namespace) {
	t.Helper()
	if err := netns.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) }); err != nil {
		t.Fatal(err)
	}
}

// specWith is the object with room in its maps, configured for a node whose kernel has everything.
func specWith(t testing.TB, gateway netip.Addr) *ebpf.CollectionSpec {
	t.Helper()
	spec, err := bpf.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{bpf.Endpoints, bpf.Links, bpf.Passed, bpf.Drops, bpf.Policies, bpf.Connections, bpf.KeyQueue, bpf.Recount} {
		spec.Maps[name].MaxEntries = 256
	}
	if err := errors.Join(spec.Variables[bpf.GatewayIPv4].Set(gateway.As4()), spec.Variables[bpf.ConntrackPresent].Set(uint8(1)),
		spec.Variables[bpf.KeyQueueMask].Set(uint32(255))); err != nil {
		t.Fatal(err)
	}
	return spec
}

// addLink makes a veth pair, as a program runs on a device: by its address the kernel decides who a frame is for.
func addLink(t testing.TB, netns *testutil.Namespace, i int, p *party) int {
	t.Helper()
	name := string(rune('a' + i))
	link, err := netns.AddVeth(testutil.Veth{Name: name, MAC: p.hostMAC, Peer: netns, PeerName: name + "peer", PeerMAC: p.mac})
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().Index
}

func (f *fixture) register(t testing.TB, p party) {
	t.Helper()
	podMAC, hostMAC := abi.MAC{Byte: [6]byte(p.mac)}, abi.MAC{Byte: [6]byte(p.hostMAC)}
	endpoint := abi.Endpoint{Ifindex: uint32(p.index), Id: p.id, PodMac: podMAC, HostMac: hostMAC}
	for _, ip := range []netip.Addr{p.ip4, p.ip6} {
		if err := f.objects.Endpoints.Put(abi.AddrOf(ip), endpoint); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.objects.Slots.Put(uint32(p.id), abi.Slot{Generation: 1}); err != nil {
		t.Fatal(err)
	}
	link := abi.Link{Ipv4: abi.AddrOf(p.ip4), Ipv6: abi.AddrOf(p.ip6), PodMac: podMAC, Id: p.id}
	if err := f.objects.Links.Put(uint32(p.index), link); err != nil {
		t.Fatal(err)
	}
}

// skBuff is struct __sk_buff as far as a test run takes it.
type skBuff struct {
	_              [2]uint32
	Mark           uint32
	_              [6]uint32
	IngressIfindex uint32
	Ifindex        uint32
}

// run runs a program on a frame that came by, or leaves by, a party's link.
func (f *fixture) run(t testing.TB, prog *ebpf.Program, link party, frame []byte) (verdict uint32, out []byte) {
	t.Helper()
	opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: skBuff{Ifindex: uint32(link.index)}}
	verdict = f.runWith(t, prog, opts)
	return verdict, opts.DataOut
}

// runFrom is run for a packet with more known fields.
func (f *fixture) runFrom(t testing.TB, prog *ebpf.Program, link party, from skBuff, frame []byte) (verdict uint32) {
	t.Helper()
	from.Ifindex = uint32(link.index)
	return f.runWith(t, prog, &ebpf.RunOptions{Data: frame, Context: from})
}

func (f *fixture) runWith(t testing.TB, prog *ebpf.Program, opts *ebpf.RunOptions) (verdict uint32) {
	t.Helper()
	err := f.netns.Do(func() (err error) {
		verdict, err = prog.Run(opts)
		return err
	})
	if err != nil {
		t.Fatalf("run %s on % x: %v", prog, opts.Data, err)
	}
	if verdict == toNext && prog == f.objects.FromPod { // behind which there is no filter in these tests
		return toStack
	}
	return verdict
}

// reset forgets all connections, and sets the counters of all pods to zero.
func (f *fixture) reset(t testing.TB) {
	t.Helper()
	f.forgetConnections(t)
	for _, id := range []uint32{abi.NoEndpoint, uint32(f.alice.id), uint32(f.bob.id)} {
		if err := f.objects.Passed.Put(id, make([]abi.Passed, f.cpus)); err != nil {
			t.Fatal(err)
		}
		if err := f.objects.Drops.Put(id, make([]abi.Drops, f.cpus)); err != nil {
			t.Fatal(err)
		}
	}
}

// forgetConnections removes all connections, and counts none.
func (f *fixture) forgetConnections(t testing.TB) {
	t.Helper()
	for key := range f.connections(t) {
		if err := f.objects.Connections.Delete(key); err != nil {
			t.Fatal(err)
		}
	}
	for id := range uint32(f.maxID + 1) {
		if err := f.objects.Usage.Put(id, abi.Usage{}); err != nil {
			t.Fatal(err)
		}
	}
}

func (f *fixture) connections(t testing.TB) map[abi.ConnectionKey]abi.Connection {
	t.Helper()
	all := map[abi.ConnectionKey]abi.Connection{}
	var key abi.ConnectionKey
	var c abi.Connection
	entries := f.objects.Connections.Iterate()
	for entries.Next(&key, &c) {
		all[key] = c
	}
	if err := entries.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func (f *fixture) traffic(t testing.TB, id uint16) (sum abi.Traffic) {
	t.Helper()
	var passed []abi.Passed
	if err := f.objects.Passed.Lookup(uint32(id), &passed); err != nil {
		t.Fatal(err)
	}
	var drops []abi.Drops
	if err := f.objects.Drops.Lookup(uint32(id), &drops); err != nil {
		t.Fatal(err)
	}
	for cpu := range passed {
		sum.AddPassed(passed[cpu])
		sum.AddDrops(drops[cpu])
	}
	return sum
}
